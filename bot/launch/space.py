"""Read a space file. Pure.

All rules of Katib are checked here, before a build: its webhook would reject them late, and what
only its suggestion service or metrics collector rejects leaves a sweep hanging without an error.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bot.config.idle_thresholds import read_watch
from bot.config.policy import Limits, read_hours
from bot.config.trial_pods import read_grace
from bot.config.yaml_reader import FileError, Node, read
from bot.core.request import SweepRequest
from bot.core.space import Goal, Parameter, SearchSpace
from bot.core.wording import listed, shortened
from bot.launch.algorithms import objection, read_algorithm, space_objection
from bot.launch.space_keys import (
    KEYS,
    MAX_FAILED,
    METRIC,
    NAME,
    OBJECTIVE_KEYS,
    PARALLEL,
    RANGE_KEYS,
    RESERVED,
    TRIAL_KEYS,
    TRIALS,
    VALUE,
)

INLINE = "your space"  # the file name in errors about a space written in the form
MAX_COMBINATIONS = 100_000  # Katib's grid service keeps them all in memory
ENDLESS = 10**15  # combinations; a few ranges can have a number with thousands of digits

_Report = Callable[[str], None]


def parse_space(text: str, file: str, request: SweepRequest, limits: Limits) -> SearchSpace:
    """Read the file; options of the command override it. Raises UserError with all errors."""
    root = read(text, file)
    given = {"command": request.cmd, "objective": request.metric and request.goal}
    keys = root.mapping(KEYS, given=[key for key, value in given.items() if value])
    if "description" in keys and "\n" in keys["description"].text().strip():
        keys["description"].error("must be one line")
    algorithm, settings = read_algorithm(keys.get("algorithm"))
    if request.algorithm and request.algorithm != algorithm:
        algorithm, settings = request.algorithm, {}
    metric, goal, target = _objective(keys.get("objective"), request)
    finish = _choice(keys.get("running_at_target"), ("end", "finish")) == "finish"
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
    """Return the number of different trials; None if a range has no steps."""
    return _combinations(space.parameters)


def _objective(node: Node | None, request: SweepRequest) -> tuple[str, Goal, float | None]:
    """Return metric, goal, and target. The target of a metric that the request replaces doesn't apply."""
    given = [key for key in ("metric", "goal") if getattr(request, key)]
    keys = node.mapping(OBJECTIVE_KEYS, given=given) if node else {}
    metric = keys["metric"].text() if "metric" in keys else ""
    if metric and not METRIC.fullmatch(metric):
        # Katib reads a/b as tags that start with b in a directory a.
        keys["metric"].error(
            "must be a TensorBoard tag of letters, digits, dashes, and underscores, without a slash; "
            f'got "{shortened(metric)}"'
        )
    target = keys["target"].number() if "target" in keys else None
    goal = Goal(request.goal or _choice(keys.get("goal"), tuple(Goal)))
    if request.metric and request.metric != metric:
        return request.metric, goal, None
    return metric, goal, target


def _choice(node: Node | None, known: tuple[str, ...]) -> str:
    """Return one of the known words; the first one if the key is missing or invalid."""
    word = node.text() if node else ""
    if node and word and word not in known:
        node.error(f'must be {listed(known, "or")}; got "{shortened(word)}"')
    return word if word in known else known[0]


def _parameters(node: Node | None, algorithm: str, settings: dict[str, str]) -> tuple[Parameter, ...]:
    if node is None:
        return ()
    before = len(node.errors)
    found = tuple(_parameter(name, each, algorithm) for name, each in node.mapping().items())
    if node.value == {}:
        node.error("must have at least one parameter")
    elif len(node.errors) == before and (why := space_objection(algorithm, found, settings)):
        node.error(why)
    return found


def _parameter(name: str, node: Node, algorithm: str) -> Parameter:
    before = len(node.errors)
    if not NAME.fullmatch(name):
        node.error(
            "name must start with a letter or underscore, followed by letters, digits, dots, dashes, or "
            "underscores"
        )
    if name in RESERVED:
        node.error("reserved name: the flag already has another meaning")
    parameter = _dimension(name, node)
    if len(node.errors) == before and (why := objection(algorithm, parameter)):
        node.error(why)
    return parameter


