"""Build Slack tables of trials, with their headings: the best ones at a sweep's end, the Pareto front, pairs
of branches; how many rows and columns. Pure.

Slack accepts 20 columns and 10,000 characters in a message's table, and rejects an empty cell.
"""

import json
from collections.abc import Iterable
from itertools import chain

from bot.core.space import Goal, SearchSpace
from bot.platform.slack.blocks import Block, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.pairs import compared, verdict
from bot.sweep.results.ranking import ranked
from bot.text.number_format import short
from bot.text.wording import counted, listed
from k8s.engine import TrialState

BEST_SHOWN = 10  # trials
MAX_TABLE_SIZE = 9_000  # characters of its JSON
MAX_COLUMNS = 16  # of metrics and parameters
MAX_CELL_SIZE = 60  # characters
NO_FRONT = "No trial has a finite value of each objective, so the search had nothing to learn from."
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
    if results.space.pairs:
        return _pairs_table(results)
    best = _front(results) or ranked(results.space.goal, finite, results.best)[:BEST_SHOWN]
    head = _front_headline(results, len(best)) if results.front else _headline(results, len(best))
    others = results.space.goals if results.front else ()
    lines = [f"{number}. {_line(trial, others)}" for number, trial in enumerate(best, 1)]
    notes = [context(NO_FRONT)] if results.space.goals and not results.front else []
    blocks = (section(head), {"type": "table", "rows": _rows(results, best)}, *notes, *_katib_note(results))
    return Message(text="\n".join([head, *lines]), blocks=blocks)


def _pairs_table(results: SweepResults) -> Message:
    """Build the message with the pairs of the branches that were compared: there is no best trial."""
    space, found = results.space, compared(results.space, results.trials)
    head = f"Pairs by {code(space.metric)}, {_better(space.goal)} is better:"
    if found is None:
        text = f"{verdict(space, found)}."
        return Message(text=text, blocks=(section(text),))
    names = [each.name for each in space.passed if space.pairs and each.name != space.pairs.seed]
    names = names[: MAX_COLUMNS - 1]
    lines = (
        [
            *(f"{each.better:.6g}", f"{each.other:.6g}"),
            *(short(each.setting.get(name, "")) for name in names),
            each.seed,
        ]
        for each in found.pairs
    )
    rows = filled([found.better, found.other, *names, "seed"], lines)
    return Message(text=head, blocks=(section(head), {"type": "table", "rows": rows}))


def _headline(results: SweepResults, shown: int) -> str:
    space, total = results.space, len(results.trials) + results.omitted
    which = f"Best {shown} of {total} trials" if total > shown else counted(total, "trial")
    strategy = space.strategies[space.metric]
    first = ", the first objective" if space.goals else ""
    return (
        f"{which} by {code(space.metric)}{first} (each trial's {strategy}; {_better(space.goal)} is better):"
    )


def _front(results: SweepResults) -> list[TrialResult]:
    """Return the trials of the Pareto front; of many, evenly spread ones from the first to the last."""
    by_name = {trial.name: trial for trial in results.trials}
    front = [by_name[name] for name in results.front if name in by_name]
    if (last := len(front) - 1) < BEST_SHOWN:
        return front
    return [front[round(place * last / (BEST_SHOWN - 1))] for place in range(BEST_SHOWN)]


def _front_headline(results: SweepResults, shown: int) -> str:
    space, size = results.space, len(results.front)
    objectives = [
        f"{code(name)} (each trial's {space.strategies[name]}; {_better(goal)} is better)"
        for name, goal in space.objectives.items()
    ]
    part = f", of which {shown} are shown" if size > shown else ""
    which = f"{size} of {counted(len(results.trials) + results.omitted, 'trial')}{part}"
    return f"*Pareto front*: {which}. No trial beats one of these by {listed(objectives)}:"


def _better(goal: Goal) -> str:
    return "higher" if goal is Goal.MAXIMIZE else "lower"


def _line(trial: TrialResult, others: Iterable[str]) -> str:
    """Write one trial's objectives without markup; its parameters are in the table."""
    values = ", ".join(
        f"{value:.6g}" for value in (trial.value, *map(trial.more.get, others)) if value is not None
    )
    state = "" if trial.state is TrialState.SUCCEEDED else f", {STATES[trial.state]}"
    return f"{values} ({code(trial.name)}{state})"


def _katib_note(results: SweepResults) -> list[Block]:
    """Return a note if Katib names another optimum; for seeds there is no best one."""
    katib = results.katib_best
    if not results.best or not katib or katib == results.best:
        return []
    value = next((trial.value for trial in results.trials if trial.name == katib), None)
    shown = "which has no finite value" if value is None else f"with {value:.6g}"
    return [context(f"Katib names {code(katib)} as the optimum, {shown}.")]


def _rows(results: SweepResults, trials: list[TrialResult]) -> list[list[Block]]:
    names = parameter_columns(results.space)
    states = ["state"] if any(t.state is not TrialState.SUCCEEDED for t in trials) else []
    lines = (
        [
            each.name.removeprefix(f"{results.sweep}-"),
            *trial_cells(results, each),
            *([STATES[each.state]] if states else []),
        ]
        for each in trials
    )
    return filled(["trial", *results.space.strategies, *names, *states], lines)


def parameter_columns(space: SearchSpace) -> list[str]:
    return [parameter.name for parameter in space.parameters][: MAX_COLUMNS - len(space.additional)]


def trial_cells(results: SweepResults, trial: TrialResult) -> list[str]:
    """Return a trial's metrics, then its parameters, as in `strategies` and `parameter_columns`."""
    space = results.space
    metrics = [trial.value, *map(trial.more.get, space.additional)]
    parameters = [short(trial.parameters.get(name, "")) for name in parameter_columns(space)]
    return ["" if value is None else f"{value:.6g}" for value in metrics] + parameters


def filled(head: list[str], lines: Iterable[list[str]]) -> list[list[Block]]:
    """Return the rows of a table, as many as Slack accepts."""
    return fitting(row(texts) for texts in chain([head], lines))


def fitting(rows: Iterable[list[Block]]) -> list[list[Block]]:
    """Return the first rows, as many as Slack accepts."""
    found, room = list[list[Block]](), MAX_TABLE_SIZE
    for cells in rows:
        room -= len(json.dumps(cells, ensure_ascii=False)) + 2
        if room < 0:
            break
        found.append(cells)
    return found


def row(texts: list[str]) -> list[Block]:
    return [{"type": "raw_text", "text": text[:MAX_CELL_SIZE] or "–"} for text in texts]
