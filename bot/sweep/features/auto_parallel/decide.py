"""Choose the number of parallel trials of a `parallel=auto` sweep, and word why it changed;
`bot.sweep.model.pace` makes Katib follow it. Pure.

    grow    trials fit in two measurements, no pods wait, and the last change is GROW_AFTER ago
    shrink  other pods have waited for a minute, or this sweep's own have, or a limit is lower

Shrinking stops no trial: trials that end aren't replaced. Katib deletes the newest trials if
parallelTrialCount falls below the active ones, so it only ever rises, and maxTrialCount throttles instead:
Katib starts min(maxTrialCount - ended, parallelTrialCount) - active trials, and none if that is negative
(ReconcileTrials of its experiment controller). Its webhook requires a maxTrialCount above the trials created
so far, so one more trial can start after each lowering. If all trials end at a lowered maxTrialCount, the
experiment has ended with ExperimentMaxTrialsReached, and a higher count continues it, as an extension does.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from bot.core.feature_state import FeatureState
from bot.core.pace import FreeCapacity
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.slack.mrkdwn import plain
from bot.sweep.model.experiment import ended_by_lowered_count
from bot.sweep.model.observation import Observation
from bot.text.wording import counted


class PaceChange(StrEnum):
    """Why the number of parallel trials changed last."""

    NONE = ""
    GREW = "grew"  # more GPUs became free
    YIELDS = "yields"  # other pods wait
    FULL = "full"  # its own trials wait
    LIMITED = "limited"  # by the limits of a person or a team
    UNKNOWN = "unknown"  # nothing is known about free GPUs


@dataclass(frozen=True, kw_only=True)
class AutoParallelState(FeatureState):
    """Why it runs so many trials at once; the record's `parallel_now` is their number."""

    name: ClassVar[str] = "auto_parallel"

    at: datetime | None = None  # of the last change; None: none so far
    change: PaceChange = PaceChange.NONE
    gpus: int = 0  # that became free, or that `who` waits for
    who: str = ""


@dataclass(frozen=True, kw_only=True)
class AutoParallelSeen:
    capacity: FreeCapacity | None = None  # the last measurement
    most: int = 0  # trials at once that the limits of the owner and the team allow; 0: no limit is known


def lines(sweep: SweepRecord) -> list[str]:
    """Return how many trials run at once, and why; nothing while that can't change."""
    plan = sweep.plan
    if plan is None or not plan.space.auto or sweep.phase not in ACTIVE:
        return []
    if sweep.first_only or sweep.draining or sweep.holds:
        return []
    return [_line(sweep, plan.space.parallel)]


def _line(sweep: SweepRecord, most: int) -> str:
    state, target = sweep.of(AutoParallelState), sweep.parallel_now
    active = sweep.progress.running + sweep.progress.waiting
    up_to = f"Running up to {counted(target, 'trial')} (auto)"
    gpus = counted(state.gpus, "GPU")
    match state.change:
        case PaceChange.GREW:
            return f"{up_to}: {counted(state.gpus, 'more GPU')} became free"
        case PaceChange.YIELDS if active > target:
            return f"Letting trials finish, down to {target} (auto): {plain(state.who)} waits for {gpus}"
        case PaceChange.YIELDS:
            return f"{up_to}: {plain(state.who)} was waiting for {gpus}"
        case PaceChange.FULL:
            return f"{up_to}: no more GPUs are free"
        case PaceChange.LIMITED:
            return f"{up_to}: the GPU limit is reached"
        case PaceChange.UNKNOWN:
            return f"{up_to}: free GPUs are unknown. *Fix:* Ask an admin to run `/sweep doctor`"
        case _:
            return f"{up_to}: more start once GPUs are free, up to {most}" if target < most else up_to


GROW_AFTER = timedelta(minutes=2)  # since the last change, so that the number doesn't swing


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Choose the number again from the last measurement. A sweep that pauses or drains keeps it."""
    if not can_change(sweep, seen):
        return sweep
    own, state = seen.of(AutoParallelSeen), sweep.of(AutoParallelState)
    if own.most and own.most < sweep.parallel_now:
        return _lowered(sweep, own.most, AutoParallelState(at=now, change=PaceChange.LIMITED))
    if own.capacity is None or (state.at and own.capacity.at <= state.at):
        return sweep
    return _chosen(sweep, own.capacity, seen, now)


def can_change(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether Katib can follow: no trials are kept from starting."""
    if seen.experiment is None or sweep.first_only or sweep.draining or sweep.holds:
        return False
    return seen.open or ended_by_lowered_count(sweep, seen)


def can_grow(sweep: SweepRecord, capacity: FreeCapacity, seen: Observation, now: datetime) -> bool:
    """Return whether this measurement lets the sweep grow."""
    last = sweep.of(AutoParallelState).at
    waits = capacity.to_yield or capacity.waiting or sweep.progress.waiting
    rested = last is None or now - last >= GROW_AFTER
    target = sweep.parallel_now
    has_slack = len(seen.live) < target  # Katib hasn't followed yet
    return (
        not waits and rested and _fits(sweep, capacity) > 0 and target < _most(sweep, seen) and not has_slack
    )


def _fits(sweep: SweepRecord, capacity: FreeCapacity) -> int:
    """Return how many more trials to start. At first, one measurement is enough."""
    return capacity.steady if sweep.of(AutoParallelState).at else capacity.trials or 0


def _most(sweep: SweepRecord, seen: Observation) -> int:
    """Return the most trials that can run at once: by the request, the limits, and the trials left."""
    space = sweep.plan.space if sweep.plan else None
    if space is None:
        return 1
    left = space.max_trials - sweep.progress.finished
    return max(1, min(space.parallel, seen.of(AutoParallelSeen).most or space.parallel, left))


def _chosen(sweep: SweepRecord, capacity: FreeCapacity, seen: Observation, now: datetime) -> SweepRecord:
    target, active = sweep.parallel_now, len(seen.live)
    if capacity.trials is None:
        return sweep.change(AutoParallelState, change=PaceChange.UNKNOWN)
    if sweep.of(AutoParallelState).change is PaceChange.UNKNOWN:
        sweep = sweep.change(AutoParallelState, change=PaceChange.NONE)
    if capacity.to_yield:
        why = AutoParallelState(at=now, change=PaceChange.YIELDS, gpus=capacity.requested, who=capacity.who)
        return _lowered(sweep, active - capacity.to_yield, why)
    if capacity.waiting:
        why = AutoParallelState(at=now, change=PaceChange.FULL)
        return _lowered(sweep, active - capacity.waiting, why)
    if not can_grow(sweep, capacity, seen, now):
        return sweep
    grown = min(_most(sweep, seen), target + _fits(sweep, capacity))
    why = AutoParallelState(at=now, change=PaceChange.GREW, gpus=(grown - target) * capacity.gpus)
    return sweep.put(why, parallel_now=grown)


def _lowered(sweep: SweepRecord, target: int, why: AutoParallelState) -> SweepRecord:
    lower = max(1, min(sweep.parallel_now, target))
    return sweep if lower == sweep.parallel_now else sweep.put(why, parallel_now=lower)


def restarted(_: SweepRecord, after: SweepRecord) -> SweepRecord:
    """Measure free GPUs again."""
    return after.put(AutoParallelState(), parallel_now=1)
