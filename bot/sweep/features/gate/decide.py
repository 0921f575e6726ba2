"""The gate's states: closed, open, or on hold, with the texts, the buttons Run all anyway and Try again, and
the GPU-hours that a hold saves. Pure.

    closed -> open                          the first trial is healthy, or a user starts all trials
           -> held -> closed                it failed; a user retries it
                   -> open                  it failed; a user starts all trials anyway
                   -> cancelled

Katib's experiment is created with counts of one. Opening raises them with one patch, also after the first
trial has succeeded. Katib refuses that patch after a failure, so a held sweep continues in a new experiment.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from bot.core.commands import Action, Command
from bot.core.events import Event, Progress
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import button
from bot.platform.slack.mrkdwn import plain, quoted
from bot.sweep.model.experiment import is_limited
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import current_progress
from bot.sweep.model.texts import FIRST_HEALTHY, confirmation, display_name
from bot.text.wording import counted
from k8s.engine import End, ExperimentState, TrialState
from k8s.katib.manifest import gated, renamed
from k8s.objects import Manifest


@dataclass(frozen=True, kw_only=True)
class GateState(FeatureState):
    """The record's `first_only` says whether the gate is closed."""

    name: ClassVar[str] = "gate"

    hold: str = ""  # held: the diagnosis, and what wasn't started


OPEN, RETRY = "open_sweep", "retry_sweep"  # the buttons' action_ids


def _within(sweep: SweepRecord) -> str:
    return ", as the budget allows" if sweep.plan and sweep.plan.budget else ""


def problem(sweep: SweepRecord) -> list[str]:
    return [plain(sweep.of(GateState).hold)] if sweep.phase is Phase.HELD else []


def lines(sweep: SweepRecord) -> list[str]:
    ends = sweep.draining or sweep.failure or sweep.phase is Phase.HELD or sweep.phase.final
    waits = sweep.first_only and not ends
    return [f"One trial runs first. The others start once it is healthy{_within(sweep)}."] if waits else []


def buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    """Return the choices for a sweep whose first trial failed."""
    if sweep.phase is not Phase.HELD:
        return []
    total = sweep.plan.space.max_trials if sweep.plan else 0
    effect = f"Starts all {total} trials of {sweep.id}{_within(sweep)}, although the first one failed."
    confirm = confirmation("Run all trials?", effect, "Run all", "Stay on hold")
    return [
        button(OPEN, "Run all anyway", sweep.id, confirm=confirm),
        button(RETRY, "Try again", sweep.id),
    ]


FIRST_TRIAL_KEYS = ("trial_failed", "first_failed")  # prefixes; reported again after a retry


@dataclass(frozen=True)
class GateSeen:
    healthy: str = ""  # the first trial, once it has proved healthy


def planned(sweep: SweepRecord, _: Config) -> SweepRecord:
    return replace(sweep, first_only=sweep.plan is not None and sweep.plan.space.gate)


def prepare(sweep: SweepRecord, experiment: Manifest) -> Manifest:
    return gated(experiment) if sweep.first_only else experiment


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Open the gate if the first trial is healthy; hold the sweep if it failed."""
    plan, experiment = sweep.plan, seen.experiment
    if plan is None or experiment is None or not sweep.submitted:
        return sweep
    if sweep.draining:
        return sweep.step(first=FIRST_HEALTHY) if sweep.first_only and seen.succeeded else sweep
    if not sweep.first_only and experiment.state is not ExperimentState.FAILED:
        return sweep
    if not is_limited(plan, experiment):  # opened before Redis lost its data
        return replace(sweep, first_only=False)
    trial = seen.of(GateSeen).healthy or next((t.name for t in seen.succeeded), "")
    if sweep.first_only and trial and (seen.open or experiment.end is End.ALL_TRIALS):
        return _opened(sweep).step(first=FIRST_HEALTHY)
    return _held(sweep, plan, seen, now) if _is_broken(sweep, seen) and not seen.held else sweep


def _opened(sweep: SweepRecord, *events: Event) -> SweepRecord:
    return sweep.enqueue(*events, first_only=False, extending=sweep.submitted)


def is_held_or_will_be(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether the sweep is held, or will be once the pods of its failed first trial are gone."""
    return sweep.phase is Phase.HELD or (_is_broken(sweep, seen) and not sweep.draining)


def _is_broken(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether the experiment ended with its first trial, without a success.

    It can also fail between the decision to open it and the patch.
    """
    experiment, plan = seen.experiment, sweep.plan
    if seen.open or experiment is None or plan is None or experiment.end in {End.DRAINED, End.PAUSED}:
        return False
    limited = is_limited(plan, experiment)
    failed = sweep.first_only or experiment.state is ExperimentState.FAILED
    return limited and failed and bool(seen.trials) and not seen.live and not seen.succeeded


def _held(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> SweepRecord:
    stopped = all(t.state in {TrialState.KILLED, TrialState.NOT_STARTED} for t in seen.trials)
    kills = (e for e in reversed(sweep.audit_log) if e.action is Action.KILL and not e.refused)
    who = next((e.name or e.user for e in kills if any(t.name.endswith(e.about) for t in seen.trials)), "")
    reason = f"{who} cancelled the first trial" if stopped and who else "first trial was stopped"
    reason = reason if stopped else "first trial failed"
    hold = _savings(plan, seen)
    fix = (
        "*Fix:* Decide with the buttons at the top of this thread."  # the reply about the trial has the cause
    )
    event = Event(kind="held", text=f":warning: On hold: {quoted(reason)}. {plain(hold)} {fix}")
    reason = sweep.cause if sweep.cause and not stopped else reason
    sweep = sweep.put(GateState(hold=hold), progress=current_progress(sweep, seen))
    return sweep.to(Phase.HELD, now, event, reason=reason, first_only=True, extending=False, to_kill={})


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


def open_denial(sweep: SweepRecord, *_: object) -> str:
    return "" if sweep.first_only else f"`{sweep.id}` isn't waiting for its first trial."


def open_gate(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    total = counted(sweep.plan.space.max_trials, "trial") if sweep.plan else "all trials"
    text = f"{display_name(sweep, command.user)} started all trials: {total}{_within(sweep)}."
    event = Event(kind="gate_opened", text=f":runner: {text}")
    if sweep.phase is Phase.HELD:
        return _in_new_experiment(sweep, event, now, first_only=False)
    return _opened(sweep, event)


def retry_denial(sweep: SweepRecord, *_: object) -> str:
    return "" if sweep.phase is Phase.HELD else f"`{sweep.id}` isn't on hold."


def retry(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    text = f"{display_name(sweep, command.user)} is retrying the first trial."
    event = Event(kind="retried", text=f":hourglass_flowing_sand: {text}")
    return _in_new_experiment(sweep, event, now, first_only=True)


def _in_new_experiment(sweep: SweepRecord, event: Event, now: datetime, *, first_only: bool) -> SweepRecord:
    """Continue a held sweep in a new experiment; results of the failed one are only in the thread."""
    plan, attempt = sweep.plan, sweep.attempt + 1
    if plan is None:
        return sweep
    manifest = renamed(plan.experiment, f"{sweep.id}-{attempt}")
    return sweep.put(GateState()).to(
        Phase.PENDING,
        now,
        event,
        attempt=attempt,
        attempt_features={},
        plan=replace(plan, experiment=manifest),
        first_only=first_only,
        submitted=False,
        reason="",
        failure="",
        cause="",
        progress=Progress(),
        sent_keys=tuple(key for key in sweep.sent_keys if not key.startswith(FIRST_TRIAL_KEYS)),
    )
