"""The space file: what to search. Pure.

Every rule of Katib is checked here, before a build costs anybody time: its webhook refuses late and in
its own words, and what only the suggestion service or the collector refuses leaves a sweep hanging silently.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bot.config.idle_thresholds import read_watch
from bot.config.policy import Limits, read_hours
from bot.config.trial_pods import read_grace
from bot.config.yaml_reader import Node, read
from bot.core.request import SweepRequest
from bot.core.space import Goal, Parameter, SearchSpace
from bot.launch.algorithms import objection, read_algorithm, space_objection

KEYS = (
    "command",
    "objective",
    "algorithm",
    "trials",
    "parameters",
    "description",
    "running_at_target",
    "extendable",
    "image",
    "watch",
)
TRIAL_KEYS = ("max", "parallel", "max_failed", "trial_hours", "grace_seconds")
WRITTEN = "your space"  # how complaints name one that was typed into the form
TRIALS, PARALLEL, MAX_FAILED = 12, 4, 3  # when nobody says
MAX_COMBINATIONS = 100_000  # Katib's grid service lists them all in memory
ENDLESS = 10**15  # combinations, counted no further: a few ranges make a number of thousands of digits
# Flags with a meaning of their own: ours, draccus' (a config file), and the name Katib gives a trial's name.
RESERVED = {"tensorboard_dir", "config_path", "trialName"}
VALUE = re.compile(r"[A-Za-z0-9_.,:/+=@-]+")  # Katib pastes values into JSON and shell text as they are

_Complain = Callable[[str], None]


def parse_space(text: str, file: str, request: SweepRequest, limits: Limits) -> SearchSpace:
    """What the file says, with what the command says instead. Raises UserError with all that is wrong."""
    root = read(text, file)
    keys = root.mapping(KEYS, must=("objective", "parameters", *(() if request.cmd else ("command",))))
    if "description" in keys and "\n" in keys["description"].text().strip():
        keys["description"].wrong("must be one line")
    algorithm, settings = read_algorithm(keys.get("algorithm"))
    if request.algorithm and request.algorithm != algorithm:
        algorithm, settings = request.algorithm, {}
    metric, goal, target = _objective(keys.get("objective"))
    finish = _word(keys.get("running_at_target"), ("end", "finish")) == "finish"
    extendable = keys["extendable"].flag() if "extendable" in keys else False
    image = keys["image"].text() if "image" in keys else ""
    command = keys["command"].text() if "command" in keys else ""
    parameters = _parameters(keys.get("parameters"), algorithm, settings)
    grid = _grid(root, parameters, limits) if algorithm == "grid" else None
    trials = keys["trials"].mapping(TRIAL_KEYS) if "trials" in keys else {}
    max_trials, parallel, max_failed = _counts(root, trials, request, limits, grid)
    trial_hours = read_hours(trials.get("trial_hours"), limits.trial_hours)
    grace = read_grace(trials.get("grace_seconds"), limits.grace_seconds)
    watch = read_watch(keys.get("watch"))
    root.check()
    return SearchSpace(
        name=request.space,
        command=request.cmd or command,
        metric=metric,
        goal=goal,
        target=target,
        algorithm=algorithm,
        settings=settings,
        max_trials=max_trials,
        parallel=parallel,
        max_failed=max_failed,
        trial_hours=trial_hours,
        grace_seconds=grace,
        parameters=parameters,
        finish_running=finish,
        extendable=extendable,
        image=request.image or image,
        watch=watch,
    )


def combinations(space: SearchSpace) -> int | None:
    """How many different trials there can be; None when a range has no steps."""
    return _combinations(space.parameters)


def _objective(node: Node | None) -> tuple[str, Goal, float | None]:
    keys = node.mapping(("metric", "goal", "target"), must=("metric", "goal")) if node else {}
    metric = keys["metric"].text() if "metric" in keys else ""
    if metric and not re.fullmatch(r"[A-Za-z0-9_-]+", metric):
        # Katib looks for a/b as tags beginning with b in a folder a.
        keys["metric"].wrong(
            f'"{metric}" must be a TensorBoard tag of letters, digits, dashes and underscores, without a '
            "slash, and no other tag may begin with it (val_loss beside val_loss_ema would count both)"
        )
    target = keys["target"].number() if "target" in keys else None
    return metric, Goal(_word(keys.get("goal"), tuple(Goal))), target


def _word(node: Node | None, known: tuple[str, ...]) -> str:
    """One of the known words; the first of them when the key is absent or wrong."""
    word = node.text() if node else ""
    if node and word and word not in known:
        node.wrong(f'"{word}" must be {" or ".join(known)}')
    return word if word in known else known[0]


def _parameters(node: Node | None, algorithm: str, settings: dict[str, str]) -> tuple[Parameter, ...]:
    if node is None:
        return ()
    before = len(node.complaints)
    found = tuple(_parameter(name, each, algorithm) for name, each in node.mapping().items())
    if node.value == {}:
        node.wrong("at least one parameter is needed")
    elif len(node.complaints) == before and (why := space_objection(algorithm, found, settings)):
        node.wrong(why)
    return found


def _parameter(name: str, node: Node, algorithm: str) -> Parameter:
    before = len(node.complaints)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
        node.wrong("a name begins with a letter and has letters, digits, dots, dashes and underscores")
    if name in RESERVED:
        node.wrong("this name is taken: Sweepbot or the training program gives the flag another meaning")
    parameter = _dimension(name, node)
    if len(node.complaints) == before and (why := objection(algorithm, parameter)):
        node.wrong(why)
    return parameter


def _dimension(name: str, node: Node) -> Parameter:
    if isinstance(node.value, list):
        return Parameter(name=name, values=_values(node))
    if not isinstance(node.value, dict):
        node.wrong("must be a list of values or a range {min: …, max: …}; a fixed value belongs into command")
        return Parameter(name=name)
    before = len(node.complaints)
    keys = node.mapping(("min", "max", "step", "scale"), must=("min", "max"))
    numbers: dict[str, float | int] = {k: keys[k].number() for k in ("min", "max", "step") if k in keys}
    log = _word(keys.get("scale"), ("linear", "log")) == "log"
    if len(node.complaints) == before:
        _check_range(node.wrong, numbers["min"], numbers["max"], numbers.get("step"), log)
    integer = all(isinstance(number, int) for number in numbers.values())
    return Parameter(
        name=name,
        min=numbers.get("min"),
        max=numbers.get("max"),
        step=numbers.get("step"),
        log=log,
        integer=integer,
    )


def _values(node: Node) -> tuple[str, ...]:
    """As they were written: 1e-4 stays 1e-4, on stays on."""
    seen: list[str] = []
    for item in node.items():
        if not VALUE.fullmatch(item.raw):
            item.wrong(f"{item.described} must have letters, digits and any of _.,:/+=@- only")
        elif item.raw in seen:
            item.wrong(f'"{item.raw}" is there twice')
        seen.append(item.raw)
    if not seen:
        node.wrong("at least one value is needed")
    return tuple(seen)


def _check_range(wrong: _Complain, low: float, high: float, step: float | None, log: bool) -> None:
    if low >= high:
        wrong(f"min ({low}) must be less than max ({high})")
    elif log and low <= 0:
        wrong(f"min ({low}) must be above 0 on a log scale")
    elif step is not None and not 0 < step <= high - low:
        wrong(f"step ({step}) must be above 0 and not more than max - min")
    elif step is not None and log:
        wrong("a log scale has no step; leave one of them out, or list the values")


def _grid(root: Node, parameters: tuple[Parameter, ...], limits: Limits) -> int:
    found = None if root.complaints else _combinations(parameters)
    if found and found > MAX_COMBINATIONS:
        root.wrong(
            f"the grid has {found} combinations, {MAX_COMBINATIONS} at most: use fewer values or larger steps"
        )
    return found or limits.trials  # a wrong grid must not make its counts look wrong as well


def _combinations(parameters: tuple[Parameter, ...]) -> int | None:
    found = 1
    for size in map(_size, parameters):
        if size is None:
            return None
        found = min(found * max(size, 1), ENDLESS)
    return found


def _size(parameter: Parameter) -> int | None:
    low, high, step = parameter.min, parameter.max, parameter.step
    if low is None or high is None:
        return len(parameter.values)
    if parameter.integer:
        return int((high - low) // (step or 1)) + 1
    if step is None:
        return None
    # As Katib counts, with numpy.arange and its rounding: 0 to 0.3 by 0.1 are three values, not four.
    count = math.ceil(min((high + step - low) / step, 1e15))
    return count - (low + (count - 1) * ((low + step) - low) > high)


@dataclass(frozen=True)
class _Count:
    """A number of trials, and where to complain about it."""

    value: int
    wrong: _Complain
    pliant: bool  # follows when there are fewer trials than the file thought


def _counts(
    root: Node, keys: Mapping[str, Node], request: SweepRequest, limits: Limits, grid: int | None
) -> tuple[int, int, int]:
    """Trials, trials at once, failed trials. What the command or the grid lowers takes the others along."""

    def count(key: str, flag: str, asked: int | None, usual: int) -> _Count:
        written = keys[key].whole() if key in keys else None
        if asked is not None:
            tell = partial(_complain_about_command, root, f"{flag}={asked}")
            return _Count(asked, tell, pliant=False)
        if written is not None:
            return _Count(written, keys[key].wrong, pliant=request.trials is not None or grid is not None)
        return _Count(usual, root.wrong, pliant=True)

    asked_for = count("max", "trials", request.trials, min(TRIALS, limits.trials) if grid is None else grid)
    _limit(asked_for, 1, limits.trials, "trials")
    trials = asked_for.value if grid is None else min(asked_for.value, grid)
    parallel = count("parallel", "parallel", request.parallel, min(PARALLEL, limits.parallel))
    _limit(parallel, 1, limits.parallel, "parallel")
    max_failed = count("max_failed", "", None, MAX_FAILED)
    _limit(max_failed, 0, limits.trials, "trials")
    return trials, _follow(parallel, trials), _follow(max_failed, trials)


def _complain_about_command(root: Node, said: str, sentence: str) -> None:
    root.complaints.append((0, f"{said} in the command: {sentence}"))


def _limit(count: _Count, least: int, most: int, name: str) -> None:
    if count.value < least:
        count.wrong(f"must be at least {least}, not {count.value}")
    elif count.value > most:
        count.wrong(f"{count.value} is above this cluster's limit of {most} (limits.{name})")


def _follow(count: _Count, trials: int) -> int:
    if count.value > trials and not count.pliant:
        count.wrong(f"{count.value} is more than there are trials ({trials})")
    return min(count.value, trials)
