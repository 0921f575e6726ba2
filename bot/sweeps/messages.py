"""What the bot says: the one parent message of a sweep, and the events in its thread. Pure.

Every message has a plain `text`, which notifications and screen readers use; the parent has blocks besides.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bot.core.events import Event, EventKind, Health, HealthStatus, Progress, Result
from bot.core.plan import Role
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.core.space import command_line
from bot.core.wording import counted
from bot.slack.blocks import actions, button, context, plain_text, section
from bot.slack.message import Message
from bot.slack.mrkdwn import CODE_LIMIT, block, code, direct, link, mention, place, plain, quoted

# The buttons' action_ids
CANCEL, TRIALS, LOGS = "cancel_sweep", "show_trials", "read_logs"
RESULTS, RERUN = "show_results", "rerun_sweep"
BAR = 20  # characters
# What the owner is called for; the health of a first trial besides, once it is a failure.
ENDS = {EventKind.SUCCEEDED, EventKind.FAILED, EventKind.CANCELLED, EventKind.FIRST_FAILED}

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


UNBUILT = {Phase.RECEIVED, Phase.OPENING, Phase.BUILDING}

MOODS = {
    HealthStatus.WAITING: ":hourglass: The first trial isn't running yet.",
    HealthStatus.UNHEALTHY: ":warning: Problem with {trial}.",
    HealthStatus.FAILED: ":warning: {trial} failed.",
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


def _who(sweep: SweepRecord, user: str) -> str:
    """The owner is mentioned where a sweep fails or ends, and nowhere else."""
    owner = sweep.requester
    return f"*{quoted(owner.user_name, 80)}*" if user == owner.user and owner.user_name else mention(user)


def _why(sweep: SweepRecord) -> str:
    if sweep.cancelled_by:
        return f" by {_who(sweep, sweep.cancelled_by)}"
    return f": {quoted(sweep.reason)}" if sweep.reason else ""


def _what(sweep: SweepRecord) -> str:
    request, plan = sweep.request, sweep.plan
    did = "searched" if sweep.phase.final else "searches"
    did = "asked for" if sweep.phase is Phase.REFUSED else did
    who = (
        f"{_who(sweep, sweep.requester.user)} {did} {code(request.space, 100)} on {code(request.branch, 200)}"
    )
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
        lines.append(f"{best}: {_result(sweep, progress.best)}")
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


def _result(sweep: SweepRecord, result: Result) -> str:
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


def event(sweep: SweepRecord, happened: Event) -> str:
    """The words of one event in the thread, or of a private answer."""
    text = EVENTS[happened.kind](sweep, happened).strip()
    if happened.to_user and happened.kind in ENDS:
        return f"*{sweep.id}* in {place(sweep.requester.channel)}: {text}"
    return _called(sweep, text) if is_loud(sweep, happened) and happened.kind in ENDS else text


def is_loud(sweep: SweepRecord, happened: Event) -> bool:
    """For the whole channel, with the owner's name: a first trial that failed, and the end."""
    failed = sweep.health is not None and sweep.health.status is HealthStatus.FAILED
    loud = happened.kind in ENDS or (happened.kind is EventKind.HEALTH and failed)
    own = happened.kind is EventKind.CANCELLED and sweep.cancelled_by == sweep.requester.user
    return loud and not own and not happened.to_user and sweep.request.notify is Notify.CHANNEL


def _called(sweep: SweepRecord, text: str) -> str:
    emoji, _, rest = text.partition(" ")
    return f"{emoji} {mention(sweep.requester.user)} {rest}"


def _build_started(sweep: SweepRecord, happened: Event) -> str:
    recipe = f" {plain(sweep.plan.recipe)}" if sweep.plan else ""
    if happened.text == Role.IMAGE:
        return f":package: Building the image of {_commit(sweep)}{recipe}."
    return f":package: Building {_commit(sweep)}{recipe}: {plain(happened.text)}."


def _build_joined(sweep: SweepRecord, happened: Event) -> str:
    what = f"{_commit(sweep)} ({plain(happened.text)})"
    return f":package: Another sweep is already building {what}; this one waits for the same."


