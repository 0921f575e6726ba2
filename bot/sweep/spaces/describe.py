"""Describe a space, as `sweepbot space` shows it: trials, GPU-hours, parameters, an example; write its space
file, or best.yaml of its best trial. Pure.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from bot.core.space import TENSORBOARD_PARAMETER, MetricSource, Parameter, SearchSpace, command_line
from bot.sweep.spaces.early_stopping import own_settings
from bot.sweep.spaces.space import combinations
from bot.text.number_format import NUMBER, hours
from bot.text.wording import counted, printable, trial_size
from k8s.katib.training import TENSORBOARD_DIR

PLAIN = re.compile(r"(?!(?i:null|true|false)$)[^\W\d]\w*")  # YAML reads it as text without quotes


def explain(space: SearchSpace, gpus: int, nodes: int = 1) -> str:
    """Return the trials, the parameters, and an example command. `gpus`: per node."""
    text = "\n".join(_explanation(space, gpus, nodes))
    return "\n".join(map(printable, text.split("\n")))  # a command can have a terminal's escape sequences


def _explanation(space: SearchSpace, gpus: int, nodes: int) -> Iterator[str]:
    there = combinations(space.parameters)
    count = f"{counted(space.max_trials, 'trial')}, {space.parallel_text}, by {space.algorithm}"
    yield count + (f"; the space has {there:,} combinations" if there else "")
    total = space.max_trials * gpus * nodes
    if space.trial_hours:
        yield f"Up to {hours(total * space.trial_hours)} GPU-hours: {trial_size(nodes, gpus)} per trial"
    else:
        yield f"{total:,} GPU-hours for each hour that a trial runs, without a limit (trials: trial_hours)"
    metrics = ", ".join(f"{name} ({strategy})" for name, strategy in space.strategies.items())
    target = "" if space.target is None else f"; stop at {space.target:g}"
    goals = ", ".join(f"{goal} {metric}" for metric, goal in space.objectives.items())
    yield f"{goals[0].upper()}{goals[1:]}{target}. Metrics from {space.source}: {metrics}"
    for parameter in space.parameters:
        condition = f", if {_condition(parameter)}" if parameter.when else ""
        yield f"  {parameter.name}: {_numbers(parameter)}{condition}"
    for name, value in space.fixed.items():
        yield f"  {name}: always {value}"
    yield "Example: " + command_line(space, first_values(space), **launch_flags(space))
    yield from (f"Note: {note}" for note in space.notes)


def first_values(space: SearchSpace) -> dict[str, str]:
    """Return the values of a grid's first trial; an example for any other algorithm."""
    values = {each.name: each.values[0] if each.values else f"{each.min}" for each in space.parameters}
    return {each.name: values[each.name] for each in space.parameters if each.is_active(values)}


def launch_flags(space: SearchSpace) -> dict[str, str]:
    """Return the flags that Sweepbot adds to the space's own."""
    found = {TENSORBOARD_PARAMETER: TENSORBOARD_DIR} if space.source is MetricSource.TENSORBOARD else {}
    return found | ({space.output_flag: f"{space.output_dir}/TRIAL"} if space.output_dir else {})


def _condition(parameter: Parameter) -> str:
    name, *values = parameter.when
    return f"{name}={','.join(values)}"


def _numbers(parameter: Parameter) -> str:
    if parameter.values:
        return ", ".join(parameter.values)
    step = "" if parameter.step is None else f" by {parameter.step}"
    kind = "whole numbers " if parameter.integer else ""
    return f"{kind}{parameter.min} to {parameter.max}{step}{', log scale' if parameter.log else ''}"


def as_yaml(space: SearchSpace) -> str:
    """Return a space file that parses to the same space, with its notes as comments."""
    return "\n".join([*_file(space), ""])


