"""Decide a sweep's next record from what was observed: phase by phase, its cancel and its end, and when it is
reconciled again. Pure.

    received -> opening -> building -> pending -> running -> stopping -> succeeded | failed | cancelled
        \\           \\                                        /
         `-> refused `-> refused       (a cancel goes from any phase to stopping)

1. received: the ConfigMap reserves the name. Git provides the commit and the space; an invalid request is
   refused with an ephemeral message.
2. opening: the thread is opened in the channel. The cluster has only the ConfigMap. A feature can hold it.
3. building: the registry has the image, or Jobs build it, shared by every sweep that needs the same one.
4. pending: the experiment is submitted; no trial has run yet. Katib's "Running" includes waiting Jobs.
5. running: counts and the best result are shown.
6. held or paused: no GPUs are allocated, until a user lets it continue.
7. stopping: no trials start, active ones are stopped. The end is reported once all GPUs are free.

From pending on, the table of steps (`bot.sweep.feature_table`) says what is decided in which order. `advance`
returns the next record; `required_changes` which objects the phase needs changed. Neither has side effects,
so a repeated reconcile is safe.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.commands import Command
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.config.policy import Config
from bot.sweep.decisions.commands import apply_command, restarted
from bot.sweep.feature_table import FEATURES, STEPS
from bot.sweep.lifecycle import texts
from bot.sweep.lifecycle.building import building, received
from bot.sweep.lifecycle.trials import (
    ended,
    follow_end,
    gpus_free,
    submitted,
    time_left,
)
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import current_progress, with_stopped_values
from bot.sweep.model.terminating import report_stuck, stuck_timeout

SLOW = {Phase.RUNNING, Phase.BUILDING, Phase.HELD, Phase.PAUSED}


def advance(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    """Apply commands and the observation. Return the next record, with new events in its outbox."""
    attempt = sweep.attempt
    for command in seen.commands:
        sweep = apply_command(sweep, command, seen, config, now)
    if _is_cancelled(sweep):
        return _cancel(sweep, now)
    if sweep.attempt != attempt:  # the observation is of the earlier experiment
        return sweep
    seen = _of_attempt(sweep, seen)
    match sweep.phase:
        case Phase.RECEIVED:
            sweep = received(sweep, seen, config, now)
            for feature in FEATURES if sweep.phase is Phase.OPENING else ():
                sweep = feature.planned(sweep, config) if feature.planned else sweep
            return sweep
        case Phase.OPENING:
            sweep = _stepped(sweep, seen, now)
            is_open = sweep.phase is Phase.OPENING and sweep.thread and not sweep.holds
            return sweep.to(Phase.BUILDING, now) if is_open else sweep
        case Phase.BUILDING:
            return building(sweep, seen, now)
        case Phase.PENDING if seen.foreign:
            return sweep.fail(f"A Katib experiment named {sweep.id} already exists", now)
        case Phase.STOPPING:
            return _stopping(_stepped(sweep, seen, now), seen, config, now)
        case _:
            sweep = submitted(sweep) if sweep.phase is Phase.PENDING and seen.experiment else sweep
            after = _stepped(sweep, seen, now)
            # The results of a sweep that isn't paused any more are counted in the next reconcile.
            return after if sweep.phase is Phase.PAUSED else _continued(after, seen, now)


def _stepped(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Take the steps of the table, until one of them leaves the phase; the first trial's start doesn't."""
    phase = sweep.phase
    for step in STEPS:
        if sweep.phase is not phase and not {phase, sweep.phase} <= ACTIVE:
            break
        if sweep.phase in step.phases:
            before, sweep = sweep, step.decide(sweep, seen, now)
            if before.phase is Phase.PAUSED and sweep.phase in ACTIVE:
                sweep = restarted(before, sweep)
    return sweep


def _continued(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """End the sweep with its experiment, unless a feature continues it."""
    if sweep.phase not in ACTIVE or not sweep.submitted:
        return sweep
    if not seen.open and any(each.continues and each.continues(sweep, seen) for each in FEATURES):
        return sweep
    return follow_end(sweep, seen, now)


def _of_attempt(sweep: SweepRecord, seen: Observation) -> Observation:
    """Drop Jobs and pods of earlier experiments, which also have the sweep's label."""
    if sweep.attempt == 1 or sweep.plan is None:
        return seen
    prefix = f"{sweep.plan.experiment_ref.name}-"
    jobs = tuple(job for job in seen.jobs if job.name.startswith(prefix))
    return replace(seen, jobs=jobs, pods=tuple(pod for pod in seen.pods if pod.job.startswith(prefix)))


def apply_cancels(
    sweep: SweepRecord, commands: Iterable[Command], config: Config, now: datetime
) -> SweepRecord:
    """Apply cancels without an observation: they work while the cluster or git doesn't respond."""
    for command in commands:
        sweep = apply_command(sweep, command, Observation(), config, now)
    return _cancel(sweep, now) if _is_cancelled(sweep) else sweep


def _is_cancelled(sweep: SweepRecord) -> bool:
    return bool(sweep.cancelled_by) and not (sweep.phase.final or sweep.phase is Phase.STOPPING)


def _cancel(sweep: SweepRecord, now: datetime) -> SweepRecord:
    return sweep.to(Phase.STOPPING, now, texts.stopping(sweep), ending=Phase.CANCELLED, reason="cancelled")


def _stopping(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    seen = replace(seen, trials=with_stopped_values(sweep, seen.trials))
    sweep = replace(sweep, progress=current_progress(sweep, seen))
    if sweep.ending is None:
        return sweep
    if not gpus_free(sweep, seen):
        return report_stuck(sweep, seen) if now - sweep.since > stuck_timeout(sweep) else sweep
    # Trials that were deleted with their experiment are still counted as running.
    progress = replace(sweep.progress, running=0, waiting=0, waits_for="", finishing=0)
    sweep = replace(sweep, progress=progress)
    for feature in FEATURES:
        sweep = feature.ended(sweep, seen, config) if feature.ended else sweep
    saved = [line for each in FEATURES if each.saved and (line := each.saved(sweep))]
    return ended(sweep, sweep.ending or Phase.FAILED, now, ". ".join(saved))


def _has_next_image(before: SweepRecord, after: SweepRecord) -> bool:
    return before.plan is not None and after.plan is not None and before.plan.branches != after.plan.branches


def requeue_after(
    before: SweepRecord, after: SweepRecord, now: datetime, due: timedelta | None = None
) -> timedelta | None:
    """Return when to reconcile if nothing wakes the sweep; None: never.

    At once after a change of phase. Otherwise when the observation, a feature, or the deadline is due, or as
    a safety net for missed events.
    """
    if after.phase.final:
        return None
    if after.phase is not before.phase or after.thread != before.thread or _has_next_image(before, after):
        return timedelta(0)
    is_slow = after.phase in SLOW or (after.phase is Phase.OPENING and after.thread)
    net = timedelta(minutes=5) if is_slow else timedelta(seconds=20)
    own = [each.requeue(before, after, now) for each in FEATURES if each.requeue]
    return min(each for each in (net, due, time_left(after, now), *own) if each is not None)
