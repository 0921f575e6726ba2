"""What people hear when they ask about sweeps: a list, a status, results, logs, the running trials. Pure.

Slack takes 13,000 characters in a message's blocks and 100 rows in its table; what does not fit is in a file.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from bot.core.commands import Action, AuditEntry
from bot.core.events import Result
from bot.core.numbers import as_csv
from bot.core.record import Phase, SweepRecord
from bot.core.space import Goal, SearchSpace
from bot.core.sweep_summary import Entry
from bot.core.wording import counted, fitting
from bot.slack.blocks import Block, View, button, context, modal, section
from bot.slack.message import Message
from bot.slack.mrkdwn import block, code, mention, place, quoted
from bot.sweeps.parent_message import PHASES, flags, short, summary
from k8s.katib.status import Trial, TrialState

END = "end_trial"  # the button's action_id
LISTED = 25
ENTRIES = 12  # that a status tells
TEXT = 3_900  # characters
TABLE = 9_000  # characters of its JSON
COLUMNS = 16
CELL = 60  # characters
SHOWN = 40  # trials in the modal
BEST = 5  # in the plain form of results
DONE = {
    Action.LAUNCH: "launched",
    Action.CANCEL: "cancelled",
    Action.DRAIN: "drained",
    Action.KILL: "ended a trial of",
    Action.EXTEND: "extended",
    Action.RERUN: "repeated",
    Action.KEEP: "kept the idle GPUs of",
}
STATES = {
    TrialState.LIVE: "not ended",
    TrialState.SUCCEEDED: "done",
    TrialState.FAILED: "failed",
    TrialState.NO_METRICS: "no metrics",
    TrialState.KILLED: "ended early",
}


def listing(sweeps: Sequence[Entry]) -> str:
    if not sweeps:
        return "No matching sweeps. Start one with `/sweep`."
    more = len(sweeps) - LISTED
    lines = [_line(sweep) for sweep in sweeps[:LISTED]]
    return "\n".join(lines + ([f"and {more} more"] if more > 0 else []))


def _line(sweep: Entry) -> str:
    emoji, phase = PHASES[sweep.phase]
    parts = [f"{emoji} *{sweep.id}*", phase]
    if sweep.trials:
        parts.append(f"{sweep.finished} of {counted(sweep.trials, 'trial')}")
    if sweep.best is not None:
        parts.append(f"best {sweep.best:.6g}")
    who = quoted(sweep.user_name or sweep.user, 80)
    return " · ".join([*parts, f"{who} in {place(sweep.channel)}"])


def status(sweep: SweepRecord) -> str:
    began = "Requested" if sweep.phase is Phase.REFUSED else "Started"
    how = "ended" if sweep.phase.final else "in this phase since"
    lines = [summary(sweep), f"{began} {_moment(sweep.created)}, {how} {_moment(sweep.since)}."]
    if sweep.drained_by and not sweep.phase.final:
        lines.append("It drains: no more trials start.")
    told = [_deed(entry) for entry in sweep.audit_log[-ENTRIES:]]
    return "\n".join(fitting(lines + (["*What people did:*", *told] if told else []), TEXT))


def _deed(entry: AuditEntry) -> str:
    about = f" ({quoted(entry.about, 80)})" if entry.about else ""
    did = (
        f"wanted to {entry.action} it{about} and was refused"
        if entry.refused
        else f"{DONE.get(entry.action, f'wanted to {entry.action}')} it{about}"
    )
    return f"• {_moment(entry.at)} {quoted(entry.name, 80) or mention(entry.user)} {did}"


def _moment(at: datetime) -> str:
    """As each reader's own clock shows it."""
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{at:%Y-%m-%d %H:%M} UTC>"


def results(sweep: SweepRecord, space: SearchSpace, trials: Iterable[Trial]) -> tuple[Message, str]:
    """The trials as a table, best first; and all of them as CSV, "" when Katib has none any more."""
    ranked = _ranked(space, trials, sweep.progress.best)
    head = f"{summary(sweep)}\n"
    if not ranked:
        return Message(text=f"{head}Katib has no trials of it{' any more' if sweep.submitted else ''}."), ""
    best = [_ranked_line(space, trial) for trial in ranked[:BEST] if trial.value is not None]
    rows = _rows(sweep, space, ranked)
    left = len(ranked) - len(rows) + 1
    below = [context(f"{counted(left, 'more trial')} in the file.")] if left > 0 else []
    blocks = (section(head), {"type": "table", "rows": rows}, *below)
    return Message(text="\n".join(fitting([*head.splitlines(), *best], TEXT)), blocks=blocks), _csv(
        space, ranked
    )


