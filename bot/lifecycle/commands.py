"""Apply users' commands to an active sweep, or deny them by permission or state. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.permissions import denial
from bot.config.policy import Config
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, EventKind
from bot.core.gangs import ACTIVE
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.disruptions import missing
from bot.lifecycle.extension import extended, extension_denial
from bot.lifecycle.gate import opened, restarted
from bot.lifecycle.limits import restart_denial
from bot.lifecycle.observation import Observation
from bot.lifecycle.pause import ACTIONS, is_repeated, pause_denial, pausing, resumed
from bot.lifecycle.queueing import QUEUE_ACTIONS, changed_queue, queue_change_denial
from bot.slack.mrkdwn import code
from k8s.katib.status import Trial

REPEATED = timedelta(minutes=1)  # after the end: a second click may have waited in the queue
MAX_AUDIT_ENTRIES = 50  # entries in a record; the log has all


def apply_command(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> SweepRecord:
    """Apply or deny a command, with an audit entry; `replies` answers questions."""
    if command.action.is_read_only or _is_repeated(sweep, command, now):
        return sweep
    refusal = denial(command.user, command.action, sweep, config)
    if not refusal and command.action in QUEUE_ACTIONS:
        refusal = queue_change_denial(sweep, command, seen, config)
    elif not refusal:
        refusal = _state_denial(sweep, command, seen, config, now)
    entry = AuditEntry(
        at=now,
        user=command.user,
        name=command.user_name,
        action=command.action,
        about=command.about,
        refused=refusal,
    )
    sweep = with_entry(sweep, entry)
    if refusal:
        # The button may be on an outdated message: update both.
        return sweep.enqueue(_ephemeral(command, refusal), shown="", health_shown="")
    return _applied(sweep, command, seen, config, now)


def _is_repeated(sweep: SweepRecord, command: Command, now: datetime) -> bool:
    """Return whether the user has already given this command, by a second click."""
    if command.action is Action.CANCEL and sweep.cancelled_by == command.user:
        return not sweep.phase.final or now - sweep.since < REPEATED
    if is_repeated(sweep, command):
        return True
    mine = [trial for trial, user in sweep.to_kill.items() if user == command.user]
    return (
        command.action is Action.KILL
        and bool(command.trial)
        and any(trial.endswith(command.trial) for trial in mine)
    )


def with_entry(sweep: SweepRecord, entry: AuditEntry) -> SweepRecord:
    return replace(sweep, audit_log=(*sweep.audit_log, entry)[-MAX_AUDIT_ENTRIES:])


def _applied(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> SweepRecord:
    if command.action in QUEUE_ACTIONS:
        return changed_queue(sweep, command, seen, config)
    match command.action:
        case Action.CANCEL:
            return replace(sweep, cancelled_by=command.user)
        case Action.DRAIN:
            return sweep.enqueue(Event(kind=EventKind.DRAINING, by=command.user), drained_by=command.user)
        case Action.KILL:
            trial = named(seen.live, command.trial)[0]
            return replace(sweep, to_kill={**sweep.to_kill, trial.name: command.user})
        case Action.EXTEND if sweep.plan:
            return extended(sweep, sweep.plan, command, now)
        case Action.PAUSE | Action.PAUSE_NOW:
            return pausing(sweep, command, now)
        case Action.RESUME:
            return resumed(sweep, now, command.user)
        case Action.OPEN:
            event = Event(kind=EventKind.GATE_OPENED, by=command.user)
            held = sweep.phase is Phase.HELD
            return restarted(sweep, event, now, gated=False) if held else opened(sweep, event)
        case Action.RETRY:
            event = Event(kind=EventKind.RETRIED, by=command.user)
            return restarted(sweep, event, now, gated=True)
        case _:
            return sweep


def _state_denial(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> str:
    """Return why the sweep's state doesn't allow the command; "" if allowed."""
    has_trials = sweep.phase in ACTIVE and sweep.submitted and not sweep.start_wait
    if command.action is Action.EXTEND:
        why = extension_denial(sweep, seen.experiment, command.trials, config, now)
        return why or restart_denial(sweep, command, seen, config)
    if sweep.phase.final:
        return f"`{sweep.id}` has already ended."
    if sweep.cancelled_by:
        return f"<@{sweep.cancelled_by}> already cancelled `{sweep.id}`."
    if command.action in ACTIONS:
        return pause_denial(sweep, command, seen, config)
    if command.action is Action.OPEN and not sweep.gated:
        return f"`{sweep.id}` isn't waiting for its first trial."
    if command.action is Action.RETRY and sweep.phase is not Phase.HELD:
        return f"`{sweep.id}` isn't on hold."
    if command.action is Action.DRAIN and sweep.paused_at:
        return f"`{sweep.id}` is paused. Resume it first, or cancel it."
    if command.action is Action.DRAIN and (sweep.draining or not has_trials):
        return f"`{sweep.id}` {'is already draining' if sweep.draining else _without_trials(sweep)}."
    if command.action is Action.KILL and not (has_trials and len(named(seen.live, command.trial)) == 1):
        return _kill_denial(sweep, command, seen)
    return ""


def _kill_denial(sweep: SweepRecord, command: Command, seen: Observation) -> str:
    if any(name.endswith(command.trial) for name in missing(sweep, seen) if command.trial):
        return f"{code(command.trial)} isn't running. Katib starts it again; cancel it then."
    live = ", ".join(f"`{t.name}`" for t in seen.live) or "none"
    return f"{code(command.trial)} isn't an active trial of `{sweep.id}`. Active: {live}."


def _without_trials(sweep: SweepRecord) -> str:
    if sweep.start_wait:
        return "is waiting for nodes, so it has no trials to drain. Cancel it instead"
    return "is on hold" if sweep.phase is Phase.HELD else "has no trials yet"


def named(trials: tuple[Trial, ...], name: str) -> list[Trial]:
    """Return the trials with this name, or whose name ends with it."""
    return [t for t in trials if name and t.name.endswith(name)]


def _ephemeral(command: Command, text: str) -> Event:
    return Event(
        kind=EventKind.NOT_ALLOWED,
        text=text,
        to_user=command.user,
        response_url=command.response_url,
        in_thread=command.in_thread,
    )
