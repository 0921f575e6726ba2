"""Early stopping based on live values: asynchronous successive halving, and the median rule. Pure.

Both compare trials at *rungs*, which are steps: `grace`, `grace` times the factor, and so on. A trial
reaches a rung with its first report at or after that step, and is then compared once with the trials that
reached the rung before it:

- asha (Li et al., 2020, arXiv:1810.05934, in its stopping variant): the trial continues if it is among the
  best 1/factor. No trial is stopped at a rung until as many trials as the factor have reached it.
- median (Golovin et al., 2017, Google Vizier): the trial continues if its value is no worse than the
  others' median. No trial is stopped until `min_trials` others have reached the rung.

Both also stop a trial that has *stalled*: its value is no better than at the rung before, and another trial
has reported a better one. It would train on for nothing, after its minimum for example.

A trial's value at a rung is its min, max, or latest value up to then. Trials are ordered by when they
reported, not by when Sweepbot read it, so the same curves lead to the same decisions.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from bot.core.curves import Curve, Point, so_far

ASHA, MEDIAN = "asha", "median"
MEDIAN_FACTOR = 2  # between the median rule's rungs; a rung per report would make the record too large
MAX_RUNGS = 12  # of one trial

# By rung, then by trial, in the order of their reports. None: not finite, which is worse than any value.
Rungs = dict[int, dict[str, float | None]]


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """How trials are stopped early by Sweepbot itself."""

    name: str  # ASHA or MEDIAN
    grace: int = 1  # the first rung, in steps; a space's default differs, and stored plans leave out these
    factor: int = 3  # of asha
    min_trials: int = 3  # of median
    dry_run: bool = False  # only report what would have been stopped

    @property
    def rungs(self) -> tuple[int, ...]:
        factor = self.factor if self.name == ASHA else MEDIAN_FACTOR
        return tuple(self.grace * factor**number for number in range(MAX_RUNGS))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A trial that is worse than the cutoff at a rung."""

    trial: str
    step: int
    value: float | None
    cutoff: float
    others: int  # that reached the rung before
    stalled_since: int  # an earlier rung; the cutoff is then the best value of any trial. 0: it hasn't


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """Why a trial is stopped early, and after how many seconds."""

    step: int
    value: float | None
    cutoff: float | None
    others: int
    seconds: float
    stalled_since: int = 0


@dataclass(frozen=True, kw_only=True)
class Objective:
    maximize: bool
    strategy: str  # which value of a trial counts: min, max, or latest


def missing_rungs(rule: StoppingRule, rungs: Rungs, trial: str, step: int) -> list[int]:
    """Return the rungs up to this step where the trial isn't recorded."""
    return [rung for rung in rule.rungs if rung <= step and trial not in rungs.get(rung, {})]


def at_rungs(rule: StoppingRule, strategy: str, curve: Curve) -> Curve:
    """Return the first point at or after each rung, with the objective up to it: all that `judge` needs."""
    counts = so_far([point.value for point in curve], strategy)
    reached = (rung for rung in rule.rungs if curve and rung <= curve[-1].step)
    numbers = sorted({_first_at(curve, rung) for rung in reached})
    return tuple(replace(curve[number], value=counts[number]) for number in numbers)


def judge(
    rule: StoppingRule,
    objective: Objective,
    rungs: Rungs,
    curves: Mapping[str, Curve],
    stoppable: Collection[str],
) -> tuple[Rungs, tuple[Verdict, ...]]:
    """Record the trials that reached a rung, and judge each of them once.

    Trials that aren't stoppable, because they have finished, are only compared with.

    Returns:
        The rungs with the new values, and the trials to stop.
    """
    known = {rung: dict(values) for rung, values in rungs.items()}
    verdicts: dict[str, Verdict] = {}
    reported = (_comparable(objective, value) for rung in known.values() for value in rung.values())
    best = min(reported, default=math.inf)
    arrivals = sorted(_arrivals(rule, objective, rungs, curves), key=lambda each: each[:3])
    for _, rung, trial, value, since in arrivals:
        if trial in verdicts:
            continue
        before = known.setdefault(rung, {})
        cutoff = _cutoff(rule, objective, list(before.values()), value)
        poor = cutoff is not None and _comparable(objective, value) > _comparable(objective, cutoff)
        if since and not poor:
            cutoff, poor = _comparable(objective, best), _comparable(objective, value) > best
        if cutoff is not None and poor and trial in stoppable:
            verdicts[trial] = Verdict(
                trial=trial, step=rung, value=value, cutoff=cutoff, others=len(before), stalled_since=since
            )
        before[trial] = value
        best = min(best, _comparable(objective, value))
    return known, tuple(verdicts.values())


def _arrivals(
    rule: StoppingRule, objective: Objective, rungs: Rungs, curves: Mapping[str, Curve]
) -> Iterator[tuple[float, int, str, float | None, int]]:
    """Yield when each trial reached each missing rung, the rung, the trial, its value there, and since when
    it has stalled (0: it improved)."""
    for trial, curve in curves.items():
        counts = so_far([point.value for point in curve], objective.strategy)
        values = [value if math.isfinite(value) else None for value in counts]
        for rung in missing_rungs(rule, rungs, trial, curve[-1].step) if curve else ():
            number = _first_at(curve, rung)
            since = max((each for each in rule.rungs if each < rung), default=0)
            earlier = _first_at(curve, since)
            improved = _comparable(objective, values[number]) < _comparable(objective, values[earlier])
            stalled = since and earlier < number and not improved
            yield curve[number].at, rung, trial, values[number], since if stalled else 0


def _first_at(curve: Sequence[Point], rung: int) -> int:
    return next(number for number, point in enumerate(curve) if point.step >= rung)


def _cutoff(
    rule: StoppingRule, objective: Objective, before: list[float | None], value: float | None
) -> float | None:
    """Return the worst value with which a trial continues; None if too few trials have reached the rung."""
    if rule.name == MEDIAN:
        if len(before) < rule.min_trials:
            return None
        return _comparable(objective, float(median(_comparable(objective, each) for each in before)))
    ranked = sorted(_comparable(objective, each) for each in (*before, value))
    kept = len(ranked) // rule.factor
    return _comparable(objective, ranked[kept - 1]) if kept else None


def _comparable(objective: Objective, value: float | None) -> float:
    """Return a number that is smaller for a better value. Of such a number, return the value."""
    if value is None:
        return math.inf
    return -value if objective.maximize else value
