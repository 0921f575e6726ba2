"""The message about the health of a sweep's first trials (headline, cause, fix, command, lines of the log),
and the events about failed ones. Pure.
"""

import re

from bot.core.events import Event
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.core.request import Notify
from bot.core.space import command_line
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.slack.blocks import actions, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import MAX_CODE_SIZE, block, code, place, plain, quoted
from bot.sweep.features.health.state import Health, HealthState, HealthStatus
from bot.sweep.model.texts import cancel_button, flags, loud, name_link, with_owner
from bot.text.wording import counted

NEVER_FITS = "never-fits"  # key of a diagnosis: bot.platform.pod_health.rules_scheduling
HEADLINES = {
    HealthStatus.WAITING: ":hourglass_flowing_sand: The first trial isn't running yet.",
    HealthStatus.UNHEALTHY: ":warning: {trial} isn't healthy.",
    HealthStatus.FAILED: ":warning: {trial} failed:",
}


def message(sweep: SweepRecord) -> Message | None:
    """Build the only message about the first trials, which is edited as their state changes."""
    health = sweep.of(HealthState).shown
    if health is None:
        return None
    words, lines = _parts(sweep, health)
    needs_action = health.status in {HealthStatus.FAILED, HealthStatus.UNHEALTHY} and sweep.phase in ACTIVE
    if not needs_action or sweep.cancelled_by:
        return Message(text=f"{words}\n{lines}".strip())
    parts = [section(part) for part in (words, lines) if part]
    return Message(text=f"{words}\n{lines}".strip(), blocks=(*parts, actions(cancel_button(sweep.id))))


def text(sweep: SweepRecord) -> str:
    """Return the message's text as it is now."""
    health = sweep.of(HealthState).shown
    return "\n".join(_parts(sweep, health)).strip() if health else ""


def is_loud(sweep: SweepRecord) -> bool:
    """Return whether the whole channel sees the message: a failed first trial, or one that can't fit."""
    health = sweep.of(HealthState).shown
    failed = health is not None and health.status is HealthStatus.FAILED
    return (failed or never_fits(health)) and sweep.request.notify is Notify.CHANNEL


def never_fits(health: Health | None) -> bool:
    """Return whether the first trial requests more than the nodes have."""
    return bool(health and health.key == NEVER_FITS and health.status is HealthStatus.UNHEALTHY)


def lines(sweep: SweepRecord) -> list[str]:
    """Return the parent message's line about a first trial that can't run."""
    health = sweep.of(HealthState).shown
    if health is None or not never_fits(health) or sweep.phase is Phase.HELD or sweep.phase.final:
        return []
    return [f":warning: The first trial can't run: {plain(health.text.partition(': ')[2])}"]


def _parts(sweep: SweepRecord, health: Health) -> tuple[str, str]:
    """Return the words, and the last lines of the log."""
    lines = "" if health.status is HealthStatus.RECOVERED else block(_last_lines(health.detail))
    return _words(sweep, health), lines


def _words(sweep: SweepRecord, health: Health) -> str:
    why = _why(health)
    if health.status is HealthStatus.RECOVERED:
        trial = f"trial {code(health.trial)} is healthy" if health.trial else "the first trial is healthy"
        return f":white_check_mark: Recovered: {trial}. Earlier problem: {why}"
    trial = f"trial {code(health.trial)}" if health.trial else "the first trial"
    is_told = "first_failed" in sweep.sent_keys  # by a new message, with the cause
    headline = HEADLINES[health.status].format(trial=f"{trial[0].upper()}{trial[1:]}")
    lines = [f"{headline} {plain(health.text) if is_told else why}"]
    if is_loud(sweep) and not is_told:
        lines = [with_owner(sweep, lines[0])]
    lines += filter(None, [_fix(health) if is_told else _advice(health)])
    lines += [_parameters(sweep, health)] if health.parameters else []
    lines += [f"{counted(health.more, 'more trial')} failed the same way."] if health.more else []
    lines += ["Last lines of the log:"] if health.status is HealthStatus.FAILED and health.detail else []
    return "\n".join(lines)


def _why(found: Health | Diagnosis) -> str:
    """Return the line of the log that says it, else Sweepbot's own words."""
    return quoted(found.cause) if _is_quoted(found) else plain(found.text)


def _advice(found: Health | Diagnosis) -> str:
    """Return Sweepbot's own words if they add to the cause, which is a line of the log, and the fix."""
    is_new = _is_quoted(found) and not _all_words(found.text) <= _all_words(found.cause)
    return f"{plain(found.text)} {_fix(found)}".strip() if is_new else _fix(found)


def _fix(found: Health | Diagnosis) -> str:
    return f"*Fix:* {plain(found.fix)}" if found.fix else ""


def _all_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _is_quoted(found: Health | Diagnosis) -> bool:
    return bool(found.cause) and found.cause != found.text.rstrip(".")


def _parameters(sweep: SweepRecord, health: Health) -> str:
    """Show a failed trial's parameters as the command, which can be run elsewhere."""
    if health.status is HealthStatus.FAILED and sweep.plan:
        return f"*Command:* {code(command_line(sweep.plan.space, health.parameters))}"
    return f"*Parameters:* {flags(health.parameters)}"


def _last_lines(text: str) -> str:
    """Cut the log to the last lines that fit an edit; Slack accepts 4,000 characters."""
    while len(plain(text)) > MAX_CODE_SIZE:
        text = text.partition("\n")[2] or text[len(text) // 2 :]
    return text


def trial_failed(diagnosis: Diagnosis) -> Event:
    why = " ".join(filter(None, (_why(diagnosis), _advice(diagnosis))))
    lines = f" Last lines of the log:\n{block(diagnosis.detail)}" if diagnosis.detail else ""
    text = f":warning: Trial {code(diagnosis.trial)} failed: {why}{lines}"
    return Event(kind="trial_failed", text=text)


def first_failed(sweep: SweepRecord, health: Health, to_user: str = "") -> Event:
    """Return the new message about a failed first trial, or a direct one to a user."""
    where = f"{name_link(sweep)} in {place(sweep.requester.channel)} · " if to_user else ""
    advice = _advice(health) if to_user else ""  # in the thread, the message about the trial has it
    text = f":warning: {where}Trial {code(health.trial)} failed: {_why(health)} {advice}".strip()
    event = Event(kind="first_failed", text=text, to_user=to_user)
    return event if to_user else loud(sweep, event)


def failed_alike(first: str, number: int) -> Event:
    """Count further failures: like that of the trial `first`, or "" for those without a diagnosis."""
    more = counted(number, "more trial")
    if first:
        return Event(kind="alike", text=f":warning: {more} failed the same way as {code(first)}.")
    text = (
        f":warning: {more} failed and {'was' if number == 1 else 'were'}n't diagnosed. "
        "Find failed trials with `results`, then run `logs TRIAL`."
    )
    return Event(kind="alike", text=text)
