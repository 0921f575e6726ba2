"""Build the text of each event in a sweep's thread, and of private answers. Pure."""

import re
from collections.abc import Callable

from bot.core.events import Event, EventKind, Result
from bot.core.plan import Role
from bot.core.record import Phase, SweepRecord
from bot.core.space import command_line
from bot.messages.clusters import cluster_chosen
from bot.messages.early_stopping import not_judged_text, savings, stopped_text
from bot.messages.first_trial import health
from bot.messages.parent import display_name, result_text
from bot.messages.queueing import interrupted, queue_changed, runs_again
from bot.messages.recipients import MENTIONING, is_loud, with_owner
from bot.messages.search import search_lost
from bot.messages.seeds import end_text
from bot.slack.mrkdwn import block, code, mention, place, plain, quoted
from bot.text.wording import counted, fitting

MAX_NOTES_TEXT = 2_500  # characters
UNBUILT = {Phase.RECEIVED, Phase.OPENING, Phase.BUILDING}


def event_text(sweep: SweepRecord, event: Event) -> str:
    """Build the text of one event, for the thread or for a private answer."""
    text = EVENTS[event.kind](sweep, event).strip()
    if event.to_user and event.kind in MENTIONING:
        return f"*{sweep.id}* in {place(sweep.requester.channel)}: {text}"
    return with_owner(sweep, text) if is_loud(sweep, event) and event.kind in MENTIONING else text


def _build_started(sweep: SweepRecord, event: Event) -> str:
    recipe = f" {plain(sweep.plan.recipe)}" if sweep.plan else ""
    if event.text == Role.IMAGE:
        return f":package: Building image for {_commit(sweep)}{recipe}."
    return f":package: Building {_commit(sweep)}{recipe}: {plain(event.text)}."


def _build_joined(sweep: SweepRecord, event: Event) -> str:
    what = f"{_commit(sweep)} ({plain(event.text)})"
    return f":package: Waiting for another sweep's build of {what}."


def _build_reused(sweep: SweepRecord, _: Event) -> str:
    return f":package: Reusing the image for {_commit(sweep)} from the registry."


def _image_ready(_: SweepRecord, event: Event) -> str:
    return f":package: Using prebuilt image {code(event.text)}; skipping the build."


def _build_waiting(_: SweepRecord, event: Event) -> str:
    return f":hourglass_flowing_sand: Build not started. {plain(event.text)}\n{block(event.detail)}"


def _start_waiting(_: SweepRecord, event: Event) -> str:
    start = "Trials start once enough nodes are free for all of these sweeps, or once those ahead have ended."
    return f":hourglass_flowing_sand: {plain(event.text)} {start}"


def _build_done(_: SweepRecord, event: Event) -> str:
    built = plain(event.text)
    is_one_image = built.startswith(Role.IMAGE)
    return f":package: {built.capitalize()}." if is_one_image else f":package: Image ready: {built}."


def _build_failed(sweep: SweepRecord, event: Event) -> str:
    return f":x: Image build failed for {_commit(sweep)}. {plain(event.text)}{_log(event)}"


def _submit_refused(_: SweepRecord, event: Event) -> str:
    return f":x: The cluster rejected the {plain(event.text)}:\n{block(event.detail)}"


def _submitted(sweep: SweepRecord, _: Event) -> str:
    if sweep.plan is None:
        return ""
    space = sweep.plan.space
    trials = f"up to {counted(space.max_trials, 'trial')}, {space.parallel_text}"
    first = " One trial runs first; the others start once it is healthy." if sweep.gated else ""
    gpus = f"{sweep.plan.size} each"
    namespace = sweep.plan.experiment_ref.namespace
    where = "" if namespace == sweep.namespace else f" in namespace {code(namespace)}"
    queue, priority = sweep.queue_and_priority
    where += f", queue {code(queue)}" if queue else ""
    where += f", priority {priority}" if priority else ""
    goal = f"{space.goal} {code(space.metric)}"
    notes = fitting((f"• {plain(note)}" for note in space.notes), MAX_NOTES_TEXT)
    unused = "\n".join(["\nNotes:", *notes]) if notes else ""
    goal = f"Goal: {goal}.{first}"
    return f":hourglass_flowing_sand: Submitted to Katib{where}: {trials}, {gpus}. {goal}{unused}"


def _first_running(_: SweepRecord, event: Event) -> str:
    if event.more:
        failed = f"{counted(event.more, 'trial')} failed earlier"
        return f":runner: Trial {code(event.trial)} is running; {failed}."
    return f":runner: First trial is running: {code(event.trial)}."


def _trial_failed(_: SweepRecord, event: Event) -> str:
    return f":warning: Trial {code(event.trial)} failed. {plain(event.text)}{_log(event)}"


def _log(event: Event) -> str:
    return f" Last lines of the log:\n{block(event.detail)}" if event.detail else ""


def _better(sweep: SweepRecord, event: Event) -> str:
    if event.result is None:
        return ""
    best = f"{result_text(sweep, event.result)} ({code(event.result.trial)})"
    return f":chart_with_upwards_trend: New best: {best}"