def _dimension(name: str, node: Node) -> Parameter:
    if isinstance(node.value, list):
        return Parameter(name=name, values=_values(node))
    if not isinstance(node.value, dict):
        node.error("must be a list of values or a range {min: …, max: …}. Put a fixed value in command.")
        return Parameter(name=name)
    before = len(node.errors)
    keys = node.mapping(RANGE_KEYS)
    numbers: dict[str, float | int] = {k: keys[k].number() for k in ("min", "max", "step") if k in keys}
    log = _choice(keys.get("scale"), ("linear", "log")) == "log"
    if len(node.errors) == before:
        _check_range(node.error, numbers["min"], numbers["max"], numbers.get("step"), log)
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
    """Return the values as written: 1e-4 stays 1e-4, on stays on."""
    seen: list[str] = []
    for item in node.items():
        if not VALUE.fullmatch(item.raw):
            item.error(f"can only contain letters, digits, and _.,:/+=@-; got {item.described}")
        elif item.raw in seen:
            item.error(f'duplicate value "{shortened(item.raw)}"')
        seen.append(item.raw)
    if not seen:
        node.error("must have at least one value")
    return tuple(seen)


def _check_range(report: _Report, low: float, high: float, step: float | None, log: bool) -> None:
    if low >= high:
        report(f"min must be less than max; got min {low}, max {high}")
    elif log and low <= 0:
        report(f"min must be above 0 on a log scale; got {low}")
    elif step is not None and not 0 < step <= high - low:
        report(f"step must be above 0 and at most max - min; got {step}")
    elif step is not None and log:
        report("a log scale can't have a step. Remove one of them, or list the values.")


def _grid(root: Node, parameters: tuple[Parameter, ...], limits: Limits) -> int:
    found = None if root.errors else _combinations(parameters)
    if found and found > MAX_COMBINATIONS:
        root.error(
            f"the grid has {found:,} combinations; the limit is {MAX_COMBINATIONS:,}. "
            "Use fewer values or larger steps."
        )
    return found or limits.trials  # an invalid grid must not make its counts look invalid


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
    # Count as Katib does, with numpy.arange and its rounding: 0 to 0.3 by 0.1 is three values, not four.
    count = math.ceil(min((high + step - low) / step, 1e15))
    return count - (low + (count - 1) * ((low + step) - low) > high)


@dataclass(frozen=True)
class _Count:
    """A number of trials, and how to report an error about it."""

    value: int
    report: _Report
    adjustable: bool  # lowered without an error if the sweep has fewer trials


def _counts(
    root: Node, keys: Mapping[str, Node], request: SweepRequest, limits: Limits, grid: int | None
) -> tuple[int, int, int]:
    """Return max trials, parallel, and max failed. A lower max from the command or grid lowers the rest."""

    def count(key: str, flag: str, override: int | None, default: int) -> _Count:
        written = keys[key].whole() if key in keys else None
        if override is not None:
            report = partial(_report_option, root, flag, override)
            return _Count(override, report, adjustable=False)
        if written is not None:
            lowered = request.trials is not None or grid is not None
            return _Count(written, keys[key].error, adjustable=lowered)
        return _Count(default, lambda sentence: root.error(f"trials.{key}: {sentence}"), adjustable=True)

    total = count("max", "trials", request.trials, min(TRIALS, limits.trials) if grid is None else grid)
    _limit(total, 1, limits.trials, "trials")
    trials = total.value if grid is None else min(total.value, grid)
    parallel = count("parallel", "parallel", request.parallel, min(PARALLEL, limits.parallel))
    _limit(parallel, 1, limits.parallel, "parallel")
    max_failed = count("max_failed", "", None, MAX_FAILED)
    _limit(max_failed, 0, limits.trials, "trials")
    return trials, _adjusted(parallel, trials), _adjusted(max_failed, trials)


def _report_option(root: Node, option: str, value: int, sentence: str) -> None:
    root.errors.append(FileError(0, f"{option}={value} in the command: {sentence}", field=option))


def _limit(count: _Count, least: int, most: int, name: str) -> None:
    if count.value < least:
        count.report(f"must be at least {least}; got {count.value}")
    elif count.value > most:
        count.report(f"can be at most {most} on this cluster (limits.{name}); got {count.value}")


def _adjusted(count: _Count, trials: int) -> int:
    if count.value > trials and not count.adjustable:
        count.report(f"can't exceed the number of trials ({trials}); got {count.value}")
    return min(count.value, trials)
