"""The table of the best trials in a sweep's thread."""

import json
from dataclasses import replace

import pytest

from bot.core.space import Goal
from bot.sweep.results.table import MAX_TABLE_SIZE, best_table
from k8s.engine import TrialState
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import SWEEP, a_result, some_results


def rows(message):
    return [[cell["text"] for cell in row] for row in message.blocks[1]["rows"]]


def test_table_has_the_ten_best_and_names_what_did_not_finish():
    trials = [a_result(f"t{n:02}", n / 100) for n in range(24, 0, -1)]
    message = best_table(some_results(*trials, best=f"{SWEEP}-t01"))
    assert message.text.startswith(
        "Best 10 of 24 trials by `val_loss` (each trial's min; lower is better):\n1. 0.01 (`lr-"
    )
    assert rows(message)[:2] == [
        ["trial", "val_loss", "lr", "layers", "optimizer"],
        ["t01", "0.01", "0.01", "2", "adam"],
    ]
    assert [row[0] for row in rows(message)[1:]] == [f"t{n:02}" for n in range(1, 11)]
    message = best_table(some_results(a_result(), a_result("t2", 0.6, TrialState.STOPPED_EARLY)))
    assert [row[-1] for row in rows(message)] == ["state", "done", "stopped early"]
    assert "0.6 (`lr-brave-otter-t2`, stopped early)" in message.text
    assert best_table(some_results(a_result("t1", None))) is None


@pytest.mark.parametrize(
    ("katib", "note"),
    [
        ("t1", ""),
        ("", ""),
        ("t2", "with 0.7."),
        ("t3", "which has no finite value."),
        ("t9", "no finite value."),
    ],
)
def test_table_shows_katibs_optimum_where_it_differs(katib, note):
    trials = (a_result("t1"), a_result("t2", 0.7), a_result("t3", None))
    katib_best = f"{SWEEP}-{katib}" if katib else ""
    message = best_table(some_results(*trials, best=f"{SWEEP}-t1", katib_best=katib_best))
    notes = [block["elements"][0]["text"] for block in message.blocks[2:]]
    assert [each.endswith(note) for each in notes] == ([True] if note else [])


def test_hostile_values_stay_within_slacks_limits():
    names = [f"p{number}{'x' * 200}" for number in range(40)]
    parameters = tuple(replace(SPACE.parameters[2], name=name) for name in names)
    space = replace(SPACE, parameters=parameters, goal=Goal.MAXIMIZE, max_trials=50)
    trials = [a_result(f"t{n}", 1e308, parameters=dict.fromkeys(names, "v" * 500)) for n in range(50)]
    message = best_table(some_results(*trials, space=space))
    table = message.blocks[1]
    assert len(json.dumps(table, ensure_ascii=False)) < MAX_TABLE_SIZE + 100
    assert all(cell["text"] and len(row) <= 20 for row in table["rows"] for cell in row)


TWO = replace(SPACE, additional=("latency",), goals={"latency": Goal.MAXIMIZE})


def test_table_of_several_objectives_is_the_pareto_front_or_by_the_first():
    trials = [a_result(f"t{n}", n / 10, more={"latency": float(n)}) for n in range(1, 4)]
    message = best_table(some_results(*trials, space=TWO, front=(trials[0].name, trials[2].name)))
    assert message.text.splitlines()[0] == (
        "*Pareto front*: 2 of 3 trials. No trial beats one of these by `val_loss` (each trial's min; "
        "lower is better) and `latency` (each trial's max; higher is better):"
    )
    assert message.text.splitlines()[2] == "2. 0.3, 3 (`lr-brave-otter-t3`)"
    assert [each[:3] for each in rows(message)] == [
        ["trial", "val_loss", "latency"],
        ["t1", "0.1", "1"],
        ["t3", "0.3", "3"],
    ]
    trials = [a_result(f"t{n:02}", n / 100, more={"latency": float(n)}) for n in range(30)]
    message = best_table(some_results(*trials, space=TWO, front=tuple(each.name for each in trials)))
    assert message.text.startswith("*Pareto front*: 30 of 30 trials, of which 10 are shown. ")
    shown = [each[0] for each in rows(message)[1:]]
    assert (shown[0], shown[-1], len(set(shown))) == ("t00", "t29", 10)
    message = best_table(some_results(a_result("t1"), a_result("t2", 0.6), space=TWO))
    assert message.text.startswith("2 trials by `val_loss`, the first objective (each trial's min; lower")
    assert "No trial has a finite value of each objective" in message.blocks[2]["elements"][0]["text"]
