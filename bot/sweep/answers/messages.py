"""Build the replies of `/sweep list`, `status` with its history, `results`, and `logs`, and the modal of
active trials with their Cancel buttons. Pure.

Slack accepts 13,000 characters in a message's blocks and 100 rows in its table; the rest goes into a file.
"""

from collections.abc import Sequence

from bot.core.commands import Action, AuditEntry
from bot.core.record import Phase, SweepRecord
from bot.core.sweep_summary import SweepSummary
from bot.platform.slack.blocks import Block, View, button, context, modal, plain_text, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import block, code, local_time, mention, place, quoted
from bot.sweep.decisions.parent_message import PHASES, summary
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import devices, flags, name_link
from bot.sweep.results.csv_file import ordered
from bot.sweep.results.models import SweepResults
from bot.sweep.results.table import STATES, filled, parameter_columns, trial_cells
from bot.text.wording import counted, fitting
from k8s.engine import Trial

CANCELLING = "cancelling"  # a state of a trial
CANCEL_TRIAL = "end_trial"  # the button's action_id
AUDIT_SHOWN = 12  # entries in a status
MAX_REPLY = 3_900  # characters
MAX_CAUSE_LISTED = 100  # characters
MAX_TRIALS_SHOWN = 40  # in the modal
BEST_SHOWN = 5  # trials in the plain text of results
HOLDS = {"nodes": "Waiting for nodes", "approval": "Waiting for approval"}  # of sweeps that wait to start
# Each action in a sweep's history: performed, and denied
HISTORY_VERBS = {
    Action.LAUNCH: ("started the sweep", "start"),
    Action.CANCEL: ("cancelled the sweep", "cancel"),
    Action.DRAIN: ("drained the sweep", "drain"),
    Action.KILL: ("cancelled trial", "cancel trial"),
    Action.STOP_IDLE: ("stopped idle trial", "stop idle trial"),
    Action.EXTEND: ("extended the sweep to", "extend to"),
    Action.BUDGET: ("raised the budget to", "raise the budget to"),
    Action.APPROVE: ("approved the sweep", "approve"),
    Action.DECLINE: ("declined the sweep", "decline"),
    Action.PAUSE: ("paused the sweep", "pause"),
    Action.PAUSE_NOW: ("paused the sweep and stopped its trials", "pause now"),
    Action.RESUME: ("resumed the sweep", "resume"),
    Action.OPEN: ("started all trials", "start all trials"),
    Action.RETRY: ("retried the first trial", "retry the first trial"),
    Action.RAISE: ("raised the priority", "raise the priority"),
    Action.LOWER: ("lowered the priority", "lower the priority"),
    Action.MOVE: ("moved the sweep to queue", "move to queue"),
    Action.HOLD: ("held the waiting trials", "hold the waiting trials"),
    Action.UNHOLD: ("released the waiting trials", "release the waiting trials"),
}


def listing(sweeps: Sequence[SweepSummary]) -> str:
    if not sweeps:
        return "No matching sweeps. Start one with `/sweep`."
    return "\n".join(fitting(sweeps, MAX_REPLY, _line))


def _line(sweep: SweepSummary) -> str:
    emoji, phase = PHASES[sweep.phase]
    is_live = sweep.live and sweep.phase is not Phase.STOPPING
    if is_live and (waits := [HOLDS[each] for each in sweep.holds if each in HOLDS]):
        emoji, phase = ":hourglass_flowing_sand:", waits[0]
    if sweep.cause:
        cause = quoted(sweep.cause, MAX_CAUSE_LISTED)
        phase = cause if sweep.phase is Phase.FAILED else f"{phase}: {cause}"
    parts = [f"{emoji} {name_link(sweep)}", phase]
    if sweep.trials:
        parts.append(f"{sweep.finished} of {counted(sweep.trials, 'trial')}")
    if sweep.best is not None:
        parts.append(f"best {sweep.best:.6g}")
    who = quoted(sweep.user_name or sweep.user, 80)
    return " · ".join([*parts, f"{who} in {place(sweep.channel)}"])