def _first_failed(_: SweepRecord, event: Event) -> str:
    return f":warning: Trial {code(event.trial)} failed. {plain(event.text)}"


def _failed_alike(_: SweepRecord, event: Event) -> str:
    more = counted(event.more, "more trial")
    if not event.trial:
        return (
            f":warning: {more} failed and {'was' if event.more == 1 else 'were'}n't diagnosed. "
            "Find failed trials with `results`, then run `logs TRIAL`."
        )
    return f":warning: {more} failed the same way as {code(event.trial)}."


def _trial_killed(sweep: SweepRecord, event: Event) -> str:
    """Without a user, Sweepbot itself stopped the trials, and there is one reason for that."""
    trials, whose = f"trial {code(event.trial)}", "Its"
    if event.more:
        trials, whose = f"{code(event.trial)} and {counted(event.more, 'more trial')}", "Their"
    if event.by:
        return f":no_entry_sign: {display_name(sweep, event.by)} cancelled {trials}. {whose} GPUs are free."
    why = "Katib received no metrics after the training ended"
    return f":no_entry_sign: Sweepbot stopped {trials}: {why}. {whose} GPUs are free."


def _trial_restarted(_: SweepRecord, event: Event) -> str:
    more = f" and {counted(event.more, 'more trial')}" if event.more else ""
    why = (
        "The image couldn't be pulled at first, and Katib's metrics collector gave up before the training "
        "started. Katib starts a new pod."
    )
    cause = f"\n{block(event.detail)}" if event.detail else ""
    return f":hourglass_flowing_sand: Trial {code(event.trial)}{more} restarted. {why}{cause}"


def _not_judged(sweep: SweepRecord, _: Event) -> str:
    return not_judged_text(sweep)


def _no_live_values(_: SweepRecord, __: Event) -> str:
    return (
        ":warning: MLflow isn't responding, so live values and curves are missing. The sweep continues, and "
        "live values return when MLflow does."
    )


def _gate_opened(sweep: SweepRecord, event: Event) -> str:
    total = counted(sweep.plan.space.max_trials, "trial") if sweep.plan else "all trials"
    if event.by:
        return f":runner: {display_name(sweep, event.by)} started all trials: {total}."
    return f":runner: First trial {code(event.trial)} is healthy. Starting the others: {total} in total."


def _held(_: SweepRecord, event: Event) -> str:
    return f":warning: On hold: {plain(event.text)}"


def _retried(sweep: SweepRecord, event: Event) -> str:
    return f":hourglass_flowing_sand: {display_name(sweep, event.by)} is retrying the first trial."


def _pausing(sweep: SweepRecord, event: Event) -> str:
    what = "are being stopped" if event.text else "finish"
    user = display_name(sweep, event.by)
    text = f"{user} is pausing this sweep: no new trials start; running trials {what}."
    return f":hourglass_flowing_sand: {text}"


def _paused(sweep: SweepRecord, _: Event) -> str:
    return f":zzz: Paused. All pods are gone and the GPUs are free. To continue: `/sweep resume {sweep.id}`."


def _resumed(sweep: SweepRecord, event: Event) -> str:
    who = f"{display_name(sweep, event.by)} resumed this sweep" if event.by else "This sweep was resumed"
    return f":runner: {who}: trials start again."


def _draining(sweep: SweepRecord, event: Event) -> str:
    what = "no new trials start; running trials finish"
    if not event.by:
        hours = sweep.plan.space.max_hours if sweep.plan else None
        return f":hourglass_flowing_sand: Time limit of {hours or 0:g} h reached: {what}."
    user = display_name(sweep, event.by)
    return f":hourglass_flowing_sand: {user} is draining this sweep: {what}."


def _extended(sweep: SweepRecord, event: Event) -> str:
    total = sweep.plan.space.max_trials if sweep.plan else 0
    who = display_name(sweep, event.by)
    return f":runner: {who} extended this sweep to {counted(total, 'trial')}."


def _trouble(sweep: SweepRecord, event: Event) -> str:
    if event.text:
        return f":warning: {code(sweep.id)} is waiting. {plain(event.text)}"
    return f":warning: {code(sweep.id)} hit an error. Sweepbot keeps retrying:\n{block(event.detail)}"


def _trouble_over(_: SweepRecord, __: Event) -> str:
    return ":white_check_mark: Error resolved; the sweep continues."


def _quarantined(sweep: SweepRecord, event: Event) -> str:
    gpus = "" if sweep.phase in UNBUILT else " Running trials continue and keep their GPUs."
    return (
        f":warning: {mention(sweep.requester.user)} Sweepbot stopped processing {code(sweep.id)}: several "
        f"attempts in a row didn't finish.{gpus} *Fix:* Ask an admin to check the worker's log, then run "
        f"`/sweep release {sweep.id}`. *Cancel* still works. Last error:\n{block(event.detail)}"
    )


