"""Read `trials:` of a space file: how many there are, and how long they can take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bot.config.limits import Limits, read_hours
from bot.config.trial_pods import read_grace
from bot.config.yaml_reader import FileError, Node
from bot.core.request import SweepRequest
from bot.spaces.parameters import Report
from bot.spaces.space_keys import DEFAULT_MAX_FAILED, DEFAULT_PARALLEL, DEFAULT_TRIALS, TRIAL_KEYS


@dataclass(frozen=True, kw_only=True)
class Trials:
    max: int
    parallel: int
    max_failed: int
    hours: float | None  # of one trial
    max_hours: float | None  # of all, from the first one's start
    grace_seconds: int | None


def read_trials(
    root: Node, node: Node | None, request: SweepRequest, limits: Limits, grid: int | None
) -> Trials:
    """Return the trials; options of the command override the file. `grid`: the combinations of a grid."""
    keys = node.mapping(TRIAL_KEYS) if node else {}
    most, parallel, max_failed = _counts(root, keys, request, limits, grid)
    return Trials(
        max=most,
        parallel=parallel,
        max_failed=max_failed,
        hours=read_hours(keys.get("trial_hours"), limits.trial_hours),
        max_hours=read_hours(keys.get("max_hours"), None),
        grace_seconds=read_grace(keys.get("grace_seconds"), limits.grace_seconds),
    )


@dataclass(frozen=True)
class _Count:
    """A number of trials, and how to report an error about it."""

    value: int
    report: Report
    adjustable: bool  # lowered without an error if the sweep has fewer trials


def _counts(
    root: Node, keys: Mapping[str, Node], request: SweepRequest, limits: Limits, grid: int | None
) -> tuple[int, int, int]:
    """Return max trials, parallel, and max failed. A lower max from the command or grid lowers the rest."""

    def count(key: str, flag: str, override: int | None, default: int) -> _Count:
        written = keys[key].whole() if key in keys else None
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
