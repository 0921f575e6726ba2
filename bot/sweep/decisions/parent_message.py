"""Build the parent message of a sweep: names of phases, cause, bar and counts of trials, best result, links,
and the buttons, such as Rerun with its question. Pure.

Notifications and screen readers use the plain `text`; Slack shows the blocks.
"""

from dataclasses import dataclass
from typing import Any

from bot.core.events import Progress
from bot.core.plan import HOME_CLUSTER
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.core.stored_format import NewerFormatError
from bot.platform.slack.blocks import actions, button, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, commit_text, direct, link, plain, quoted
from bot.sweep.feature_table import FEATURES, check_readable
from bot.sweep.lifecycle.seeds import summary_line
from bot.sweep.lifecycle.trouble import unreachable_line
from bot.sweep.model.progress import finished_trials
from bot.sweep.model.texts import cancel_button, confirmation, display_name, name_link, result_text
from bot.text.wording import counted

# The buttons' action_ids
TRIALS, LOGS, RESULTS, RERUN = "show_trials", "read_logs", "show_results", "rerun_sweep"
BAR_LENGTH = 10  # characters

PHASES = {
    Phase.RECEIVED: (":hourglass_flowing_sand:", "Received"),
    Phase.OPENING: (":hourglass_flowing_sand:", "Starting"),
    Phase.BUILDING: (":package:", "Building image"),
    Phase.PENDING: (":hourglass_flowing_sand:", "Waiting for first trial"),
    Phase.RUNNING: (":runner:", "Running"),
    Phase.HELD: (":warning:", "On hold"),
    Phase.PAUSED: (":zzz:", "Paused"),
    Phase.STOPPING: (":octagonal_sign:", "Stopping"),
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
    """Build the message that opens a sweep's thread and always shows the current state."""
    grey = ["   ".join(sweep.steps.values()), _subject(sweep), _footer(sweep, links)]
    below = [context("\n".join(filter(None, grey))), actions(*buttons(sweep))]
    counts = (
        f", {_counts(sweep.progress, sweep.plan.space.max_trials)}" if sweep.plan and sweep.submitted else ""
    )
    emoji, state = headline(sweep)
    text = f"{emoji} {sweep.id}: {state}{counts}"
    return Message(text=text, blocks=(section(_body(sweep, f"*{sweep.id}*")), *below))


def duplicate(sweep: SweepRecord, url: str) -> Message:
    """Build the text that replaces a parent that Slack posted although it answered with an error."""
    where = link(url, "its other message") if url else "its other message"
    return Message(text=f"Duplicate message. {code(sweep.id)} is reported in {where}.")


def summary(sweep: SweepRecord) -> str:
    """Return the text of the message for lists and answers, where the name is a link to it."""
    try:
        check_readable(sweep)
    except NewerFormatError:  # during an update
        return f":hourglass_flowing_sand: {name_link(sweep)} · Waiting for the update of Sweepbot to finish"
    return f"{_body(sweep, name_link(sweep))}\n{_subject(sweep)}"


def _body(sweep: SweepRecord, name: str) -> str:
    """Return name, state, and best first."""
    emoji, state = headline(sweep)
    quarantine = f":warning: Quarantined. *Fix:* Ask an admin to run `/sweep release {sweep.id}`."
    above = [f"{emoji} {name} · {state}", *([quarantine] if sweep.quarantined else []), *_problem(sweep)]
    return "\n".join([*above, *_results(sweep)])


def headline(sweep: SweepRecord) -> tuple[str, str]:
    """Return the emoji and the name of the sweep's state, with its cause; of a failure, only the cause."""
    if sweep.phase is Phase.FAILED and sweep.reason:
        return PHASES[sweep.phase][0], quoted(sweep.reason)
    own = (each.headline(sweep) for each in FEATURES if each.headline)
    emoji, name = next((state for state in own if state), PHASES[sweep.phase])
    return emoji, f"{name}{_phase_cause(sweep)}"


def _problem(sweep: SweepRecord) -> list[str]:
    own = [lines for each in FEATURES if each.problem and (lines := each.problem(sweep))]
    if own and sweep.phase is Phase.HELD:
        return own[0]
    if unreachable := unreachable_line(sweep):
        return [f":warning: {unreachable}"]
    if sweep.outage.what:
        return [f":warning: {plain(sweep.outage.what)}"]
    if own:
        return own[0]
    trouble = sweep.building.trouble if sweep.phase is Phase.BUILDING else ""
    return [f":warning: {plain(trouble)}"] if trouble else []


def _phase_cause(sweep: SweepRecord) -> str:
    if sweep.cancelled_by:
        user = display_name(sweep, sweep.cancelled_by)
        return f" by {user}" if sweep.phase is Phase.CANCELLED else f": cancelled by {user}"
    if sweep.reason == finished_trials(sweep.progress):
        return ""  # the bar says it
    causes = (each.cause(sweep) for each in FEATURES if each.cause)
    return next((cause for cause in causes if cause), f": {quoted(sweep.reason)}" if sweep.reason else "")


def _subject(sweep: SweepRecord) -> str:
    request, plan, owner = sweep.request, sweep.plan, display_name(sweep, sweep.requester.user)
    owner += f" by the {sweep.requester.via}" if sweep.requester.via else ""
    space = f"seeds {request.seeds}" if request.seeds else request.space
    searched = f"{code(space, 100)} on {code(request.branch, 200)}"
    if plan is None:
        return f"{searched} · {owner}"
    commit = commit_text(plan.commit, plan.subject)
    size = f"{code(plan.profile)}, {plan.size}" if plan.profile else plan.size
    at = "" if plan.branches else f" @ {commit}"  # several have a line of their own
    parts = [f"{searched}{at}", f"{size} per trial, {plan.space.parallel_text}"]
    if plan.cluster != HOME_CLUSTER or plan.cluster_reason:  # else there was no choice
        reason = f" ({plain(plan.cluster_reason)})" if plan.cluster_reason else ""
        parts.append(f"cluster {code(plan.cluster)}{reason}")
    return " · ".join([*parts, owner])


def _results(sweep: SweepRecord) -> list[str]:
    if sweep.plan is None or not sweep.submitted:
        return []
    progress, total = sweep.progress, sweep.plan.space.max_trials
    lines = [*filter(None, [summary_line(sweep)])]
    if progress.best:
        best = "Best" if sweep.phase.final else "Best so far"
        lines.append(f"{best}: {result_text(sweep, progress.best)}")
    lines.append(f"{_bar(progress, total)}  {_counts(progress, total)}")
    lines += [line for each in FEATURES if each.lines for line in each.lines(sweep)]
    lines += [line for each in FEATURES if each.saved and (line := each.saved(sweep))]
    if sweep.phase is Phase.RUNNING:
        lines += [f"Waiting trials need {plain(progress.waits_for)}."] if progress.waits_for else []
        lines += [line for each in FEATURES if each.running for line in each.running(sweep)]
    return lines


def _bar(progress: Progress, total: int) -> str:
    """Draw trials by state. Squares are emoji: text in code marks is crimson in Slack's light theme."""
    active = progress.running + progress.finishing
    stopped = progress.killed + progress.stopped_early
    cells, number = "", 0
    for count, cell in (
        (progress.succeeded, "🟩"),
        (progress.failed, "🟥"),
        (stopped, "🟨"),
        (active, "🟦"),
        (total, "⬜"),
    ):
        number = min(number + count, total)
        cells += cell * (round(BAR_LENGTH * number / total) - len(cells))
    return cells


def _counts(progress: Progress, total: int) -> str:
    parts = [f"{progress.finished} of {counted(total, 'trial')}"]
    parts += [
        f"{number} {word}"
        for number, word in (
            (progress.running, "running"),
            (progress.waiting, "waiting"),
            (progress.finishing, "finishing"),
            (progress.failed, "failed"),
            (progress.killed, "stopped"),
            (progress.stopped_early, "stopped early"),
        )
        if number
    ]
    return " · ".join(parts)


def _footer(sweep: SweepRecord, links: Links) -> str:
    channel = sweep.requester.channel
    own = [text for each in FEATURES if each.footer and (text := each.footer(sweep))]
    parts = [
        link(links.katib, "Katib") if links.katib and sweep.submitted else "",
        link(links.mlflow, "Runs in MLflow") if links.mlflow else "",
        *own,
        f"I can't read replies here. Run `/sweep logs {sweep.id}` in any channel" if direct(channel) else "",
    ]
    return "  ·  ".join(p for p in parts if p)


def buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    """Return the buttons for the sweep's current phase."""
    logs, results = button(LOGS, "Logs", sweep.id), button(RESULTS, "Results", sweep.id)
    own = [each for feature in FEATURES if feature.buttons for each in feature.buttons(sweep)]
    match sweep.phase:
        case Phase.HELD:
            return [*own, cancel_button(sweep.id, is_running=False), logs]
        case Phase.PAUSED:
            return [*own, results, logs, cancel_button(sweep.id, is_running=False)]
        case Phase.STOPPING:
            return [logs]
        case phase if phase.final:
            request = sweep.request
            space = f"seeds {request.seeds}" if request.seeds else f"space {request.space}"
            source = f"the latest commit on {request.branch[:100]}, {space[:66]}"
            effect = f"Starts a new sweep in your name from {source}."
            confirm = confirmation("Rerun this sweep?", effect, "Rerun", "Don't rerun")
            rerun = button(RERUN, "Rerun", sweep.id, confirm=confirm)
            return [*([results] if sweep.submitted else []), logs, *own, rerun]
        case phase if phase in ACTIVE:
            return [button(TRIALS, "Trials", sweep.id), logs, *own, cancel_button(sweep.id)]
        case _:
            return [*own, logs, cancel_button(sweep.id)]
