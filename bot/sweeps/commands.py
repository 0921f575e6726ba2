"""What people ask of a living sweep, by button or by word: allowed or not, in time or not. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.permissions import denial
from bot.config.policy import Config
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord
from bot.launch.space import combinations
from bot.slack.mrkdwn import code
from bot.sweeps.observation import Observation
from k8s.katib.patches import MAX_TRIALS_REACHED
from k8s.katib.status import Trial

TWICE = timedelta(minutes=1)  # after the end: a click may have waited for its turn
HISTORY = 50  # deeds that a record keeps; the log keeps all


def apply_command(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> SweepRecord:
    """Done or refused, it stands in the sweep's history. Questions are answered elsewhere."""
    if command.action.is_read_only or _again(sweep, command, now):
        return sweep
    refusal = denial(command.user, command.action, sweep, config) or _untimely(sweep, command, seen, config)
    entry = AuditEntry(
        at=now,
        user=command.user,
        name=command.user_name,
        action=command.action,
        about=about(command),
        refused=refusal,
    )
    sweep = noted(sweep, entry)
    if refusal:
        # It may have been an old message's button: both are drawn anew.
        return sweep.enqueue(_privately(command, refusal), shown="", health_shown="")
    return _done(sweep, command, seen, now)


def _again(sweep: SweepRecord, command: Command, now: datetime) -> bool:
    """Whether this is a person's second click on what the first one has done."""
    if command.action is Action.CANCEL and sweep.cancelled_by == command.user:
        return not sweep.phase.final or now - sweep.since < TWICE
    mine = [trial for trial, user in sweep.to_kill.items() if user == command.user]
    return (
        command.action is Action.KILL
        and bool(command.trial)
        and any(trial.endswith(command.trial) for trial in mine)
    )


def about(command: Command) -> str:
    """Of which trial, or of how many."""
    return command.trial or (f"{command.trials} trials" if command.trials else "")


def noted(sweep: SweepRecord, entry: AuditEntry) -> SweepRecord:
    return replace(sweep, audit_log=(*sweep.audit_log, entry)[-HISTORY:])


def _done(sweep: SweepRecord, command: Command, seen: Observation, now: datetime) -> SweepRecord:
    match command.action:
        case Action.CANCEL:
            return replace(sweep, cancelled_by=command.user)
        case Action.DRAIN:
            return sweep.enqueue(Event(kind=EventKind.DRAINING, by=command.user), drained_by=command.user)
        case Action.KILL:
            trial = named(seen.live, command.trial)[0]
            return replace(sweep, to_kill={**sweep.to_kill, trial.name: command.user})
        case Action.EXTEND:
            return _extended(sweep, command, now)
        case _:
            return sweep


def _untimely(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Why this can't be done now; empty when it can."""
    searching = sweep.phase in {Phase.PENDING, Phase.RUNNING} and sweep.submitted
    if command.action is Action.EXTEND:
        return _no_extension(sweep, command, seen, config)
    if sweep.phase.final:
        return f"`{sweep.id}` has already ended."
    if sweep.cancelled_by:
        return f"<@{sweep.cancelled_by}> has already cancelled `{sweep.id}`."
    if command.action is Action.DRAIN and (sweep.drained_by or not searching):
        return f"`{sweep.id}` {'is draining already' if sweep.drained_by else 'has no running trials yet'}."
    if command.action is Action.KILL and not (searching and len(named(seen.live, command.trial)) == 1):
        live = ", ".join(f"`{t.name}`" for t in seen.live) or "none"
        return f"{code(command.trial)} is not one of the running trials of `{sweep.id}`; those are: {live}."
    return ""


def _no_extension(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Katib adds trials only to what reached its number of trials and kept its suggestion service."""
    space = sweep.plan.space if sweep.plan else None
    if not sweep.phase.final or space is None:
        return f"`{sweep.id}` has not ended; only a finished sweep can be extended."
    if not space.extendable:
        return f"`{sweep.id}` can't be extended: its space file did not say `extendable: true`."
    if seen.experiment is None or seen.experiment.reason != MAX_TRIALS_REACHED:
        return f"`{sweep.id}` can't be extended: Katib allows it only after all trials were done."
    most = min(config.limits.trials, combinations(space) or config.limits.trials)
    if command.trials > most:
        return f"`{sweep.id}` can have {most} trials at most."
    if command.trials <= space.max_trials:
        return f"`{sweep.id}` had {space.max_trials} trials already; say a larger number in all."
    return ""


def _extended(sweep: SweepRecord, command: Command, now: datetime) -> SweepRecord:
    if sweep.plan is None:
        return sweep
    plan = replace(sweep.plan, space=replace(sweep.plan.space, max_trials=command.trials))
    event = Event(kind=EventKind.EXTENDED, by=command.user)
    return sweep.to(Phase.RUNNING, now, event, plan=plan, ending=None, reason="", extending=True)


def named(trials: tuple[Trial, ...], name: str) -> list[Trial]:
    """The trials of this name, or whose name ends with it."""
    return [t for t in trials if name and t.name.endswith(name)]


def _privately(command: Command, text: str) -> Event:
    return Event(
        kind=EventKind.NOT_ALLOWED,
        text=text,
        to_user=command.user,
        response_url=command.response_url,
        in_thread=command.in_thread,
    )
