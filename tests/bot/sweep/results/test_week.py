"""The page of a week."""

from dataclasses import replace
from datetime import UTC, date, datetime

from bot.core.record import Phase
from bot.core.space import Goal
from bot.sweep.results.week import week_page, week_sweep
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import a_result, some_results

MONDAY = date(2026, 11, 16)
BEGIN, END = datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)


def sweep(name, value, day, **facts):
    trial = a_result(value=value, gpu_hours=2.0, cost=5.0)
    ended = datetime(2026, 11, day, 12, tzinfo=UTC)
    return week_sweep(some_results(trial, **{"sweep": name, "ended": ended, "owner_name": "ada"} | facts))


def page(*sweeps):
    return week_page(MONDAY, BEGIN, END, sweeps, "$").text


def test_week_counts_its_own_sweeps_only_and_says_what_is_unknown():
    text = page(
        sweep("a", 0.5, 10),
        sweep("b", 0.6, 17),
        sweep("c", None, 22, owner="UGRACE", phase=Phase.FAILED),
        sweep("d", 0.1, 23),
    )
    sums = "2 sweeps by 2 people ended (1 finished and 1 failed); 4 GPU-hours, $10.00."
    assert text == f"*Week of 2026-11-16*: {sums}"
    assert page(sweep("a", 0.5, 10)) == "*Week of 2026-11-16*: no sweeps ended."
    unknown = week_sweep(some_results(a_result(), ended=datetime(2026, 11, 17, tzinfo=UTC)))
    assert "at least 2 GPU-hours" in page(unknown, sweep("b", 0.5, 18))
    trial = a_result(gpu_hours=1.0)
    unpriced = week_sweep(some_results(trial, ended=datetime(2026, 11, 17, tzinfo=UTC)))
    assert "; 3 GPU-hours, at least $5.00." in page(unpriced, sweep("b", 0.5, 18))


def test_largest_improvements_come_first_and_a_worse_week_is_none():
    accuracy = replace(SPACE, name="acc", metric="accuracy", goal=Goal.MAXIMIZE)
    text = page(
        sweep("a", 0.5, 10),
        sweep("b", 0.4, 17),
        sweep("c", 0.5, 11, space=accuracy),
        sweep("d", 0.9, 18, space=accuracy),
    )
    assert text.splitlines()[1:] == [
        "Largest improvements:",
        "• `accuracy` of `acc`: 0.5 → *0.9* (80.0%), by *ada* in `d`",
        "• `val_loss` of `lr`: 0.5 → *0.4* (20.0%), by *ada* in `b`",
    ]
    assert "improvements" not in page(sweep("a", 0.4, 10), sweep("b", 0.5, 17))
