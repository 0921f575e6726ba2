"""Build the text of each event in a sweep's thread, and of private answers. Pure."""

import re
from collections.abc import Callable

from bot.core.events import Event, EventKind, Result
from bot.core.plan import Role
from bot.core.record import Phase, SweepRecord
from bot.core.space import command_line
from bot.core.wording import counted
from bot.slack.mrkdwn import block, code, mention, place, plain, quoted
from bot.sweeps.first_trial_message import health
from bot.sweeps.parent_message import display_name, result_text
from bot.sweeps.recipients import ENDS, is_loud, with_owner

UNBUILT = {Phase.RECEIVED, Phase.OPENING, Phase.BUILDING}


def event(sweep: SweepRecord, happened: Event) -> str:
    """The words of one event in the thread, or of a private answer."""
    text = EVENTS[happened.kind](sweep, happened).strip()
    if happened.to_user and happened.kind in ENDS:
        return f"*{sweep.id}* in {place(sweep.requester.channel)}: {text}"
    return with_owner(sweep, text) if is_loud(sweep, happened) and happened.kind in ENDS else text


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
    best = f"{result_text(sweep, happened.result)} ({code(happened.result.trial)})"
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
        who = display_name(sweep, happened.by) if happened.by else "me"
        return f":no_entry_sign: {trials} were ended by {who}; their GPUs are free."
    trial, user = code(happened.trial), display_name(sweep, happened.by) if happened.by else "me"
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
    who = display_name(sweep, happened.by)
    return f":potable_water: {who} drains this sweep: no more trials start, running ones end."


def _extended(sweep: SweepRecord, happened: Event) -> str:
    total = sweep.plan.space.max_trials if sweep.plan else 0
    who = display_name(sweep, happened.by)
    return f":heavy_plus_sign: {who} extended this sweep to {counted(total, 'trial')}."


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
    return f":octagonal_sign: Cancelled by {display_name(sweep, sweep.cancelled_by or '')}; ending what runs."


def _succeeded(sweep: SweepRecord, happened: Event) -> str:
    return f":tada: Finished: {quoted(happened.text)}. {_best_command(sweep, happened.result)}"


def _failed(sweep: SweepRecord, happened: Event) -> str:
    return f":x: This sweep failed: {quoted(happened.text)}. {_best_command(sweep, happened.result)}"


def _cancelled(sweep: SweepRecord, happened: Event) -> str:
    if not sweep.thread:
        who = display_name(sweep, sweep.cancelled_by or "")
        return f":no_entry_sign: Cancelled by {who} before anything ran."
    kept = " What the finished trials found stays in Katib and MLflow." if sweep.submitted else ""
    best = _best_command(sweep, happened.result)
    return f":no_entry_sign: Cancelled: its pods are gone and their GPUs free.{kept} {best}"


def _best_command(sweep: SweepRecord, best: Result | None) -> str:
    if best is None or sweep.plan is None:
        return ""
    how = block(command_line(sweep.plan.space, best.parameters))
    return f"Best: {result_text(sweep, best)} in trial {code(best.trial)}. To train with it:\n{how}"


def _commit(sweep: SweepRecord) -> str:
    return code(sweep.plan.commit[:8]) if sweep.plan else ""


def _refused(sweep: SweepRecord, happened: Event) -> str:
    """Places in a file are code, one a line; `:100:` in running text would be an emoji."""
    text, places = re.subn(r"^(\S+:\d+): ", r"`\1` ", plain(happened.text), flags=re.MULTILINE)
    return f"`{sweep.id}` was not started." + ("\n" if places else " ") + text


def _said_as_is(_: SweepRecord, happened: Event) -> str:
    return happened.text


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