def _released(sweep: SweepRecord, _: Event) -> str:
    return f":white_check_mark: Sweepbot is processing {code(sweep.id)} again."


def _restored(sweep: SweepRecord, _: Event) -> str:
    return (
        f":warning: Redis lost its data. {code(sweep.id)} continues from its record in the cluster, but "
        "recent commands and results may be missing. *Fix:* Repeat any command that got no answer."
    )


def _stuck(sweep: SweepRecord, event: Event) -> str:
    force = "`kubectl delete pod NAME --grace-period=0 --force`"
    return (
        f":warning: Pods still terminating: {plain(event.text)}. If a node is down, an admin can remove its "
        f"pods with {force}. The sweep {'is paused' if sweep.paused_at else 'ends'} once they're gone."
    )


def _stopping(sweep: SweepRecord, _: Event) -> str:
    user = display_name(sweep, sweep.cancelled_by or "")
    return f":octagonal_sign: Cancelled by {user}; stopping running trials and builds."


def _succeeded(sweep: SweepRecord, event: Event) -> str:
    saved = f"{text}. " if (text := savings(sweep)) else ""
    return f":white_check_mark: Finished: {quoted(event.text)}. {saved}{_best_command(sweep, event.result)}"


def _failed(sweep: SweepRecord, event: Event) -> str:
    return f":x: Sweep failed: {quoted(event.text)}. {_best_command(sweep, event.result)}"


def _cancelled(sweep: SweepRecord, event: Event) -> str:
    if not sweep.thread:
        who = display_name(sweep, sweep.cancelled_by or "")
        return f":no_entry_sign: Cancelled by {who} before anything ran."
    kept = " Finished trials keep their results in Katib and MLflow." if sweep.submitted else ""
    best = _best_command(sweep, event.result)
    return f":no_entry_sign: Cancelled. All pods are gone and the GPUs are free.{kept} {best}"


def _best_command(sweep: SweepRecord, best: Result | None) -> str:
    if sweep.plan and sweep.plan.space.seed:
        return f"\n{end_text(sweep)}"
    if best is None or sweep.plan is None:
        return ""
    command = block(command_line(sweep.plan.space, best.parameters))
    return f"Best: {result_text(sweep, best)} (trial {code(best.trial)}). Train with these values:\n{command}"


def _commit(sweep: SweepRecord) -> str:
    return code(sweep.plan.commit[:8]) if sweep.plan else ""


def _refused(sweep: SweepRecord, event: Event) -> str:
    """Format places in files as code: `:100:` in plain text would be an emoji."""
    text, places = re.subn(r"^(\S+:\d+): ", r"`\1` ", plain(event.text), flags=re.MULTILINE)
    return f"`{sweep.id}` didn't start." + ("\n" if places else " ") + text


def _not_allowed(_: SweepRecord, event: Event) -> str:
    return event.text


def _health(sweep: SweepRecord, event: Event) -> str:
    return event.text or (health(sweep, sweep.health).text if sweep.health else "")


FROM_RESULTS = {EventKind.RESULTS, EventKind.RESULT_FILES}  # their messages are built by bot.results
EVENTS: dict[EventKind, Callable[[SweepRecord, Event], str]] = {
    EventKind.REFUSED: _refused,
    EventKind.NOT_ALLOWED: _not_allowed,
    EventKind.CLUSTER_CHOSEN: cluster_chosen,
    EventKind.BUILD_STARTED: _build_started,
    EventKind.BUILD_JOINED: _build_joined,
    EventKind.BUILD_REUSED: _build_reused,
    EventKind.IMAGE_READY: _image_ready,
    EventKind.BUILD_WAITING: _build_waiting,
    EventKind.START_WAITING: _start_waiting,
    EventKind.BUILD_DONE: _build_done,
    EventKind.BUILD_FAILED: _build_failed,
    EventKind.SUBMIT_REFUSED: _submit_refused,
    EventKind.SUBMITTED: _submitted,
    EventKind.FIRST_TRIAL_RUNNING: _first_running,
    EventKind.HEALTH: _health,
    EventKind.TRIAL_FAILED: _trial_failed,
    EventKind.BETTER: _better,
    EventKind.FIRST_FAILED: _first_failed,
    EventKind.ALIKE: _failed_alike,
    EventKind.TRIAL_KILLED: _trial_killed,
    EventKind.TRIAL_RESTARTED: _trial_restarted,
    EventKind.STOPPED_EARLY: stopped_text,
    EventKind.INTERRUPTED: interrupted,
    EventKind.RUNS_AGAIN: runs_again,
    EventKind.QUEUE_CHANGED: queue_changed,
    EventKind.NOT_JUDGED: _not_judged,
    EventKind.NO_LIVE_VALUES: _no_live_values,
    EventKind.SEARCH_LOST: search_lost,
    EventKind.GATE_OPENED: _gate_opened,
    EventKind.HELD: _held,
    EventKind.RETRIED: _retried,
    EventKind.PAUSING: _pausing,
    EventKind.PAUSED: _paused,
    EventKind.RESUMED: _resumed,
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
