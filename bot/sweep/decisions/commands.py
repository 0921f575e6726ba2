"""Apply users' commands to a sweep (here cancel, drain, and cancelling a trial, found by its name's end), or
deny them by permission or state; ignore a second click. Pure.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.commands import Action, AuditEntry, Command
from bot.core.record import ACTIVE, Phase, Shown, SweepRecord
from bot.platform.config.permissions import denial
from bot.platform.config.policy import Config
from bot.platform.slack.mrkdwn import code, mention
from bot.sweep.feature_table import FEATURES
from bot.sweep.lifecycle import texts
from bot.sweep.model.experiment import OUT_OF_BUDGET
from bot.sweep.model.feature import CommandRule
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import CANCEL, display_name, private
from bot.text.wording import listed
from k8s.engine import Trial

REPEATED = timedelta(minutes=1)  # after the first: a second click may have waited in the queue
MIN_END = 3  # characters of a trial's end: `trial 5` is a number, which some trial's name ends with by chance
STEPS = {Action.RAISE, Action.LOWER}  # from where the sweep is: who repeats one means the next step


def apply_command(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> SweepRecord:
    """Apply or deny a command, with an audit entry; `replies` answers questions."""
    if command.action.is_read_only:
        return sweep
    refusal = denial(command.user, command.action, sweep, config)
    if not refusal:
        refusal = _state_denial(sweep, command, seen, config, now)
        if refusal and (command.action is Action.STOP_IDLE or _is_repeated(sweep, command, now)):
            return sweep
    entry = AuditEntry(
        at=now,
        user=command.user,
        name=command.user_name,
        action=command.action,
        about=command.about,
        refused=refusal,
        via=command.via,
    )
    before = sweep = sweep.with_entry(entry)
    if refusal:
        return _redrawn(sweep).enqueue(private(command, refusal))
    rule = RULES[command.action]
    after = rule.apply(sweep, command, seen, config, now)
    return restarted(before, after) if rule.restarts else after


def restarted(before: SweepRecord, after: SweepRecord) -> SweepRecord:
    """Return the record `after` trials were allowed to start again, as all features need it."""
    for feature in FEATURES:
        after = feature.restarted(before, after) if feature.restarted else after
    return after


def _redrawn(sweep: SweepRecord) -> SweepRecord:
    """Return the record with all messages to be updated: the button may be on an outdated one."""
    for message in (each for feature in FEATURES for each in feature.live_message.values()):
        if ts := message.ts(sweep):
            sweep = message.shown(sweep, ts, "")
    return replace(sweep, shown=Shown())


def _is_repeated(sweep: SweepRecord, command: Command, now: datetime) -> bool:
    """Return whether the user has just given this command, by a first click."""
    if command.action is Action.CANCEL and sweep.cancelled_by == command.user:
        return not sweep.phase.final or now - sweep.since < REPEATED
    if command.action in STEPS:
        return False
    last = next((each for each in reversed(sweep.audit_log) if not each.refused), None)
    given = (command.user, command.action, command.about)
    return last is not None and given == (last.user, last.action, last.about) and now - last.at < REPEATED


def _state_denial(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> str:
    """Return why the sweep's state doesn't allow the command; "" if allowed."""
    rule = RULES.get(command.action)
    if rule is None:
        return f"`{sweep.id}` can't do that: this Sweepbot has no command {command.action.value}."
    if sweep.phase.final and not rule.when_ended:
        return f"`{sweep.id}` has already ended."
    if sweep.cancelled_by and not rule.when_ended:
        return f"{mention(sweep.cancelled_by)} already cancelled `{sweep.id}`."
    own = (each.restart_denial(sweep) for each in FEATURES if rule.restarts and each.restart_denial)
    refusal = rule.denial(sweep, command, seen, config, now) or next((why for why in own if why), "")
    if refusal:
        return refusal
    after = rule.apply(sweep, command, seen, config, now)
    denials = (each.change_denial for each in FEATURES if each.change_denial)
    return next((why for one in denials if (why := one(sweep, after, command, seen, config))), "")


def _has_trials(sweep: SweepRecord) -> bool:
    return sweep.phase in ACTIVE and sweep.submitted


def _drain_denial(sweep: SweepRecord, *_: object) -> str:
    own = (each.drain_denial(sweep) for each in FEATURES if each.drain_denial)
    if why := next((why for why in own if why), ""):
        return why
    if sweep.draining:
        return f"`{sweep.id}` is already draining."
    if _has_trials(sweep):
        return ""
    return f"`{sweep.id}` {'is on hold' if sweep.phase is Phase.HELD else 'has no trials yet'}."


def _drained(sweep: SweepRecord, command: Command, *_: object) -> SweepRecord:
    return sweep.enqueue(texts.draining(sweep, command.user), draining="drained")


def _kill_denial(sweep: SweepRecord, command: Command, seen: Observation, *_: object) -> str:
    found = named(seen.live, command.trial) if _has_trials(sweep) else []
    if len(found) == 1:
        user = sweep.to_kill.get(found[0].name)
        who = "Sweepbot" if user in {texts.IDLE, OUT_OF_BUDGET} else display_name(sweep, user) if user else ""
        return f"{who} already cancelled {code(found[0].name)}." if who else ""
    if found:
        names = listed(f"`{each.name}`" for each in found)
        return f"{code(command.trial)} matches {names}. *Fix:* Give the full name."
    if any(name.endswith(command.trial) for name in seen.missing if command.trial):
        return f"{code(command.trial)} isn't running. Katib starts it again; cancel it then."
    live = ", ".join(f"`{t.name}`" for t in seen.live) or "none"
    text = f"{code(command.trial)} isn't an active trial of `{sweep.id}`. Active: {live}."
    if named(seen.trials, command.trial):
        return text
    whole = (
        "@sweepbot cancel" if command.in_thread else f"/sweep cancel {sweep.id}"
    )  # no slash commands there
    return f"{text} To cancel the whole sweep: `{whole}`."


def _killed(sweep: SweepRecord, command: Command, seen: Observation, *_: object) -> SweepRecord:
    trial = named(seen.live, command.trial)[0]
    by = texts.IDLE if command.action is Action.STOP_IDLE else command.user
    sweep = replace(sweep, to_kill={**sweep.to_kill, trial.name: by})
    return sweep.enqueue(texts.first_cancelled(sweep, trial.name, by)) if sweep.first_only else sweep


def named(trials: tuple[Trial, ...], name: str) -> list[Trial]:
    """Return the trials with this name, or whose name ends with it."""
    is_end = len(name) >= MIN_END
    return [t for t in trials if t.name == name or (is_end and t.name.endswith(name))]


RULES: dict[Action, CommandRule] = {
    Action.CANCEL: CommandRule(
        denial=lambda *_: "",
        apply=lambda sweep, command, *_: replace(sweep, cancelled_by=command.user),
        button=CANCEL,
    ),
    Action.DRAIN: CommandRule(denial=_drain_denial, apply=_drained),
    Action.KILL: CommandRule(denial=_kill_denial, apply=_killed),
    Action.STOP_IDLE: CommandRule(denial=_kill_denial, apply=_killed),
} | {action: rule for feature in FEATURES for action, rule in feature.commands.items()}
COUNTED_AGAIN = {action for action, rule in RULES.items() if rule.counts_again}
