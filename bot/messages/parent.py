"""Build the parent message of a sweep: its current state, and the buttons. Pure.

Notifications and screen readers use the plain `text`; Slack shows the blocks.
"""

from dataclasses import dataclass
from typing import Any

from bot.core.events import EventKind, Progress, Result
from bot.core.record import Phase, SweepRecord
from bot.messages.clusters import placed, unseen_line
from bot.messages.early_stopping import savings
from bot.messages.pace import pace_line
from bot.messages.seeds import summary_line
from bot.messages.start import first_trial_line, waiting_phase
from bot.slack.blocks import actions, button, context, plain_text, section
from bot.slack.message import Message
from bot.slack.mrkdwn import code, commit_text, direct, link, mention, plain, quoted
from bot.text.number_format import short
from bot.text.wording import counted, time_text

# The buttons' action_ids
CANCEL, TRIALS, LOGS = "cancel_sweep", "show_trials", "read_logs"
RESULTS, RERUN = "show_results", "rerun_sweep"
OPEN_GATE, RETRY_FIRST, EXTEND = "open_sweep", "retry_sweep", "extend_sweep"
PAUSE, PAUSE_NOW, RESUME = "pause_sweep", "pause_sweep_now", "resume_sweep"
ACTIVE = {Phase.PENDING, Phase.RUNNING}  # phases with trials
BAR_LENGTH = 20  # characters

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
    blocks: list[dict[str, Any]] = [section(summary(sweep))]
    if footer := _footer(sweep, links):
        blocks.append(context(footer))
    blocks.append(actions(*_buttons(sweep)))
    phase = (waiting_phase(sweep) or PHASES[sweep.phase])[1]
    counts = (
        f", {_counts(sweep.progress, sweep.plan.space.max_trials)}" if sweep.plan and sweep.submitted else ""
    )
    return Message(text=f"{sweep.id}: {phase}{_phase_cause(sweep)}{counts}", blocks=tuple(blocks))


def duplicate(sweep: SweepRecord, url: str) -> Message:
    """Build the text that replaces a parent that Slack posted although it answered with an error."""
    where = link(url, "the other message") if url else "the other message"
    return Message(text=f"Duplicate message. {code(sweep.id)} is reported in {where}.")


def summary(sweep: SweepRecord) -> str:
    emoji, phase = waiting_phase(sweep) or PHASES[sweep.phase]
    headline = f"{emoji} *{sweep.id}* · {phase}{_phase_cause(sweep)}"
    quarantine = f":warning: Quarantined. *Fix:* Ask an admin to run `/sweep release {sweep.id}`."
    above = [*([quarantine] if sweep.quarantined else []), _subject(sweep), *_problem(sweep)]
    return "\n".join([headline, *above, *_results(sweep)])


def _problem(sweep: SweepRecord) -> list[str]:
    if sweep.phase is Phase.HELD:
        return [plain(sweep.hold)]
    if unseen := unseen_line(sweep):
        return [f":warning: {unseen}"]
    if sweep.unavailable:
        return [f":warning: {plain(sweep.unavailable)}"]
    if waiting_phase(sweep):
        return [plain(sweep.start_wait)]
    trouble = sweep.build_trouble if sweep.phase is Phase.BUILDING else ""
    return [f":warning: {plain(trouble)}"] if trouble else []


def display_name(sweep: SweepRecord, user: str) -> str:
    """Name the owner without a mention; only the id of other users is known."""
    owner = sweep.requester
    return f"*{quoted(owner.user_name, 80)}*" if user == owner.user and owner.user_name else mention(user)


def _phase_cause(sweep: SweepRecord) -> str:
    if sweep.cancelled_by:
        user = display_name(sweep, sweep.cancelled_by)
        return f" by {user}" if sweep.phase is Phase.CANCELLED else f": cancelled by {user}"
    if sweep.phase is Phase.PAUSED and sweep.paused_by:
        return f" by {display_name(sweep, sweep.paused_by)}"
    return f": {quoted(sweep.reason)}" if sweep.reason else ""


def _subject(sweep: SweepRecord) -> str:
    request, plan, owner = sweep.request, sweep.plan, display_name(sweep, sweep.requester.user)
    space = f"seeds {request.seeds}" if request.seeds else request.space
    searched = f"{code(space, 100)} on {code(request.branch, 200)}"
    if plan is None:
        return f"{searched} · {owner}"
    commit = commit_text(plan.commit, plan.subject)
    size = f"{code(plan.profile)}, {plan.size}" if plan.profile else plan.size
    parts = [f"{searched} @ {commit}", f"{size} per trial", placed(plan), owner]
    return " · ".join(filter(None, parts))


