"""Choose the number of parallel trials of a `parallel=auto` sweep, and make Katib follow it. Pure.

    grow    trials fit in two measurements, no pods wait, and the last change is GROW_AFTER ago
    shrink  other pods have waited for a minute, or this sweep's own have, or a limit is lower

Shrinking stops no trial: trials that end aren't replaced. Katib deletes the newest trials if
parallelTrialCount falls below the active ones, so it only ever rises, and maxTrialCount throttles instead:
Katib starts min(maxTrialCount - ended, parallelTrialCount) - active trials, and none if that is negative
(ReconcileTrials of its experiment controller). Its webhook requires a maxTrialCount above the trials created
so far, so one more trial can start after each lowering. If all trials end at a lowered maxTrialCount, the
experiment has ended with ExperimentMaxTrialsReached, and a higher count continues it, as an extension does.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.pace import FreeCapacity, Pace, PaceChange
from bot.core.record import SweepRecord
from bot.core.space import SearchSpace
from bot.lifecycle.observation import Observation
from k8s.katib.patches import MAX_TRIALS_REACHED, paced
from k8s.katib.status import Experiment
from k8s.objects import Manifest

GROW_AFTER = timedelta(minutes=2)  # since the last change, so that the number doesn't swing


def follow_pace(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Choose the number again from the last measurement. A sweep that pauses or drains keeps it."""
    if not can_change(sweep, seen):
        return sweep
    pace = sweep.pace
    if seen.most_parallel and seen.most_parallel < pace.target:
        return replace(sweep, pace=_lowered(pace, seen.most_parallel, PaceChange.LIMITED, now))
    if seen.capacity is None or (pace.at and seen.capacity.at <= pace.at):
        return sweep
    return replace(sweep, pace=_chosen(sweep, seen.capacity, seen, now))


def can_change(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether Katib can follow: the gate is open, and the sweep isn't draining or pausing."""
    plan = sweep.plan
    if plan is None or not plan.space.auto or seen.experiment is None:
        return False
    stops = sweep.gated or sweep.draining or sweep.paused_at or sweep.resuming
    return not stops and (seen.open or is_paced_end(sweep, seen.experiment))


def can_grow(sweep: SweepRecord, capacity: FreeCapacity, seen: Observation, now: datetime) -> bool:
    """Return whether this measurement lets the sweep grow."""
    pace, most = sweep.pace, _most(sweep, seen)
    waits = capacity.to_yield or capacity.waiting or sweep.progress.waiting
    rested = pace.at is None or now - pace.at >= GROW_AFTER
    return (
        not waits
        and rested
        and _fits(pace, capacity) > 0
        and pace.target < most
        and not _has_slack(pace, seen)
    )


def _fits(pace: Pace, capacity: FreeCapacity) -> int:
    """Return how many more trials to start. At first, one measurement is enough."""
    return capacity.steady if pace.at else capacity.trials or 0


def _has_slack(pace: Pace, seen: Observation) -> bool:
    """Return whether fewer trials are active than could be: Katib hasn't followed yet."""
    return len(seen.live) < pace.target


def _most(sweep: SweepRecord, seen: Observation) -> int:
    """Return the most trials that can run at once: by the request, the limits, and the trials left."""
    space = sweep.plan.space if sweep.plan else None
    if space is None:
        return 1
    left = space.max_trials - sweep.progress.finished
    return max(1, min(space.parallel, seen.most_parallel or space.parallel, left))


def _chosen(sweep: SweepRecord, capacity: FreeCapacity, seen: Observation, now: datetime) -> Pace:
    pace, active = sweep.pace, len(seen.live)
    if capacity.trials is None:
        known = pace.change is PaceChange.UNKNOWN
        return pace if known else replace(pace, change=PaceChange.UNKNOWN)
    if capacity.to_yield:
        return _lowered(
            pace, active - capacity.to_yield, PaceChange.YIELDS, now, capacity.requested, capacity.who
        )
    if capacity.waiting:
        return _lowered(pace, active - capacity.waiting, PaceChange.FULL, now)
    if not can_grow(sweep, capacity, seen, now):
        return pace
    target = min(_most(sweep, seen), pace.target + _fits(pace, capacity))
    more = (target - pace.target) * capacity.gpus
    return Pace(target=target, at=now, change=PaceChange.GREW, gpus=more)


def _lowered(pace: Pace, target: int, why: PaceChange, now: datetime, gpus: int = 0, who: str = "") -> Pace:
    lower = max(1, min(pace.target, target))
    return pace if lower == pace.target else Pace(target=lower, at=now, change=why, gpus=gpus, who=who)


def first_only(space: SearchSpace, experiment: Experiment) -> bool:
    """Return whether the experiment is still limited to fewer trials than it was last asked to run.

    A throttled maxTrialCount isn't: it is never 1, as the gate's is.
    """
    return experiment.max_trials < (min(2, space.max_trials) if space.auto else space.max_trials)


def is_paced_end(sweep: SweepRecord, experiment: Experiment) -> bool:
    """Return whether all trials ended at a lowered maxTrialCount, so that a higher one continues."""
    space = sweep.plan.space if sweep.plan else None
    if space is None or not space.auto or sweep.gated or sweep.draining:
        return False
    made = int(experiment.raw.get("status", {}).get("trials", 0))
    lowered = experiment.max_trials < space.max_trials and made < space.max_trials
    return lowered and experiment.reason == MAX_TRIALS_REACHED


def pace_patch(sweep: SweepRecord, seen: Observation) -> Manifest:
    """Return the patch of the counts that Katib needs; {} if none.

    Before a pause, they are lowered as far as they can be: a paused experiment can't be edited, and it
    continues with as many trials as its counts allow.
    """
    plan, experiment = sweep.plan, seen.experiment
    if plan is None or experiment is None or not plan.space.auto:
        return {}
    if sweep.gated or (sweep.draining and not sweep.extending):
        return {}
    if not (seen.open or sweep.extending or is_paced_end(sweep, experiment)):
        return {}
    running = 1 if sweep.paused_at else sweep.pace.target
    space = plan.space
    return paced(experiment.raw, total=space.max_trials, running=running, max_failed=space.max_failed)
