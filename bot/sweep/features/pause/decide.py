"""Pause a sweep, after its trials or now, and resume it: states, texts, buttons with their questions, and why
it can't be paused or resumed. Pure.

    running -> pausing -> paused -> running

To pause, Sweepbot sets a condition that completes Katib's experiment: no new trials start, and running ones
finish or are stopped. To resume, it removes the condition, and the experiment continues: its suggestion
service still runs (LongRunning), and Katib sends it all finished trials with each request. Stopped trials
count toward the total.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from bot.core.commands import Action, Command
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import button
from bot.sweep.model import engine
from bot.sweep.model.changes import Patch, RequiredChanges
from bot.sweep.model.experiment import EXPERIMENT_DELETED, ended_by_lowered_count
from bot.sweep.model.limits import restart_denial
from bot.sweep.model.observation import Observation
from bot.sweep.model.terminating import report_stuck, stuck_timeout
from bot.sweep.model.texts import confirmation, devices, display_name
from bot.text.wording import counted
from k8s.engine import End, Experiment

# In the record's `holds`: until the sweep is resumed, and then until Katib runs the experiment again.
PAUSING, RESUMING = "pause", "resume"


@dataclass(frozen=True, kw_only=True)
class PauseState(FeatureState):
    name: ClassVar[str] = "pause"

    at: datetime | None = None  # time of the command; None: neither pausing nor paused
    by: str = ""  # Slack user id
    now: bool = False  # stop running trials instead of letting them finish
    phase: Phase | None = None  # paused: the phase to continue in
    resuming: bool = False  # until Katib runs the experiment again


# The buttons' action_ids
PAUSE, PAUSE_NOW, RESUME = "pause_sweep", "pause_sweep_now", "resume_sweep"


def cause(sweep: SweepRecord) -> str:
    by = sweep.of(PauseState).by
    return f" by {display_name(sweep, by)}" if sweep.phase is Phase.PAUSED and by else ""


def lines(sweep: SweepRecord) -> list[str]:
    state = sweep.of(PauseState)
    if not state.at or sweep.phase not in ACTIVE:
        return []
    what = "are being stopped" if state.now else "finish"
    return [f"Pausing: no new trials start; running trials {what}."]


def buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    state = sweep.of(PauseState)
    if sweep.phase is Phase.PAUSED:
        return [_resume_button(sweep)]
    if sweep.phase not in ACTIVE or sweep.first_only or sweep.draining or not sweep.submitted:
        return []
    held = devices(sweep.plan)
    finish = f"No new trials start. Running trials finish; then the {held} are free until a resume."
    stop = f"Stops all running trials and frees their {held}. Stopped trials aren't run again."
    pause = confirmation("Pause this sweep?", finish, "Pause", "Keep running")
    now = confirmation("Pause now?", stop, "Pause now", "Keep running")
    now_button = button(PAUSE_NOW, "Pause now", sweep.id, confirm=now)
    if not state.at:
        return [button(PAUSE, "Pause", sweep.id, confirm=pause), now_button]
    return [_resume_button(sweep)] if state.now else [_resume_button(sweep), now_button]


def _resume_button(sweep: SweepRecord) -> dict[str, Any]:
    gpus = sweep.plan.trial_gpus * sweep.plan.space.parallel if sweep.plan else 0
    most = f", on up to {counted(gpus, 'GPU')}" if gpus else ""
    effect = f"Starts trials of {sweep.id} again{most}."
    confirm = confirmation("Resume this sweep?", effect, "Resume", "Stay paused")
    return button(RESUME, "Resume", sweep.id, confirm=confirm)


def pause_denial(sweep: SweepRecord, command: Command, seen: Observation, _: Config, __: datetime) -> str:
    """Return why the sweep's state doesn't allow it to be paused; "" if it does."""
    state = sweep.of(PauseState)
    if sweep.phase is Phase.PAUSED:
        return f"`{sweep.id}` is already paused."
    if state.at:
        is_more = command.action is Action.PAUSE_NOW and not state.now
        return "" if is_more else f"`{sweep.id}` is already pausing."
    if sweep.draining:
        return f"`{sweep.id}` is draining: no new trials start."
    if sweep.phase not in ACTIVE:
        return f"`{sweep.id}` has no trials to pause."
    waits = bool(set(sweep.holds) - {PAUSING, RESUMING})  # with no trials yet
    if waits and not state.resuming:
        return f"`{sweep.id}` is waiting for nodes, so it has no trials to pause. Cancel it instead."
    if not sweep.submitted:
        return f"`{sweep.id}` has no trials to pause."
    if sweep.first_only:
        return f"`{sweep.id}` is waiting for its first trial. Pause it after that, or cancel it."
    continues = seen.open or waits or seen.starting_again or seen.reopens
    continues = continues or ended_by_lowered_count(sweep, seen)
    return "" if continues else f"`{sweep.id}` is ending: no new trials start."


def resume_denial(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, _: datetime
) -> str:
    """Return why the sweep can't be resumed; "" if it can."""
    if not sweep.of(PauseState).at:
        return f"`{sweep.id}` isn't paused."
    return restart_denial(sweep, command, seen, config) if sweep.phase is Phase.PAUSED else ""