def _build_reused(sweep: SweepRecord, _: Event) -> str:
    return f":recycle: The image of {_commit(sweep)} is already in the registry and is reused."


def _image_ready(_: SweepRecord, happened: Event) -> str:
    return f":package: {code(happened.text)} is used as it is; nothing is built."


def _build_waiting(_: SweepRecord, happened: Event) -> str:
    return f":hourglass: The build hasn't started. {plain(happened.text)}\n{block(happened.detail)}"


def _build_done(_: SweepRecord, happened: Event) -> str:
    made = plain(happened.text)
    return (
        f":package: {made.capitalize()}."
        if made.startswith(Role.IMAGE)
        else f":package: Image ready: {made}."
    )


def _build_failed(sweep: SweepRecord, happened: Event) -> str:
    log = f" Its last lines:\n{block(happened.detail)}" if happened.detail else ""
    return f":x: The image of {_commit(sweep)} could not be built. {plain(happened.text)}{log}"


def _submit_refused(_: SweepRecord, happened: Event) -> str:
    return f":x: The cluster refused the {plain(happened.text)}:\n{block(happened.detail)}"


def _submitted(sweep: SweepRecord, _: Event) -> str:
    if sweep.plan is None:
        return ""
    space = sweep.plan.space
    how = f"{space.parallel} at a time, {counted(sweep.plan.gpus, 'GPU')} each"
    trials = counted(space.max_trials, "trial")
    place = sweep.plan.experiment_ref.namespace
    where = "" if place == sweep.namespace else f", in namespace {code(place)}"
    goal = f"{space.goal} {code(space.metric)}"
    return f":microscope: Submitted to Katib{where}: up to {trials}, {how}, to {goal}."


def _first_running(_: SweepRecord, happened: Event) -> str:
    if happened.more:
        before = f"{counted(happened.more, 'trial')} failed before it"
        return f":seedling: Trial {code(happened.trial)} is running; {before}."
    return f":seedling: The first trial is running ({code(happened.trial)})."


def _trial_failed(_: SweepRecord, happened: Event) -> str:
    log = f" Its last lines:\n{block(happened.detail)}" if happened.detail else ""
    return f":warning: Trial {code(happened.trial)} failed. {plain(happened.text)}{log}"


def _better(sweep: SweepRecord, happened: Event) -> str:
    if happened.result is None:
        return ""
    best = f"{_result(sweep, happened.result)} ({code(happened.result.trial)})"
    return f":chart_with_upwards_trend: Best so far: {best}"


def _first_failed(_: SweepRecord, happened: Event) -> str:
    return f":warning: Trial {code(happened.trial)} failed. {plain(happened.text)}"


def _alike(_: SweepRecord, happened: Event) -> str:
    more = counted(happened.more, "more trial")
    if not happened.trial:
        return f":warning: {more} failed that I did not look into; `logs` and the trial's name show why."
    return f":warning: {more} failed the same way as {code(happened.trial)}."


def _trial_killed(sweep: SweepRecord, happened: Event) -> str:
    if happened.more:
        trials = f"{code(happened.trial)} and {counted(happened.more, 'more trial')}"
        who = _who(sweep, happened.by) if happened.by else "me"
        return f":no_entry_sign: {trials} were ended by {who}; their GPUs are free."
    trial, user = code(happened.trial), _who(sweep, happened.by) if happened.by else "me"
    return f":no_entry_sign: Trial {trial} was ended by {user}; its GPUs are free."


def _trial_restarted(_: SweepRecord, happened: Event) -> str:
    more = f" and {counted(happened.more, 'more trial')}" if happened.more else ""
    why = (
        "The image couldn't be pulled at first, and Katib's metrics collector gave up before the training "
        "started. Katib starts a new pod."
    )
    cause = f"\n{block(happened.detail)}" if happened.detail else ""
    return f":hourglass_flowing_sand: Trial {code(happened.trial)}{more} restarted. {why}{cause}"