def _results(sweep: SweepRecord) -> list[str]:
    if sweep.plan is None or not sweep.submitted:
        return []
    progress, total = sweep.progress, sweep.plan.space.max_trials
    lines = [f"{_bar(progress, total)}  {_counts(progress, total)}"]
    lines += filter(None, [first_trial_line(sweep)])
    if sweep.paused_at and sweep.phase in ACTIVE:
        what = "are being stopped" if sweep.pause_now else "finish"
        lines.append(f"Pausing: no new trials start; running trials {what}.")
    if f"{EventKind.SEARCH_LOST}/{sweep.attempt}" in sweep.sent_keys and sweep.phase in ACTIVE:
        lines.append("No new trials start: Katib's suggestion service lost the search.")
    if (user := sweep.queueing.held_by) and sweep.phase in ACTIVE:
        release = f"`/sweep queue release {sweep.id}`"
        lines.append(f"{display_name(sweep, user)} held the waiting trials. Release them: {release}.")
    lines += filter(None, [_interrupted(sweep), pace_line(sweep), summary_line(sweep)])
    if progress.best:
        best = "Best" if sweep.phase.final else "Best so far"
        lines.append(f"{best}: {result_text(sweep, progress.best)}")
    return [*lines, *filter(None, [savings(sweep)]), *_running(sweep)]


def _interrupted(sweep: SweepRecord) -> str:
    """Return how many trials will start again; Katib doesn't count one whose turn comes after others."""
    number = len(sweep.queueing.interrupted)
    if not number or sweep.phase not in ACTIVE or sweep.paused_at or sweep.draining:
        return ""
    return f"{counted(number, 'interrupted trial')} will start again."


def _running(sweep: SweepRecord) -> list[str]:
    """Return what running trials report, and the time left; nothing once the sweep stops."""
    progress, lines = sweep.progress, []
    if sweep.plan is None or sweep.phase is not Phase.RUNNING:
        return []
    if progress.waits_for and not sweep.queueing.held_by:
        lines.append(f"Waiting trials need {plain(progress.waits_for)}.")
    if live := progress.live:
        value = f"{code(sweep.plan.space.metric)} *{live.value:.6g}* at step {live.step:,}"
        lines.append(f"Best running trial: {value} ({code(live.trial)})")
    if progress.minutes_left is not None:
        lines.append(f"About {time_text(progress.minutes_left)} left")
    return lines


def _bar(progress: Progress, total: int) -> str:
    done = round(BAR_LENGTH * min(progress.finished, total) / total)
    return code("█" * done + "░" * (BAR_LENGTH - done))


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


def result_text(sweep: SweepRecord, result: Result) -> str:
    metric = sweep.plan.space.metric if sweep.plan else ""
    return f"{code(metric)} *{result.value:.6g}* with {flags(result.parameters)}"


def flags(parameters: dict[str, str]) -> str:
    return code(" ".join(f"{name}={short(value)}" for name, value in parameters.items()))


def _footer(sweep: SweepRecord, links: Links) -> str:
    channel = sweep.requester.channel
    parts = [
        link(links.katib, "Katib") if links.katib and sweep.submitted else "",
        link(links.mlflow, "Runs in MLflow") if links.mlflow else "",
        _not_extendable(sweep),
        f"I can't read replies here. Run `/sweep logs {sweep.id}` in any channel" if direct(channel) else "",
    ]
    return "  ·  ".join(p for p in parts if p)


def _not_extendable(sweep: SweepRecord) -> str:
    why = sweep.not_extendable if sweep.phase is Phase.SUCCEEDED else ""
    return f"Can't run more trials: {plain(why)}" if why else ""


