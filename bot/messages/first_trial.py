"""Build the message about the health of a sweep's first trials. Pure."""

from bot.core.events import Event, EventKind, Health, HealthStatus
from bot.core.record import Phase, SweepRecord
from bot.core.space import command_line
from bot.messages.parent import cancel_button, flags
from bot.messages.recipients import is_loud, with_owner
from bot.slack.blocks import actions, section
from bot.slack.message import Message
from bot.slack.mrkdwn import MAX_CODE_SIZE, block, code, plain
from bot.text.wording import counted

HEADLINES = {
    HealthStatus.WAITING: ":hourglass_flowing_sand: The first trial isn't running yet.",
    HealthStatus.UNHEALTHY: ":warning: Problem with {trial}.",
    HealthStatus.FAILED: ":warning: {trial} failed.",
}


def health(sweep: SweepRecord, state: Health) -> Message:
    """Build the only message about the first trials, which is edited as their state changes."""
    words, lines = _words(sweep, state), block(_last_lines(state.detail))
    if state.status is HealthStatus.RECOVERED:
        lines = ""
    text = f"{words}\n{lines}".strip()
    needs_action = state.status in {HealthStatus.FAILED, HealthStatus.UNHEALTHY} and sweep.phase in {
        Phase.PENDING,
        Phase.RUNNING,
    }
    if not needs_action or sweep.cancelled_by:
        return Message(text=text)
    parts = [section(part) for part in (words, lines) if part]
    return Message(text=text, blocks=(*parts, actions(cancel_button(sweep.id))))


def _words(sweep: SweepRecord, state: Health) -> str:
    why = plain(state.text)
    if state.status is HealthStatus.RECOVERED:
        trial = f"trial {code(state.trial)} is healthy" if state.trial else "the first trial is healthy"
        return f":white_check_mark: Recovered: {trial}. Earlier problem: {why}"
    trial = f"trial {code(state.trial)}" if state.trial else "the first trial"
    trial = trial if state.status is HealthStatus.UNHEALTHY else f"{trial[0].upper()}{trial[1:]}"
    lines = [f"{HEADLINES[state.status].format(trial=trial)} {why}"]
    if is_loud(sweep, Event(kind=EventKind.HEALTH)) and EventKind.FIRST_FAILED not in sweep.sent_keys:
        lines = [with_owner(sweep, lines[0])]
    lines += [f"*Fix:* {plain(state.fix)}"] if state.fix else []
    lines += [_parameters(sweep, state)] if state.parameters else []
    lines += [f"{counted(state.more, 'more trial')} failed the same way."] if state.more else []
    lines += ["Last lines of the log:"] if state.status is HealthStatus.FAILED and state.detail else []
    return "\n".join(lines)


def _parameters(sweep: SweepRecord, state: Health) -> str:
    """Show a failed trial's parameters as the command, which can be run elsewhere."""
    if state.status is HealthStatus.FAILED and sweep.plan:
        return f"*Command:* {code(command_line(sweep.plan.space, state.parameters))}"
    return f"*Parameters:* {flags(state.parameters)}"


def _last_lines(text: str) -> str:
    """Cut the log to the last lines that fit an edit; Slack accepts 4,000 characters."""
    while len(plain(text)) > MAX_CODE_SIZE:
        text = text.partition("\n")[2] or text[len(text) // 2 :]
    return text