def _draining(sweep: SweepRecord, happened: Event) -> str:
    who = _who(sweep, happened.by)
    return f":potable_water: {who} drains this sweep: no more trials start, running ones end."


def _extended(sweep: SweepRecord, happened: Event) -> str:
    total = sweep.plan.space.max_trials if sweep.plan else 0
    return f":heavy_plus_sign: {_who(sweep, happened.by)} extended this sweep to {counted(total, 'trial')}."


def _trouble(sweep: SweepRecord, happened: Event) -> str:
    why = block(happened.detail)
    return f":warning: {code(sweep.id)} can't go on for now; I keep trying. The reason:\n{why}"


def _trouble_over(_: SweepRecord, __: Event) -> str:
    return ":arrow_forward: The trouble is over; this sweep goes on."


def _quarantined(sweep: SweepRecord, happened: Event) -> str:
    gpus = "" if sweep.phase in UNBUILT else " Trials that run go on and keep their GPUs."
    return (
        f":no_entry_sign: {mention(sweep.requester.user)} Sweepbot stopped processing {code(sweep.id)}: "
        f"several attempts in a row did not finish.{gpus} *Fix:* An admin checks the worker's log, then"
        f" types `/sweep release {sweep.id}`. *Cancel* still works. Last cause:\n{block(happened.detail)}"
    )


def _released(sweep: SweepRecord, _: Event) -> str:
    return f":arrow_forward: Sweepbot processes {code(sweep.id)} again."


def _restored(sweep: SweepRecord, _: Event) -> str:
    return (
        f":warning: Redis lost its data. {code(sweep.id)} continues from its record in the cluster, but "
        "questions and results of the last minutes may be missing. *Fix:* Repeat what got no answer."
    )


def _stuck(_: SweepRecord, happened: Event) -> str:
    force = "`kubectl delete pod NAME --grace-period=0 --force`"
    return (
        f":warning: Some pods don't end: {plain(happened.text)}. If their node is dead, an administrator may "
        f"remove them with {force}; I wait until they are gone."
    )


def _stopping(sweep: SweepRecord, _: Event) -> str:
    return f":octagonal_sign: Cancelled by {_who(sweep, sweep.cancelled_by or '')}; ending what runs."


def _succeeded(sweep: SweepRecord, happened: Event) -> str:
    return f":tada: Finished: {quoted(happened.text)}. {_best_command(sweep, happened.result)}"


def _failed(sweep: SweepRecord, happened: Event) -> str:
    return f":x: This sweep failed: {quoted(happened.text)}. {_best_command(sweep, happened.result)}"


def _cancelled(sweep: SweepRecord, happened: Event) -> str:
    if not sweep.thread:
        return f":no_entry_sign: Cancelled by {_who(sweep, sweep.cancelled_by or '')} before anything ran."
    kept = " What the finished trials found stays in Katib and MLflow." if sweep.submitted else ""
    best = _best_command(sweep, happened.result)
    return f":no_entry_sign: Cancelled: its pods are gone and their GPUs free.{kept} {best}"


def _best_command(sweep: SweepRecord, best: Result | None) -> str:
    if best is None or sweep.plan is None:
        return ""
    how = block(command_line(sweep.plan.space, best.parameters))
    return f"Best: {_result(sweep, best)} in trial {code(best.trial)}. To train with it:\n{how}"


def _commit(sweep: SweepRecord) -> str:
    return code(sweep.plan.commit[:8]) if sweep.plan else ""


def _refused(sweep: SweepRecord, happened: Event) -> str:
    """Places in a file are code, one a line; `:100:` in running text would be an emoji."""
    text, places = re.subn(r"^(\S+:\d+): ", r"`\1` ", plain(happened.text), flags=re.MULTILINE)
    return f"`{sweep.id}` was not started." + ("\n" if places else " ") + text


def _said_as_is(_: SweepRecord, happened: Event) -> str:
    return happened.text


