"""The texts of a plain sweep in its thread: refusal, steps and failure of its build, notes on its space,
cancelled trials, drain, time limit, and the end. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from bot.core.commands import Action
from bot.core.events import Event, Result
from bot.core.plan import Role, SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.space import command_line
from bot.platform.slack.mrkdwn import block, code, mention, place, plain, quoted
from bot.sweep.lifecycle.seeds import end_text
from bot.sweep.model.experiment import OUT_OF_BUDGET
from bot.sweep.model.progress import finished_trials
from bot.sweep.model.texts import (
    TOLD_DIRECTLY,
    TOLD_IN_CHANNEL,
    devices,
    display_name,
    loud,
    name_link,
    result_text,
    with_owner,
)
from bot.text.wording import fitting, listed

MAX_NOTES_TEXT = 2_500  # characters
IDLE = "idle"  # in place of the user who cancelled a trial: Sweepbot stopped it
BUILD_FAILED = "build_failed"  # in `sent_keys`: the thread has the cause, so the end need not repeat it
UNBUILT = {Phase.RECEIVED, Phase.OPENING, Phase.BUILDING}

# Messages that bot.sweep.reports.post_results completes when they are posted.
RESULTS = "results"  # kind of the end of a sweep with trials: has the table of the best ones
RESULT_FILES = Event(kind="result_files")  # the picture, results.csv, and best.yaml


def refused(sweep: SweepRecord, why: str) -> Event:
    """Format places in files as code: `:100:` in plain text would be an emoji."""
    text, places = re.subn(r"^(\S+:\d+): ", r"`\1` ", plain(why), flags=re.MULTILINE)
    return Event(kind="refused", text=f"`{sweep.id}` didn't start." + ("\n" if places else " ") + text)


def build_started(sweep: SweepRecord, what: str) -> str:
    recipe = f" {plain(sweep.plan.recipe)}" if sweep.plan else ""
    if sweep.plan and (branch := sweep.plan.branch):
        place = sweep.plan.branches.index(branch) + 1
        recipe += f" of {code(branch.branch)} ({place} of {len(sweep.plan.branches)})"
    return f"○ Building image{recipe}" if what == Role.IMAGE else f"○ Building{recipe}: {plain(what)}"


def build_joined(what: str) -> str:
    return f"○ Waiting for another sweep's build ({plain(what)})"


IMAGE_REUSED = "✓ Image reused from the registry"
PREBUILT = "✓ Prebuilt image"


def build_waiting(why: str, detail: str) -> Event:
    text = f":hourglass_flowing_sand: Build not started. {plain(why)}\n{block(detail)}"
    return Event(kind="build_waiting", text=text.strip())


BUILD_RUNS = Event(kind="build_runs", text=":package: The build has started.")


def build_done(what: str) -> str:
    built = plain(what)
    is_one_image = built.startswith(Role.IMAGE)
    return f"✓ {built.capitalize()}" if is_one_image else f"✓ Image: {built}"


def build_failed(sweep: SweepRecord, why: str, log: str = "") -> Event:
    lines = f" Last lines of the log:\n{block(log)}" if log else ""
    text = f":x: Image build failed for {_commit(sweep)}. {plain(why)}{lines}"
    if sweep.plan and sweep.plan.branch:
        text += "\nNo trial has started: a comparison needs an image of each branch."
    return Event(kind=BUILD_FAILED, text=text.strip())


def submit_refused(what: str, why: str) -> Event:
    text = f":x: The cluster rejected the {plain(what)}:\n{block(why)}"
    return Event(kind="submit_refused", text=text)


def submitted(sweep: SweepRecord, plan: SweepPlan) -> str:
    """Return the step: where the experiment's trials wait for GPUs."""
    namespace = plan.experiment_ref.namespace
    parts = [
        "✓ Submitted" if namespace == sweep.namespace else f"✓ Submitted to namespace {code(namespace)}",
        f"queue {code(plan.queue)}" if plan.queue else "",
        f"priority {plan.priority}" if plan.priority else "",
    ]
    return ", ".join(filter(None, parts))


def notes(plan: SweepPlan) -> tuple[Event, ...]:
    """Report what isn't used of a space file, and what was changed."""
    lines = fitting((f"• {plain(note)}" for note in plan.space.notes), MAX_NOTES_TEXT)
    text = "\n".join([":warning: Notes on this sweep:", *lines])
    return (Event(kind="notes", text=text),) if lines else ()


def no_objective(sweep: SweepRecord, trial: str, missing: Sequence[str]) -> Event:
    names = listed(map(code, missing))
    text = (
        f":warning: Trial {code(trial)} finished without a finite value of {names}. The search learns only "
    )
    text += "from trials with a value of each objective. *Fix:* Report it where the first objective is "
    text += "reported, or change `objective:`, and rerun the sweep."
    return Event(kind="no_objective", text=with_owner(sweep, text))


def trial_killed(sweep: SweepRecord, trial: str, user: str) -> Event:
    """Without a user, or with IDLE or OUT_OF_BUDGET for one, Sweepbot itself stopped the trial."""
    because = {
        "": ": Katib received no metrics after the training ended",
        IDLE: ": its GPUs were idle, and the warning wasn't snoozed",
        OUT_OF_BUDGET: ": the sweep was over its budget by as much as its longest trial",
    }.get(user, "")
    who = "Sweepbot stopped" if because else f"{display_name(sweep, user)} cancelled"
    held = devices(sweep.plan)
    return Event(
        kind="trial_killed",
        text=f":no_entry_sign: {who} trial {code(trial)}{because}. Its {held} are free.",
        many=f":no_entry_sign: {who} {code(trial)} and {{more}}{because}. Their {held} are free.",
        group=f"trial_killed/{user}",
    )