def _ranked(space: SearchSpace, trials: Iterable[Trial], best: Result | None) -> list[Trial]:
    """Of equal ones that first which the thread names as the best."""
    sign, told = -1 if space.goal is Goal.MAXIMIZE else 1, best.trial if best else ""
    return sorted(trials, key=lambda t: (t.value is None, sign * (t.value or 0.0), t.name != told, t.name))


def _ranked_line(space: SearchSpace, trial: Trial) -> str:
    value = f"{code(space.metric)} {trial.value:.6g}"
    return f"{value} in {code(trial.name)} with {flags(trial.parameters)}"


def _rows(sweep: SweepRecord, space: SearchSpace, ranked: list[Trial]) -> list[list[Block]]:
    names = [parameter.name for parameter in space.parameters][:COLUMNS]
    rows = [_row(["trial", "state", space.metric, *names])]
    room = TABLE - _length(rows[0])
    for trial in ranked[:99]:
        value = "" if trial.value is None else f"{trial.value:.6g}"
        name = trial.name.removeprefix(f"{sweep.id}-")
        row = _row([name, STATES[trial.state], value, *(short(trial.parameters.get(n, "")) for n in names)])
        room -= _length(row)
        if room < 0:
            break
        rows.append(row)
    return rows


def _row(texts: list[str]) -> list[Block]:
    """A cell may not be empty."""
    return [{"type": "raw_text", "text": text[:CELL] or "–"} for text in texts]


def _length(row: list[Block]) -> int:
    return len(json.dumps(row, ensure_ascii=False)) + 2


def _csv(space: SearchSpace, ranked: list[Trial]) -> str:
    """Values as texts: none loses a digit."""
    names = [parameter.name for parameter in space.parameters]
    rows = [["trial", "state", space.metric, *names]]
    for trial in ranked:
        value = "" if trial.value is None else repr(trial.value)
        rows.append([trial.name, STATES[trial.state], value, *(trial.parameters.get(n, "") for n in names)])
    return as_csv(rows)


def with_note(message: Message | str, note: str) -> Message:
    """The same with a last line."""
    text, blocks = (message, ()) if isinstance(message, str) else (message.text, message.blocks)
    return Message(text=f"{text}\n{note}", blocks=(*blocks, context(note)) if blocks else ())


def logs(what: str, log: str) -> str:
    if not log:
        return f"{what[:1].upper()}{what[1:]} has no log yet."
    return f":page_facing_up: The log of {what}, its end:\n{block(log)}"


def running_trials(sweep: SweepRecord, live: Sequence[Trial], running: set[str]) -> View:
    """A modal: what runs now, with its values, and a button to end it."""
    blocks = [_trial(sweep, trial, trial.name in running) for trial in live[:SHOWN]]
    left = len(live) - SHOWN
    blocks += (
        [context(f"and {left} more: `/sweep cancel {sweep.id} TRIAL` ends one of them")] if left > 0 else []
    )
    none = section("No trials are running or waiting.")
    above = section(summary(sweep))
    return modal("Trials", [above, *(blocks or [none])], private_metadata=sweep.id)


def _trial(sweep: SweepRecord, trial: Trial, runs: bool) -> Block:
    short_name = trial.name.removeprefix(f"{sweep.id}-")
    ending = trial.name in sweep.to_kill
    state = "is being ended" if ending else "runs" if runs else "is pending"
    text = f"*{quoted(short_name)}* {state}\n{flags(trial.parameters)}"
    if ending:
        return section(text)
    confirm = {
        "title": {"type": "plain_text", "text": "End this trial?"},
        "text": {"type": "plain_text", "text": f"{short_name} is ended and its GPUs freed."[:300]},
        "confirm": {"type": "plain_text", "text": "End trial"},
        "deny": {"type": "plain_text", "text": "Keep it"},
        "style": "danger",
    }
    press = button(END, "Cancel", f"{sweep.id} {trial.name}", style="danger", confirm=confirm)
    return section(text, press)


def loading(text: str) -> View:
    return modal("Trials", [section(text)])
