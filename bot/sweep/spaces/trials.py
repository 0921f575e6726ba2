"""`trials:` of a space file: how many there are, run in parallel, and can fail, with defaults and the
cluster's limits, and how long they can take. Pure.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from pydantic import WithJsonSchema

from bot.core.budget import AMOUNT, RULE
from bot.core.request import SweepRequest
from bot.platform.config.limits import Hours, Limits
from bot.platform.config.rules import Key, Matching
from bot.platform.config.section import Section, read_each
from bot.platform.config.value_types import Whole, Written
from bot.platform.config.yaml_reader import FileError, Node
from bot.sweep.spaces.parameters import Report

DEFAULT_TRIALS, DEFAULT_PARALLEL, DEFAULT_MAX_FAILED = 12, 4, 3

Amount = Annotated[
    Written,
    Matching(AMOUNT, RULE.format("$100")),
    WithJsonSchema({"type": ["number", "string"], "title": "GPU-hours, or money"}),
]


@dataclass(frozen=True, kw_only=True)
class Trials(Section):
    max: Annotated[Whole | None, Key("20", f"{DEFAULT_TRIALS}; for `grid`, all combinations", least=1)] = None
    """Total number of trials. `trials=` overrides it."""
    parallel: Annotated[Whole | None, Key("8", f"{DEFAULT_PARALLEL}", least=1)] = None
    """Number of trials that run at the same time. `parallel=` overrides it."""
    max_failed: Annotated[Whole | None, Key("1", f"{DEFAULT_MAX_FAILED}", least=0)] = None
    """Number of failed trials at which the sweep fails."""
    trial_hours: Annotated[Hours | None, Key("2", "`limits.trial_hours`")] = None
    """Maximum run time of one trial, in hours. Sweepbot stops it after that."""
    max_hours: Annotated[Hours | None, Key("12", "no limit")] = None
    """Maximum hours of the whole sweep, since its first trial's start. Then no new trials start, and the
    sweep ends once running trials finish. `max_hours=` overrides it."""
    budget: Annotated[Amount, Key("40", "no limit")] = ""
    """GPU-hours of the whole sweep, or money, such as `$100`. Once it has no room for another trial, no new
    trials start, and the sweep ends once running trials finish. `budget=` overrides it."""
    grace_seconds: Annotated[
        Whole | None, Key("120", "`trials.grace_seconds` of the configuration", least=1)
    ] = None
    """Seconds from SIGTERM to SIGKILL, to write a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    max: int
    parallel: int
    max_failed: int


def read_trials(
    root: Node, node: Node | None, request: SweepRequest, limits: Limits, grid: int | None
) -> tuple[Counts, Trials]:
    """Return the trials; options of the command override the file. `grid`: the combinations of a grid."""
    trials, keys = read_each(Trials, node) if node else (Trials(), {})
    hours, grace = trials.trial_hours, trials.grace_seconds
    if hours and limits.trial_hours and hours > limits.trial_hours:
        most = f"{limits.trial_hours:g} on this cluster (limits.trial_hours)"
        keys["trial_hours"].error(f"can be at most {most}; got {hours:g}")
    if grace and grace > limits.grace_seconds:
        most = f"{limits.grace_seconds} on this cluster (limits.grace_seconds)"
        keys["grace_seconds"].error(f"can be at most {most}; got {grace}")
    return _counts(root, trials, keys, request, limits, grid), replace(
        trials, trial_hours=hours or limits.trial_hours
    )


@dataclass(frozen=True)
class _Count:
    """A number of trials, and how to report an error about it."""

    value: int
    report: Report
    adjustable: bool  # lowered without an error if the sweep has fewer trials


def _counts(
    root: Node,
    file: Trials,
    keys: dict[str, Node],
    request: SweepRequest,
    limits: Limits,
    grid: int | None,
) -> Counts:
    """Return max trials, parallel, and max failed. A lower max from the command or grid lowers the rest."""

    def count(key: str, flag: str, override: int | None, default: int) -> _Count:
        written: int | None = getattr(file, key)
        if override is not None:
            report = partial(_report_option, root, flag, override)
            return _Count(override, report, adjustable=key == "parallel" and request.auto)
        if written is not None:
            lowered = request.trials is not None or grid is not None
            return _Count(written, keys[key].error, adjustable=lowered)
        return _Count(default, lambda sentence: root.error(f"trials.{key}: {sentence}"), adjustable=True)

    total = count(
        "max", "trials", request.trials, min(DEFAULT_TRIALS, limits.trials) if grid is None else grid
    )
    _limit(total, 1, limits.trials, "trials")
    trials = total.value if grid is None else min(total.value, grid)
    parallel = count("parallel", "parallel", request.parallel, min(DEFAULT_PARALLEL, limits.parallel))
    _limit(parallel, 1, limits.parallel, "parallel")
    max_failed = count("max_failed", "", None, DEFAULT_MAX_FAILED)
    _limit(max_failed, 0, limits.trials, "trials")
    return Counts(max=trials, parallel=_adjusted(parallel, trials), max_failed=_adjusted(max_failed, trials))


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