def first_cancelled(sweep: SweepRecord, trial: str, user: str) -> Event:
    """Report at once that the trial for which all others wait was cancelled; its pod can take a while."""
    who = "Sweepbot" if user == IDLE else display_name(sweep, user)
    text = f"{who} cancelled the first trial, {code(trial)}. Once its pod is gone, the sweep is on hold."
    return Event(kind="first_cancelled", text=f":no_entry_sign: {text}")


def draining(sweep: SweepRecord, user: str) -> Event:
    who = display_name(sweep, user)
    text = f"{who} is draining this sweep: no new trials start; running trials finish."
    return Event(kind="draining", text=f":hourglass_flowing_sand: {text}")


def out_of_time(sweep: SweepRecord) -> Event:
    hours = sweep.plan.space.max_hours if sweep.plan else None
    text = f"Time limit of {hours or 0:g} h reached: no new trials start; running trials finish."
    return Event(kind="draining", text=f":hourglass_flowing_sand: {text}")


def stopping(sweep: SweepRecord) -> Event:
    user = display_name(sweep, sweep.cancelled_by or "")
    text = f":no_entry_sign: Cancelled by {user}; stopping running trials and builds."
    return Event(kind="stopping", text=text)


def ended(sweep: SweepRecord, ending: Phase, saved: str) -> Event:
    """Report the end. `saved`: what the sweep used or saved, as a sentence without a period; "": nothing."""
    best = _best_command(sweep, sweep.progress.best)
    name, saving, shown = name_link(sweep), f"{saved}. " if saved else "", ""
    match ending:
        case Phase.SUCCEEDED:
            text = f":white_check_mark: {name} · Finished: {quoted(sweep.reason)}. {saving}{best}"
        case Phase.FAILED:
            counts = f"{finished_trials(sweep.progress)}. " if sweep.progress.finished else ""
            text = f":x: {name} · {quoted(sweep.reason)}\n{counts}{saving}{best}"
            if sweep.reason == sweep.cause:  # the reply about the trial has it
                shown = f":x: {name} · Failed: {counts}{saving}{best}".strip()
            elif BUILD_FAILED in sweep.sent_keys and ": " in sweep.reason:
                what = quoted(sweep.reason.partition(": ")[0])
                shown = f":x: {name} · {what}. The cause and the log are in this thread."
        case _ if not sweep.thread:
            who = display_name(sweep, sweep.cancelled_by or "")
            text = f":no_entry_sign: {name} · Cancelled by {who} before anything ran."
        case _:
            has_results = sweep.submitted and sweep.progress.succeeded
            kept = " Finished trials keep their results in Katib and MLflow." if has_results else ""
            done = f"Cancelled. All pods are gone and the {devices(sweep.plan)} are free."
            text = f":no_entry_sign: {name} · {done}{kept} {saving}{best}"
    has_more = sweep.submitted or sweep.request.bisects  # the table, or the next step
    event = Event(kind=RESULTS if has_more else str(ending), text=text.strip(), shown=shown)
    by = sweep.cancelled_by if ending is Phase.CANCELLED else ""
    last = [each for each in sweep.audit_log if not each.refused][-1:]
    declined = [each.user for each in last if each.action is Action.DECLINE]
    is_known = sweep.requester.user in {by, *declined}
    if ending is Phase.FAILED and sweep.reason == sweep.cause and TOLD_IN_CHANNEL in sweep.sent_keys:
        is_known = sweep.progress.finished == 1  # the message about that trial came just before
    if not sweep.thread:
        return direct_end(sweep, event, sweep.requester.user, sweep.requester.response_url)
    return event if is_known else loud(sweep, event)


def direct_end(sweep: SweepRecord, event: Event, user: str, response_url: str = "") -> Event:
    """Return an event, such as the end, for one user outside the thread."""
    is_told = TOLD_DIRECTLY in sweep.sent_keys and user == sweep.requester.user
    text = event.shown if event.shown and is_told else event.text
    text = text.replace(f"{mention(sweep.requester.user)} ", "", 1) if event.loud else text
    name = name_link(sweep)
    where = f"{name} in {place(sweep.requester.channel)}"
    if where not in text:
        text = text.replace(name, where, 1) if name in text else f"{where} · {text}"
    direct = replace(event, kind="direct_end", text=text, shown="", loud=False)
    return replace(direct, to_user=user, response_url=response_url)


def _best_command(sweep: SweepRecord, best: Result | None) -> str:
    if sweep.plan and sweep.plan.space.seed:
        return f"\n{end_text(sweep)}"
    if best is None or sweep.plan is None:
        return ""
    command = block(command_line(sweep.plan.space, best.parameters))
    return f"Best: {result_text(sweep, best)} (trial {code(best.trial)}). Train with these values:\n{command}"


def _commit(sweep: SweepRecord) -> str:
    if sweep.plan is None:
        return ""
    branch = f"{code(sweep.plan.branch.branch)} @ " if sweep.plan.branch else ""
    return f"{branch}{code(sweep.plan.commit[:8])}"