def _file(space: SearchSpace) -> Iterator[str]:
    yield from (f"# Note: {note}" for note in space.notes)
    yield f"command: {_quoted(space.command)}"
    yield f"objective: {_objectives(space) if space.goals else _flow(_objective(space))}"
    if space.source is MetricSource.FILE:
        yield f"metrics: {_flow({'from': 'file', 'path': _text(space.metrics_path)})}"
    else:
        yield f"metrics: {space.source}"
    yield f"algorithm: {_flow({'name': space.algorithm} | {k: _value(v) for k, v in space.settings.items()})}"
    limits = {key: str(value) for key, value in _limits(space).items()}
    yield f"trials: {_flow(limits | ({'budget': _text(space.budget)} if space.budget else {}))}"
    if space.early_stopping is not None:
        yield f"early_stopping: {_flow({'name': 'medianstop'} | space.early_stopping)}"
    if space.stopping is not None:
        yield f"early_stopping: {_flow({'name': space.stopping.name} | own_settings(space.stopping))}"
    yield f"flags: {_text(space.flags)}"
    yield from ["booleans: switch"] if space.switches else []
    yield from ["running_at_target: finish"] if space.finish_running else []
    yield from ["extendable: true"] if space.extendable else []
    yield from [f"nodes: {space.nodes}"] if space.nodes else []
    yield from [f"image: {_text(space.image)}"] if space.image else []
    if space.watch:
        yield f"watch: {_flow({name: repr(value) for name, value in space.watch.items()})}"
    yield from [f"volumes: [{', '.join(map(_text, space.volumes))}]"] if space.volumes else []
    yield from (
        [f"env: {_flow({key: _text(value) for key, value in space.env.items()})}"] if space.env else []
    )
    yield from [f"secrets: [{', '.join(map(_text, space.secrets))}]"] if space.secrets else []
    yield from [f"output_flag: {_text(space.output_flag)}"] if space.output_flag else []
    yield "parameters:"
    for parameter in space.parameters:
        yield f"  {parameter.name}: {_dimension(parameter)}"
    for name, value in space.fixed.items():
        yield f"  {name}: {_value(value)}"


def _limits(space: SearchSpace) -> dict[str, float]:
    counts = {"max": space.max_trials, "parallel": space.parallel, "max_failed": space.max_failed}
    limits = {
        "trial_hours": space.trial_hours,
        "max_hours": space.max_hours,
        "grace_seconds": space.grace_seconds,
    }
    return counts | {name: limit for name, limit in limits.items() if limit is not None}


def _objectives(space: SearchSpace) -> str:
    own = {name: {"strategy": strategy} for name, strategy in space.strategy.items()}
    each = (
        _flow({"metric": _text(metric), "goal": goal.value} | own.get(metric, {}))
        for metric, goal in space.objectives.items()
    )
    return f"[{', '.join(each)}]"


def _objective(space: SearchSpace) -> dict[str, str]:
    found = {"metric": _text(space.metric), "goal": space.goal.value}
    found |= {} if space.target is None else {"target": repr(space.target)}
    found |= {"additional": f"[{', '.join(map(_text, space.additional))}]"} if space.additional else {}
    return found | ({"strategy": _flow(space.strategy)} if space.strategy else {})


def _dimension(parameter: Parameter) -> str:
    when = {"if": _text(_condition(parameter))} if parameter.when else {}
    if parameter.values:
        values = f"[{', '.join(value if value[0] == '[' else _value(value) for value in parameter.values)}]"
        return _flow(when | {"values": values}) if when else values
    bounds = when | {"min": repr(parameter.min), "max": repr(parameter.max)}
    bounds |= {} if parameter.step is None else {"step": repr(parameter.step)}
    return _flow(bounds | ({"scale": "log"} if parameter.log else {}))


def _flow(values: dict[str, str]) -> str:
    return f"{{{', '.join(f'{_text(key)}: {value}' for key, value in values.items())}}}"


def _value(text: str) -> str:
    return text if NUMBER.fullmatch(text) or text in {"true", "false"} else _text(text)


def _text(text: str) -> str:
    return text if PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    """Unlike JSON's, YAML's escapes can't be halves of a character."""
    return str(yaml.dump(str(text), default_style='"', width=math.inf)).rstrip("\n")


BEST_SPACE = "best"


def best_space(space: SearchSpace, parameters: Mapping[str, str]) -> SearchSpace:
    """Return the space of one trial: each parameter has one value, and nothing stops it early."""
    return replace(
        space,
        name=BEST_SPACE,
        parameters=tuple(Parameter(name=name, values=(value,)) for name, value in parameters.items()),
        algorithm="grid",
        settings={},
        max_trials=1,
        parallel=1,
        max_failed=0,
        target=None,
        goals={},
        strategy=space.strategies if space.goals else space.strategy,
        finish_running=False,
        early_stopping=None,
        stopping=None,
        extendable=False,
        notes=(),
    )


def best_yaml(space: SearchSpace, parameters: Mapping[str, str], *about: str) -> str:
    """Return the space file; `about`: lines of the comment above it."""
    comment = [f"# {printable(line)}" for line in about]
    return "\n".join([*comment, as_yaml(best_space(space, parameters))])