def drain_denial(sweep: SweepRecord) -> str:
    is_pausing = PAUSING in sweep.holds
    return f"`{sweep.id}` is paused. Resume it first, or cancel it." if is_pausing else ""


def pausing(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    state, is_now = sweep.of(PauseState), command.action is Action.PAUSE_NOW
    # The pause goes before what else keeps trials from starting, such as a wait after it was resumed.
    state = replace(state, at=state.at or now, by=command.user, now=is_now, resuming=False)
    what = "are being stopped" if is_now else "finish"
    who = display_name(sweep, command.user)
    text = f"{who} is pausing this sweep: no new trials start; running trials {what}."
    event = Event(kind="pausing", text=f":hourglass_flowing_sand: {text}")
    return sweep.put(state, holds=(PAUSING,)).enqueue(event)


def resume(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    return resumed(sweep, now, command.user)


def resumed(sweep: SweepRecord, now: datetime, by: str = "") -> SweepRecord:
    """Continue in the phase before the pause, whose time doesn't count toward `max_hours`."""
    state = sweep.of(PauseState)
    pause = now - state.at if state.at else timedelta(0)
    who = f"{display_name(sweep, by)} resumed this sweep" if by else "This sweep was resumed"
    event = Event(kind="resumed", text=f":runner: {who}: trials start again.")
    sweep = sweep.put(PauseState(resuming=True), deadline=sweep.deadline and sweep.deadline + pause)
    sweep = sweep.unhold(PAUSING).hold(RESUMING)
    if sweep.phase is not Phase.PAUSED:
        return sweep.enqueue(event)
    return sweep.to(state.phase or Phase.RUNNING, now, event)


def restarted(before: SweepRecord, after: SweepRecord) -> SweepRecord:
    """Forget a pause that the end of the sweep came before."""
    return after.put(PauseState()).unhold(PAUSING).unhold(RESUMING) if before.phase.final else after


def is_paused(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether Katib starts no trials: by the pause, or by a lowered total."""
    experiment = seen.experiment
    if experiment is None or seen.open:
        return False
    lowered = bool(sweep.of(PauseState).at) and ended_by_lowered_count(sweep, seen)
    return experiment.end is End.PAUSED or lowered


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report the pause once all GPUs are free, even if the record was restored from before the command.

    A paused sweep whose experiment runs was resumed before Redis lost the record.
    """
    if sweep.phase is Phase.PAUSED:
        if is_paused(sweep, seen):
            return sweep
        if seen.experiment is None:
            return sweep.fail(EXPERIMENT_DELETED, now)
        sweep = resumed(sweep, now)
    state = sweep.of(PauseState)
    if not is_paused(sweep, seen):
        # It can have run all trials of a lowered total before the pause: raising that continues it.
        continues = state.resuming and (seen.open or ended_by_lowered_count(sweep, seen))
        return sweep.change(PauseState, resuming=False).unhold(RESUMING) if continues else sweep
    if state.resuming:
        return sweep
    since = state.at or now
    sweep = sweep.change(PauseState, at=since).hold(PAUSING)
    if not seen.held:
        held = devices(sweep.plan)
        text = f"Paused. All pods are gone and the {held} are free. To continue: `/sweep resume {sweep.id}`."
        event = Event(kind="paused", text=f":zzz: {text}")
        return sweep.change(PauseState, phase=sweep.phase).to(Phase.PAUSED, now, event)
    is_late = state.now and now - since > stuck_timeout(sweep)
    return report_stuck(sweep, seen, "is paused") if is_late else sweep


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """Stop the running trials of "pause now", once no others can start."""
    state = sweep.of(PauseState)
    if not (state.at and state.now and is_paused(sweep, seen)):
        return RequiredChanges()
    stops = engine.stop_trials(plan, seen.live, "stopped by request", now, last=seen.last_values)
    return RequiredChanges(patch=stops)


def steer(
    sweep: SweepRecord, plan: SweepPlan, experiment: Experiment, seen: Observation, now: datetime
) -> Patch | None:
    state = sweep.of(PauseState)
    if seen.open and state.at:
        return engine.pause(plan, experiment, now)
    if state.resuming and is_paused(sweep, seen):
        return engine.resume(plan, experiment, now)
    return None
