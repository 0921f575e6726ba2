"""Build the parent message of a sweep: its current state, and the buttons. Pure.

The plain `text` is for notifications and screen readers, the blocks for everybody else.
"""

import re
from dataclasses import dataclass
from typing import Any

from bot.core.events import Progress, Result
from bot.core.record import Phase, SweepRecord
from bot.core.wording import counted
from bot.slack.blocks import actions, button, context, plain_text, section
from bot.slack.message import Message
from bot.slack.mrkdwn import code, direct, link, mention, plain, quoted

# The buttons' action_ids
CANCEL, TRIALS, LOGS = "cancel_sweep", "show_trials", "read_logs"
RESULTS, RERUN = "show_results", "rerun_sweep"
BAR = 20  # characters

PHASES = {
    Phase.RECEIVED: (":hourglass_flowing_sand:", "Received"),
    Phase.OPENING: (":hourglass_flowing_sand:", "Starting"),
    Phase.BUILDING: (":package:", "Building the image"),
    Phase.PENDING: (":seedling:", "Waiting for the first trial to run"),
    Phase.RUNNING: (":runner:", "Searching"),
    Phase.STOPPING: (":octagonal_sign:", "Ending"),
    Phase.SUCCEEDED: (":white_check_mark:", "Finished"),
    Phase.FAILED: (":x:", "Failed"),
    Phase.CANCELLED: (":no_entry_sign:", "Cancelled"),
    Phase.REFUSED: (":x:", "Didn't start"),
}


@dataclass(frozen=True, kw_only=True)
class Links:
    katib: str = ""
    mlflow: str = ""


def parent(sweep: SweepRecord, links: Links) -> Message:
    """The living message: always the present state, whatever happened before."""
    blocks: list[dict[str, Any]] = [section(summary(sweep))]
    if below := _below(sweep, links):
        blocks.append(context(below))
    blocks.append(actions(*_buttons(sweep)))
    phase = PHASES[sweep.phase][1]
    counts = (
        f", {_counts(sweep.progress, sweep.plan.space.max_trials)}" if sweep.plan and sweep.submitted else ""
    )
    return Message(text=f"{sweep.id}: {phase}{_why(sweep)}{counts}", blocks=tuple(blocks))


def duplicate(sweep: SweepRecord, url: str) -> Message:
    """Without buttons: in place of a parent that Slack posted while it answered with an error."""
    where = link(url, "the other message") if url else "the other message"
    return Message(text=f"Duplicate message. {code(sweep.id)} is reported in {where}.")


def summary(sweep: SweepRecord) -> str:
    emoji, phase = PHASES[sweep.phase]
    first = f"{emoji} *{sweep.id}* · {phase}{_why(sweep)}"
    held = [f":no_entry_sign: Quarantined: an admin has to type `/sweep release {sweep.id}`."]
    above = [*(held if sweep.quarantined else []), _what(sweep), *_waiting(sweep)]
    return "\n".join([first, *above, *_search(sweep)])


def _waiting(sweep: SweepRecord) -> list[str]:
    trouble = sweep.build_trouble if sweep.phase is Phase.BUILDING else ""
    return [f":warning: {plain(trouble)}"] if trouble else []


def display_name(sweep: SweepRecord, user: str) -> str:
    """The owner is mentioned where a sweep fails or ends, and nowhere else."""
    owner = sweep.requester
    return f"*{quoted(owner.user_name, 80)}*" if user == owner.user and owner.user_name else mention(user)


def _why(sweep: SweepRecord) -> str:
    if sweep.cancelled_by:
        return f" by {display_name(sweep, sweep.cancelled_by)}"
    return f": {quoted(sweep.reason)}" if sweep.reason else ""


def _what(sweep: SweepRecord) -> str:
    request, plan = sweep.request, sweep.plan
    did = "searched" if sweep.phase.final else "searches"
    did = "asked for" if sweep.phase is Phase.REFUSED else did
    where = f"{code(request.space, 100)} on {code(request.branch, 200)}"
    who = f"{display_name(sweep, sweep.requester.user)} {did} {where}"
    if plan is None:
        return who
    subject = quoted(plan.subject, 80)
    return f"{who} at {code(plan.commit[:8])} “{subject}” · {counted(plan.gpus, 'GPU')} per trial"


def _search(sweep: SweepRecord) -> list[str]:
    if sweep.plan is None or not sweep.submitted:
        return []
    progress, total = sweep.progress, sweep.plan.space.max_trials
    lines = [f"{_bar(progress, total)}  {_counts(progress, total)}"]
    if progress.best:
        best = "Best" if sweep.phase.final else "Best so far"
        lines.append(f"{best}: {result_text(sweep, progress.best)}")
    return lines


def _bar(progress: Progress, total: int) -> str:
    done = round(BAR * min(progress.finished, total) / total)
    return code("█" * done + "░" * (BAR - done))


def _counts(progress: Progress, total: int) -> str:
    parts = [f"{progress.finished} of {counted(total, 'trial')}"]
    parts += [
        f"{number} {word}"
        for number, word in (
            (progress.running, "running"),
            (progress.waiting, "waiting"),
            (progress.failed, "failed"),
            (progress.killed, "ended early"),
        )
        if number
    ]
    return " · ".join(parts)


def result_text(sweep: SweepRecord, result: Result) -> str:
    metric = sweep.plan.space.metric if sweep.plan else ""
    return f"{code(metric)} *{result.value:.6g}* with {flags(result.parameters)}"


def flags(parameters: dict[str, str]) -> str:
    return code(" ".join(f"{name}={short(value)}" for name, value in parameters.items()))


def short(value: str) -> str:
    """Sixteen digits of a random draw tell a reader nothing; the command line at the end has them all."""
    return f"{float(value):.6g}" if re.fullmatch(r"-?\d+\.\d{7,}(e-?\d+)?", value) else value


def _below(sweep: SweepRecord, links: Links) -> str:
    channel = sweep.requester.channel
    parts = [
        link(links.katib, "Katib") if links.katib and sweep.submitted else "",
        link(links.mlflow, "MLflow runs") if links.mlflow else "",
        f"I hear no words here: write `/sweep logs {sweep.id}` in a channel" if direct(channel) else "",
    ]
    return "  ·  ".join(p for p in parts if p)


def _buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    read = [button(LOGS, "Logs", sweep.id)]
    if sweep.phase.final:
        results = [button(RESULTS, "Results", sweep.id)] if sweep.submitted else []
        return [*results, *read, button(RERUN, "Rerun", sweep.id, confirm=_confirm_rerun(sweep))]
    if sweep.phase in {Phase.PENDING, Phase.RUNNING}:
        read.insert(0, button(TRIALS, "Trials", sweep.id))
    return read if sweep.phase is Phase.STOPPING else [*read, cancel_button(sweep.id)]


def cancel_button(sweep: str) -> dict[str, Any]:
    confirm = {
        "title": plain_text("Cancel this sweep?"),
        "text": plain_text(f"{sweep}: running trials are ended and their GPUs freed. Results so far stay."),
        "confirm": plain_text("Cancel sweep"),
        "deny": plain_text("Keep it running"),
        "style": "danger",
    }
    return button(CANCEL, "Cancel sweep", sweep, style="danger", confirm=confirm)


def _confirm_rerun(sweep: SweepRecord) -> dict[str, Any]:
    where = f"branch {sweep.request.branch[:100]} as it is now, space {sweep.request.space[:60]}"
    return {
        "title": plain_text("Run this sweep again?"),
        "text": plain_text(f"A new sweep starts in your name: {where}."),
        "confirm": plain_text("Run it again"),
        "deny": plain_text("No"),
    }