def status(sweep: SweepRecord) -> str:
    began = "Requested" if sweep.phase is Phase.REFUSED else "Started"
    since = "ended" if sweep.phase.final else "in this phase since"
    lines = [summary(sweep), f"{began} {local_time(sweep.created)} · {since} {local_time(sweep.since)}"]
    if sweep.draining and not sweep.phase.final:
        lines.append("Draining: no new trials start.")
    history = [_history_line(entry) for entry in sweep.audit_log[-AUDIT_SHOWN:]]
    return "\n".join(fitting(lines + (["*History*", *history] if history else []), MAX_REPLY))


def _history_line(entry: AuditEntry) -> str:
    performed, denied = HISTORY_VERBS.get(entry.action, (entry.action.value, entry.action.value))
    about = f" {quoted(entry.about, 80)}" if entry.about else ""
    user = quoted(entry.name, 80) or mention(entry.user)
    text = f"{user}: {denied}{about} denied" if entry.refused else f"{user} {performed}{about}"
    via = f" by the {entry.via}" if entry.via else ""
    return f"• {local_time(entry.at)} {text}{via}"


def results(sweep: SweepRecord, found: SweepResults) -> Message:
    """Return a table of the trials, best first or by seed; the rest is in the CSV."""
    head, trials = f"{summary(sweep)}\n", ordered(found)
    metric = code(found.space.metric)
    best = [
        f"{metric} {trial.value:.6g} in {code(trial.name)} with {flags(trial.parameters)}"
        for trial in trials[:BEST_SHOWN]
        if trial.value is not None
    ]
    names = parameter_columns(found.space)
    lines = (
        [each.name.removeprefix(f"{found.sweep}-"), STATES[each.state], *trial_cells(found, each)]
        for each in trials[:99]
    )
    rows = filled(["trial", "state", *found.space.strategies, *names], lines)
    left = len(trials) - len(rows) + 1
    below = [context(f"{counted(left, 'more trial')} in the CSV.")] if left > 0 else []
    blocks = (section(head), {"type": "table", "rows": rows}, *below)
    return Message(text="\n".join(fitting([*head.splitlines(), *best], MAX_REPLY)), blocks=blocks)


def with_note(message: Message | str, note: str) -> Message | str:
    """Append a line to the text, and a context block to the blocks; nothing if it is empty."""
    if not note:
        return message
    text, blocks = (message, ()) if isinstance(message, str) else (message.text, message.blocks)
    return Message(text=f"{text}\n{note}", blocks=(*blocks, context(note)) if blocks else ())


def logs(source: str, log: str) -> str:
    if not log:
        return f"No log yet for {source}."
    return f"Log of {source} (last lines):\n{block(log)}"


def running_trials(sweep: SweepRecord, seen: Observation) -> View:
    """Build a modal of the active trials with their parameters, and a button to cancel each."""
    blocks = [_trial(sweep, trial, _state(sweep, trial, seen)) for trial in seen.live[:MAX_TRIALS_SHOWN]]
    left = len(seen.live) - MAX_TRIALS_SHOWN
    note = f"{left} more not shown. Cancel one with `/sweep cancel {sweep.id} TRIAL`"
    blocks += [context(note)] if left > 0 else []
    none = section("No active trials.")
    above = section(summary(sweep))
    return modal("Trials", [above, *(blocks or [none])], private_metadata=sweep.id)


def _state(sweep: SweepRecord, trial: Trial, seen: Observation) -> str:
    if trial.name in sweep.to_kill:
        return CANCELLING
    if trial.name in seen.running:
        return "running"
    return "finishing" if trial.name in seen.finishing else "waiting to start"


def _trial(sweep: SweepRecord, trial: Trial, state: str) -> Block:
    short_name = trial.name.removeprefix(f"{sweep.id}-")
    text = f"*{quoted(short_name)}* · {state}\n{flags(trial.parameters)}"
    if state == CANCELLING:
        return section(text)
    effect = f"Stops {short_name[:200]} and frees its {devices(sweep.plan)}. The sweep continues."
    confirm = {
        "title": plain_text("Cancel this trial?"),
        "text": plain_text(effect),
        "confirm": plain_text("Cancel trial"),
        "deny": plain_text("Keep running"),
        "style": "danger",
    }
    cancel = button(CANCEL_TRIAL, "Cancel", f"{sweep.id} {trial.name}", style="danger", confirm=confirm)
    return section(text, cancel)


def loading(text: str) -> View:
    return modal("Trials", [section(text)])