def health(sweep: SweepRecord, state: Health) -> Message:
    """The one message about the first trials; it is edited as their state changes."""
    words, lines = _health_words(sweep, state), block(_end(state.detail))
    if state.status is HealthStatus.RECOVERED:
        lines = ""
    text = f"{words}\n{lines}".strip()
    hopeless = state.status in {HealthStatus.FAILED, HealthStatus.UNHEALTHY} and sweep.phase in {
        Phase.PENDING,
        Phase.RUNNING,
    }
    if not hopeless or sweep.cancelled_by:
        return Message(text=text)
    parts = [section(part) for part in (words, lines) if part]
    return Message(text=text, blocks=(*parts, actions(cancel_button(sweep.id))))


def _health_words(sweep: SweepRecord, state: Health) -> str:
    why = plain(state.text)
    if state.status is HealthStatus.RECOVERED:
        trial = f"{code(state.trial)} is well" if state.trial else "all is well"
        return f":white_check_mark: Recovered: {trial}. Before that: {why}"
    trial = f"trial {code(state.trial)}" if state.trial else "the first trial"
    trial = trial if state.status is HealthStatus.UNHEALTHY else f"{trial[0].upper()}{trial[1:]}"
    lines = [f"{MOODS[state.status].format(trial=trial)} {why}"]
    if is_loud(sweep, Event(kind=EventKind.HEALTH)) and EventKind.FIRST_FAILED not in sweep.sent_keys:
        lines = [_called(sweep, lines[0])]
    lines += [f":wrench: {plain(state.fix)}"] if state.fix else []
    lines += [_its_parameters(sweep, state)] if state.parameters else []
    lines += [f"{counted(state.more, 'more trial')} failed the same way."] if state.more else []
    lines += ["Its last lines:"] if state.status is HealthStatus.FAILED and state.detail else []
    return "\n".join(lines)


def _its_parameters(sweep: SweepRecord, state: Health) -> str:
    """Of a failed one as the command that can be tried elsewhere."""
    if state.status is HealthStatus.FAILED and sweep.plan:
        return f"It ran {code(command_line(sweep.plan.space, state.parameters))}"
    return f"The trial's parameters: {flags(state.parameters)}"


def _end(text: str) -> str:
    """As much of a log's end as fits an edit, for which Slack takes 4,000 characters."""
    while len(plain(text)) > CODE_LIMIT:
        text = text.partition("\n")[2] or text[len(text) // 2 :]
    return text


def _health(sweep: SweepRecord, _: Event) -> str:
    return health(sweep, sweep.health).text if sweep.health else ""


EVENTS: dict[EventKind, Callable[[SweepRecord, Event], str]] = {
    EventKind.REFUSED: _refused,
    EventKind.NOT_ALLOWED: _said_as_is,
    EventKind.BUILD_STARTED: _build_started,
    EventKind.BUILD_JOINED: _build_joined,
    EventKind.BUILD_REUSED: _build_reused,
    EventKind.IMAGE_READY: _image_ready,
    EventKind.BUILD_WAITING: _build_waiting,
    EventKind.BUILD_DONE: _build_done,
    EventKind.BUILD_FAILED: _build_failed,
    EventKind.SUBMIT_REFUSED: _submit_refused,
    EventKind.SUBMITTED: _submitted,
    EventKind.FIRST_TRIAL_RUNNING: _first_running,
    EventKind.HEALTH: _health,
    EventKind.TRIAL_FAILED: _trial_failed,
    EventKind.BETTER: _better,
    EventKind.FIRST_FAILED: _first_failed,
    EventKind.ALIKE: _alike,
    EventKind.TRIAL_KILLED: _trial_killed,
    EventKind.TRIAL_RESTARTED: _trial_restarted,
    EventKind.DRAINING: _draining,
    EventKind.EXTENDED: _extended,
    EventKind.TROUBLE: _trouble,
    EventKind.TROUBLE_OVER: _trouble_over,
    EventKind.QUARANTINED: _quarantined,
    EventKind.RELEASED: _released,
    EventKind.RESTORED: _restored,
    EventKind.STUCK: _stuck,
    EventKind.STOPPING: _stopping,
    EventKind.SUCCEEDED: _succeeded,
    EventKind.FAILED: _failed,
    EventKind.CANCELLED: _cancelled,
}