def _buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    read = [button(LOGS, "Logs", sweep.id)]
    if sweep.phase.final:
        results = [button(RESULTS, "Results", sweep.id)] if sweep.submitted else []
        more = [_more_button(sweep)] if sweep.phase is Phase.SUCCEEDED and sweep.more_trials else []
        return [*results, *read, *more, button(RERUN, "Rerun", sweep.id, confirm=_confirm_rerun(sweep))]
    if sweep.phase is Phase.HELD:
        return [*hold_buttons(sweep), *read]
    if sweep.phase is Phase.PAUSED:
        read.insert(0, button(RESULTS, "Results", sweep.id))
        return [_resume_button(sweep), *read, cancel_button(sweep.id, is_running=False)]
    if sweep.phase in ACTIVE:
        read = [button(TRIALS, "Trials", sweep.id), *read, *_pause_buttons(sweep)]
    return read if sweep.phase is Phase.STOPPING else [*read, cancel_button(sweep.id)]


def _pause_buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    if sweep.gated or sweep.draining or not sweep.submitted:
        return []
    finish = (
        "No new trials start. Running trials finish; then the GPUs are free until someone resumes the sweep."
    )
    stop = "Stops all running trials and frees their GPUs. Stopped trials aren't run again."
    pause = button(PAUSE, "Pause", sweep.id, confirm=_confirm_pause("Pause this sweep?", finish, "Pause"))
    now = button(PAUSE_NOW, "Pause now", sweep.id, confirm=_confirm_pause("Pause now?", stop, "Pause now"))
    if not sweep.paused_at:
        return [pause, now]
    return [_resume_button(sweep)] if sweep.pause_now else [_resume_button(sweep), now]


def _confirm_pause(title: str, effect: str, verb: str) -> dict[str, Any]:
    words = {"title": title, "text": effect, "confirm": verb, "deny": "Keep running"}
    return {key: plain_text(text) for key, text in words.items()}


def _resume_button(sweep: SweepRecord) -> dict[str, Any]:
    gpus = sweep.plan.trial_gpus * sweep.plan.space.parallel if sweep.plan else 0
    words = {
        "title": "Resume this sweep?",
        "text": f"Starts trials of {sweep.id} again, on up to {counted(gpus, 'GPU')}.",
        "confirm": "Resume",
        "deny": "Stay paused",
    }
    return button(RESUME, "Resume", sweep.id, confirm={key: plain_text(text) for key, text in words.items()})


def _more_button(sweep: SweepRecord) -> dict[str, Any]:
    more, peak = counted(sweep.more_trials, "more trial"), sweep.plan.space.parallel if sweep.plan else 0
    confirm = {
        "title": plain_text("Run more trials?"),
        "text": plain_text(f"Continues {sweep.id} with {more}, up to {peak} in parallel."),
        "confirm": plain_text("Run"),
        "deny": plain_text("Don't run"),
    }
    return button(EXTEND, more, sweep.id, confirm=confirm)


def hold_buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    """Return the choices for a sweep whose first trial failed."""
    total = sweep.plan.space.max_trials if sweep.plan else 0
    confirm = {
        "title": plain_text("Run all trials?"),
        "text": plain_text(f"Starts all {total} trials of {sweep.id}, although the first one failed."),
        "confirm": plain_text("Run all"),
        "deny": plain_text("Stay on hold"),
    }
    return [
        button(OPEN_GATE, "Run all anyway", sweep.id, confirm=confirm),
        button(RETRY_FIRST, "Try again", sweep.id),
        cancel_button(sweep.id, is_running=False),
    ]


def cancel_button(sweep: str, *, is_running: bool = True) -> dict[str, Any]:
    """Return the button. A sweep on hold or paused has no running trials to stop."""
    effect = f"Ends {sweep}: no more trials can start. Results so far are kept."
    if is_running:
        effect = f"Stops all running trials of {sweep} and frees their GPUs. Results so far are kept."
    confirm = {
        "title": plain_text("Cancel this sweep?"),
        "text": plain_text(effect),
        "confirm": plain_text("Cancel sweep"),
        "deny": plain_text("Keep running" if is_running else "Keep sweep"),
        "style": "danger",
    }
    return button(CANCEL, "Cancel sweep", sweep, style="danger", confirm=confirm)


def _confirm_rerun(sweep: SweepRecord) -> dict[str, Any]:
    space = f"seeds {sweep.request.seeds}" if sweep.request.seeds else f"space {sweep.request.space}"
    source = f"the latest commit on {sweep.request.branch[:100]}, {space[:66]}"
    return {
        "title": plain_text("Rerun this sweep?"),
        "text": plain_text(f"Starts a new sweep in your name from {source}."),
        "confirm": plain_text("Rerun"),
        "deny": plain_text("Don't rerun"),
    }
