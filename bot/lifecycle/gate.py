"""The gate: one trial runs first, the others start once it is healthy, or a user decides. Pure.

    gated -> open                          the first trial is healthy, or a user starts all trials
          -> held -> gated                 it failed; a user retries it
                  -> open                  it failed; a user starts all trials anyway
                  -> cancelled

Katib's experiment is created with counts of one. Opening raises them with one patch, also after the first
trial has succeeded. Katib refuses that patch after a failure, so a held sweep continues in a new experiment.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.events import Event, EventKind, Progress
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import first_only
from bot.messages.first_trial import health
from bot.text.wording import counted
from k8s.katib.manifest import renamed
from k8s.katib.patches import DRAINED, MAX_TRIALS_REACHED, PAUSED
from k8s.katib.status import ExperimentState, TrialState

FIRST_TRIAL_KEYS = (EventKind.TRIAL_FAILED, EventKind.FIRST_FAILED)  # prefixes; reported again after a retry


def follow_gate(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Open the gate if the first trial is healthy; hold the sweep if it failed."""
    plan, experiment = sweep.plan, seen.experiment
    if plan is None or experiment is None or not sweep.submitted or sweep.draining:
        return sweep
    if not sweep.gated and experiment.state is not ExperimentState.FAILED:
        return sweep
    if not first_only(plan.space, experiment):  # opened before Redis lost its data
        return replace(sweep, gated=False)
    trial = seen.healthy or next((t.name for t in seen.succeeded), "")
    if sweep.gated and trial and (seen.open or experiment.reason == MAX_TRIALS_REACHED):
        return opened(sweep, Event(kind=EventKind.GATE_OPENED, trial=trial))
    return _held(sweep, plan, seen, now) if _is_broken(sweep, seen) and not seen.held else sweep


def opened(sweep: SweepRecord, event: Event) -> SweepRecord:
    return sweep.enqueue(event, gated=False, extending=sweep.submitted)


def is_held_or_will_be(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether the sweep is held, or will be once the pods of its failed first trial are gone."""
    return sweep.phase is Phase.HELD or (_is_broken(sweep, seen) and not sweep.draining)


def _is_broken(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether the experiment ended with its first trial, without a success.

    It can also fail between the decision to open it and the patch.
    """
    experiment, plan = seen.experiment, sweep.plan
    if seen.open or experiment is None or plan is None or experiment.reason in {DRAINED, PAUSED}:
        return False
    limited = first_only(plan.space, experiment)
    failed = sweep.gated or experiment.state is ExperimentState.FAILED
    return limited and failed and bool(seen.trials) and not seen.live and not seen.succeeded


def _held(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> SweepRecord:
    stopped = all(t.state is TrialState.KILLED for t in seen.trials)
    reason = "first trial was stopped" if stopped else "first trial failed"
    found = sweep.health if sweep.health and sweep.health.lasting and not stopped else None
    text = f"{found.text}{f' *Fix:* {found.fix}' if found.fix else ''}\n" if found else ""
    hold = f"{text}{_savings(plan, seen)}"
    event = Event(kind=EventKind.HELD, text=f"{reason}. {hold}", trial=seen.trials[-1].name)
    return sweep.to(Phase.HELD, now, event, reason=reason, hold=hold, gated=True, extending=False)


def _savings(plan: SweepPlan, seen: Observation) -> str:
    """Return how many trials the gate has prevented, and the GPU-hours they would have used.

    Without the gate, Katib would have started trials until `max_failed` had failed. If all fail alike, that
    is `max_failed` + `parallel` - 1 trials, each as long as the first.
    """
    space = plan.space
    saved = f"{counted(space.max_trials - 1, 'other trial')} didn't start."
    others = min(space.max_trials, max(1, space.max_failed) + space.first_parallel - 1) - 1
    hours = others * plan.trial_gpus * max((pod.seconds or 0.0 for pod in seen.pods), default=0.0) / 3600
    if hours < 0.05:
        return saved
    return f"{saved} Without the gate, {counted(others, 'trial')} could have failed: {hours:,.1f} GPU-hours."


def restarted(sweep: SweepRecord, event: Event, now: datetime, *, gated: bool) -> SweepRecord:
    """Continue a held sweep in a new experiment; results of the failed one are only in the thread."""
    plan, attempt = sweep.plan, sweep.attempt + 1
    if plan is None:
        return sweep
    manifest = renamed(plan.experiment, f"{sweep.id}-{attempt}")
    return _with_complete_events(sweep).to(
        Phase.PENDING,
        now,
        event,
        attempt=attempt,
        plan=replace(plan, experiment=manifest),
        gated=gated,
        submitted=False,
        reason="",
        hold="",
        progress=Progress(),
        health=None,
        health_ts=None,
        health_shown="",
        examined=(),
        rungs={},
        ending_early={},
        ended_early={},
        queueing=replace(sweep.queueing, disrupted={}),
        alike={},
        sent_keys=tuple(key for key in sweep.sent_keys if not key.startswith(FIRST_TRIAL_KEYS)),
    )


def _with_complete_events(sweep: SweepRecord) -> SweepRecord:
    """Store the first trial's message in its event if it isn't posted yet: the next attempt resets it."""
    if sweep.health is None:
        return sweep
    text = health(sweep, sweep.health).text
    outbox = (replace(e, text=text) if e.kind is EventKind.HEALTH else e for e in sweep.outbox)
    return replace(sweep, outbox=tuple(outbox))


def of_attempt(sweep: SweepRecord, seen: Observation) -> Observation:
    """Drop Jobs and pods of earlier experiments, which also have the sweep's label."""
    if sweep.attempt == 1 or sweep.plan is None:
        return seen
    prefix = f"{sweep.plan.experiment_ref.name}-"
    jobs = tuple(job for job in seen.jobs if job.name.startswith(prefix))
    return replace(seen, jobs=jobs, pods=tuple(pod for pod in seen.pods if pod.job.startswith(prefix)))
