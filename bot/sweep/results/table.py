"""Build Slack tables of trials. Pure.

Slack accepts 20 columns and 10,000 characters in a message's table, and rejects an empty cell.
"""

import json

from bot.core.space import Goal
from bot.platform.slack.blocks import Block, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.ranking import ranked
from bot.text.number_format import short
from bot.text.wording import counted
from k8s.katib.status import TrialState

BEST_SHOWN = 10  # trials
MAX_TABLE_SIZE = 9_000  # characters of its JSON
MAX_COLUMNS = 16  # of metrics and parameters
MAX_CELL_SIZE = 60  # characters
STATES = {
    TrialState.LIVE: "active",
    TrialState.SUCCEEDED: "done",
    TrialState.FAILED: "failed",
    TrialState.NO_METRICS: "no metrics",
    TrialState.KILLED: "stopped",
    TrialState.STOPPED_EARLY: "stopped early",
    TrialState.NOT_STARTED: "not started",
}


def best_table(results: SweepResults) -> Message | None:
    """Build the message with the best trials of an ended sweep; None without a finite objective."""
    finite = [trial for trial in results.trials if trial.value is not None]
    if not finite:
        return None
    best = ranked(results.space.goal, finite, results.best)[:BEST_SHOWN]
    head = _headline(results, len(best))
    lines = [f"{number}. {_line(trial)}" for number, trial in enumerate(best, 1)]
    blocks = (section(head), {"type": "table", "rows": _rows(results, best)}, *_katib_note(results))
    return Message(text="\n".join([head, *lines]), blocks=blocks)


def _headline(results: SweepResults, shown: int) -> str:
    space, total = results.space, len(results.trials) + results.omitted
    which = f"Best {shown} of {total} trials" if total > shown else counted(total, "trial")
    strategy = space.strategies[space.metric]
    better = "higher" if space.goal is Goal.MAXIMIZE else "lower"
    return f"{which} by {code(space.metric)} (each trial's {strategy}; {better} is better):"


def _line(trial: TrialResult) -> str:
    """Write one trial without markup; its parameters are in the table."""
    state = "" if trial.state is TrialState.SUCCEEDED else f", {STATES[trial.state]}"
    return f"{trial.value:.6g} ({code(trial.name)}{state})"


def _katib_note(results: SweepResults) -> list[Block]:
    """Return a note if Katib names another optimum; for seeds there is no best one."""
    katib = results.katib_best
    if not results.best or not katib or katib == results.best:
        return []
    value = next((trial.value for trial in results.trials if trial.name == katib), None)
    shown = "which has no finite value" if value is None else f"with {value:.6g}"
    return [context(f"Katib names {code(katib)} as the optimum, {shown}.")]


def _rows(results: SweepResults, trials: list[TrialResult]) -> list[list[Block]]:
    space = results.space
    names = [parameter.name for parameter in space.parameters][: MAX_COLUMNS - len(space.additional)]
    states = ["state"] if any(t.state is not TrialState.SUCCEEDED for t in trials) else []
    rows = [row(["trial", *space.strategies, *names, *states])]
    room = MAX_TABLE_SIZE - length(rows[0])
    for trial in trials:
        more = [f"{trial.more[n]:.6g}" if n in trial.more else "" for n in space.additional]
        values = (short(trial.parameters.get(name, "")) for name in names)
        state = [STATES[trial.state]] if states else []
        cells = row([_suffix(results, trial), f"{trial.value:.6g}", *more, *values, *state])
        room -= length(cells)
        if room < 0:
            break
        rows.append(cells)
    return rows


def _suffix(results: SweepResults, trial: TrialResult) -> str:
    return trial.name.removeprefix(f"{results.sweep}-")


def row(texts: list[str]) -> list[Block]:
    return [{"type": "raw_text", "text": text[:MAX_CELL_SIZE] or "–"} for text in texts]


def length(cells: list[Block]) -> int:
    return len(json.dumps(cells, ensure_ascii=False)) + 2
