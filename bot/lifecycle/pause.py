"""Pause a sweep and resume it later. Pure.

    running -> pausing -> paused -> running

To pause, Sweepbot sets a condition that completes Katib's experiment: no new trials start, and running ones
finish or are stopped. To resume, it removes the condition, and the experiment continues: its suggestion
service still runs (LongRunning), and Katib sends it all finished trials with each request. Stopped trials
count toward the total.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.policy import Config
from bot.core.commands import Action, Command
from bot.core.events import Event, EventKind
from bot.core.gangs import CHECKING, is_gang
from bot.core.pace import Pace
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.disruptions import reopens
from bot.lifecycle.limits import restart_denial
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import is_paced_end
from k8s.katib.patches import PAUSED

ACTIONS = {Action.PAUSE, Action.PAUSE_NOW, Action.RESUME}


def pause_denial(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Return why the sweep's state doesn't allow it to be paused or resumed; "" if it does."""
    if command.action is Action.RESUME:
        return _resume_denial(sweep, command, seen, config)
    if sweep.phase is Phase.PAUSED:
        return f"`{sweep.id}` is already paused."
    if sweep.paused_at:
        is_more = command.action is Action.PAUSE_NOW and not sweep.pause_now
        return "" if is_more else f"`{sweep.id}` is already pausing."
    if sweep.draining:
        return f"`{sweep.id}` is draining: no new trials start."
    if sweep.start_wait and not sweep.resuming:
        return f"`{sweep.id}` is waiting for nodes, so it has no trials to pause. Cancel it instead."
    if sweep.phase not in {Phase.PENDING, Phase.RUNNING} or not sweep.submitted:
        return f"`{sweep.id}` has no trials to pause."
    if sweep.gated:
        return f"`{sweep.id}` is waiting for its first trial. Pause it after that, or cancel it."
    continues = seen.open or sweep.start_wait or seen.starting_again or reopens(sweep, seen)
    return "" if continues else f"`{sweep.id}` is ending: no new trials start."


def _resume_denial(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    if not sweep.paused_at:
        return f"`{sweep.id}` isn't paused."
    return restart_denial(sweep, command, seen, config) if sweep.phase is Phase.PAUSED else ""


def is_repeated(sweep: SweepRecord, command: Command) -> bool:
    """Return whether the user has already paused the sweep this way."""
    mode = Action.PAUSE_NOW if sweep.pause_now else Action.PAUSE
    return bool(sweep.paused_at) and (command.action, command.user) == (mode, sweep.paused_by)


def pausing(sweep: SweepRecord, command: Command, now: datetime) -> SweepRecord:
    """Pause; a wait for nodes ends with it, and doesn't count toward `max_hours` either."""
    is_now = command.action is Action.PAUSE_NOW
    event = Event(kind=EventKind.PAUSING, by=command.user, text="now" if is_now else "")
    since = sweep.paused_at or now
    waited = now - sweep.since if sweep.start_wait else timedelta(0)
    deadline = sweep.deadline and sweep.deadline + waited
    changes = {"paused_at": since, "paused_by": command.user, "pause_now": is_now, "deadline": deadline}
    return sweep.enqueue(event, **changes, resuming=False, start_wait="")


def resumed(sweep: SweepRecord, now: datetime, by: str = "") -> SweepRecord:
    """Continue in the phase before the pause, whose time doesn't count toward `max_hours`."""
    pause = now - sweep.paused_at if sweep.paused_at else timedelta(0)
    changes = {"paused_at": None, "paused_by": "", "pause_now": False, "paused_in": None, "resuming": True}
    sweep = replace(sweep, pace=Pace())  # free GPUs are measured again
    deadline = sweep.deadline and sweep.deadline + pause
    event = Event(kind=EventKind.RESUMED, by=by)
    if sweep.phase is not Phase.PAUSED:
        return sweep.enqueue(event, deadline=deadline, **changes)
    wait = CHECKING if is_gang(sweep) else ""
    phase = sweep.paused_in or Phase.RUNNING
    return sweep.to(phase, now, event, deadline=deadline, start_wait=wait, **changes)


def is_paused(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether Katib starts no trials: by the condition, or by a lowered maxTrialCount."""
    experiment = seen.experiment
    if experiment is None or seen.open:
        return False
    return experiment.reason == PAUSED or (bool(sweep.paused_at) and is_paced_end(sweep, experiment))


def follow_pause(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report the pause once all GPUs are free, even if the record was restored from before the command."""
    if sweep.resuming:
        return sweep
    sweep = replace(sweep, paused_at=sweep.paused_at or now)
    if seen.held:
        return sweep
    return sweep.to(Phase.PAUSED, now, Event(kind=EventKind.PAUSED), paused_in=sweep.phase)
