"""Early stopping's decisions, on curves whose right answer can be worked out by hand."""

import math
import random

import pytest

from bot.core.curves import Point
from bot.core.stopping import MAX_RUNGS, Objective, StoppingRule, at_rungs, judge, missing_rungs
from tests.cases import cases

DOWN, UP = Objective(maximize=False, strategy="min"), Objective(maximize=True, strategy="max")
ASHA = StoppingRule(name="asha", grace=1, factor=3)
MEDIAN = StoppingRule(name="median", grace=2, min_trials=3)


def a_curve(*values, start=0.0, every=1):
    return tuple(Point(n * every, value, start + n) for n, value in enumerate(values, 1))


def stopped(rule, objective, curves, rungs=None, stoppable=None):
    _, verdicts = judge(rule, objective, rungs or {}, curves, curves if stoppable is None else stoppable)
    return {verdict.trial: verdict.step for verdict in verdicts}


def in_turn(*values):
    """Curves of one report each, one after another."""
    return {
        name: a_curve(value, start=n)
        for n, (name, value) in enumerate(zip("abcdefghi", values, strict=False))
    }


def test_rungs_are_the_grace_times_powers_of_the_factor():
    assert StoppingRule(name="asha", grace=2, factor=4).rungs[:4] == (2, 8, 32, 128)
    assert StoppingRule(name="median", grace=3, factor=9).rungs[:3] == (3, 6, 12)
    assert missing_rungs(ASHA, {3: {"a": 1.0}}, "a", 10) == [1, 9]
    assert len(missing_rungs(ASHA, {}, "a", 2**62)) == MAX_RUNGS


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((0.1, 0.9), set()),  # fewer than three: no trial is stopped
        ((0.1, 0.2, 0.3), {"c"}),
        ((0.3, 0.2, 0.1), set()),  # those before are not judged again
        ((0.3, 0.3, 0.3), set()),  # equal values go on
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.15), {"c", "d", "e"}),  # of six, two go on
        ((0.1, 0.2, math.nan), {"c"}),
        ((math.nan, math.nan, math.inf, 0.5), set()),
    ],
)
def test_asha_keeps_the_best_of_those_that_came_so_far(values, ends):
    curves = in_turn(*values)
    assert stopped(ASHA, DOWN, curves).keys() == ends
    mirrored = {name: tuple(Point(p.step, -p.value, p.at) for p in c) for name, c in curves.items()}
    assert stopped(ASHA, UP, mirrored).keys() == ends


def test_trial_is_judged_at_each_rung_by_its_value_until_then():
    curves = {
        "a": a_curve(0.5, 0.6, 0.45, start=0),
        "b": a_curve(0.4, 0.2, 0.6, start=10),
        "c": a_curve(0.3, 0.1, 0.9, start=20),
        "d": a_curve(0.2, 0.05, 0.9, start=30),
    }
    assert stopped(ASHA, DOWN, curves) == {}
    latest = Objective(maximize=False, strategy="latest")
    assert stopped(ASHA, latest, curves) == {"b": 3, "c": 3, "d": 3}


@cases("rule", [ASHA, StoppingRule(name="median", grace=1)])
@cases(
    ("values", "since"),
    [
        ((0.4, 0.5, 0.5, 0.5), 1),
        ((0.4, 0.4, 0.4, 0.4), 1),
        ((0.4, 0.3, 0.3, 0.3), 0),  # it improves
        ((0.2, 0.5, 0.5, 0.5), 0),  # nothing is better
        ((math.nan, math.nan, math.nan, math.nan), 1),
    ],
)
def test_stalled_trial_is_stopped_if_another_one_is_better(rule, values, since):
    better = {"a": a_curve(0.9, 0.3, 0.3)}  # read before b reports
    rungs, _ = judge(rule, DOWN, {}, better, {"a"})
    _, verdicts = judge(rule, DOWN, rungs, better | {"b": a_curve(*values, start=10)}, {"b"})
    assert [verdict.stalled_since for verdict in verdicts] == [since] * bool(since)
    assert [verdict.cutoff for verdict in verdicts] == [0.3] * bool(since)


def test_trial_that_stopped_improving_has_stalled_since_the_rung_before():
    curves = {"a": a_curve(0.3), "b": a_curve(0.5, *[0.4] * 8, start=10)}
    _, [verdict] = judge(ASHA, DOWN, {}, curves, {"b"})
    assert (verdict.step, verdict.stalled_since) == (9, 3)


def test_trial_is_not_stalled_at_rungs_of_one_report():
    curves = {"a": a_curve(0.3, every=100), "b": a_curve(0.4, every=100, start=10)}
    assert stopped(ASHA, DOWN, curves) == {}


def test_stopped_trial_does_not_count_at_later_rungs():
    curves = {
        "a": a_curve(0.1, 0.1, 0.1),
        "b": a_curve(0.2, 0.2, 0.15, start=10),
        "c": a_curve(0.3, 0.01, 0.01, start=20),
    }
    rungs, _ = judge(ASHA, DOWN, {}, curves, set(curves))
    assert rungs == {1: {"a": 0.1, "b": 0.2, "c": 0.3}, 3: {"a": 0.1, "b": 0.15}}
    rungs, verdicts = judge(ASHA, DOWN, {}, curves, {"a", "b"})  # c has finished
    assert (rungs[3]["c"], verdicts) == (0.01, ())


def test_report_after_a_rung_counts_for_it():
    curves = {
        name: a_curve(value, every=5, start=n)
        for n, (name, value) in enumerate(zip("abc", (1, 2, 3), strict=True))
    }
    rungs, verdicts = judge(ASHA, DOWN, {}, curves, {"c"})
    assert rungs == {1: {"a": 1, "b": 2, "c": 3}, 3: {"a": 1, "b": 2}}
    assert [(v.trial, v.step, v.cutoff, v.others) for v in verdicts] == [("c", 1, 1, 2)]


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        (((9, 1), (9, 2), (9, 99)), set()),  # too few others
        (((9, 1), (9, 2), (9, 3), (9, 2)), set()),  # equal to the median
        (((9, 1), (9, 2), (9, 3), (9, 2.5)), {"d"}),
        (((9, 2), (9, 3), (9, 4), (9, 1, 9, 9)), set()),  # its best so far counts
        (((9, 1), (9, math.nan), (9, 3), (9, math.nan)), {"d"}),
    ],
)
def test_median_stops_trials_worse_than_half_of_the_others(values, ends):
    curves = {
        name: a_curve(*each, start=10 * n) for n, (name, each) in enumerate(zip("abcd", values, strict=False))
    }
    assert stopped(MEDIAN, DOWN, curves).keys() == ends


def test_decisions_of_the_same_curves_are_the_same_however_often_read():
    draw = random.Random(1)  # noqa: S311
    curves = {}
    for number in range(40):
        floor, start = draw.random(), draw.uniform(0, 30)
        curves[f"t{number}"] = a_curve(*(floor + draw.random() / n for n in range(1, 60)), start=start)
    whole = stopped(ASHA, DOWN, curves)
    rungs, pieces = {}, {}
    for now in range(0, 100, 3):  # a reading every three seconds, in which stopped trials report no more
        seen = {
            name: tuple(p for p in curve if p.at <= now)
            for name, curve in curves.items()
            if name not in pieces
        }
        rungs, verdicts = judge(ASHA, DOWN, rungs, seen, set(seen))
        pieces |= {verdict.trial: verdict.step for verdict in verdicts}
    assert pieces == whole
    assert 20 < len(whole) < 40


def test_trial_recorded_at_a_rung_is_not_judged_there_again():
    curves = in_turn(0.1, 0.2, 0.3)
    rungs, first = judge(ASHA, DOWN, {}, curves, set(curves))
    again, second = judge(ASHA, DOWN, rungs, curves, set(curves))
    assert (len(first), second, again) == (1, (), rungs)


@pytest.mark.parametrize("rule", [ASHA, MEDIAN])
@pytest.mark.parametrize("strategy", ["min", "max", "latest"])
def test_decisions_need_only_the_points_at_the_rungs(rule, strategy):
    chance, objective = random.Random(7), Objective(maximize=False, strategy=strategy)  # noqa: S311
    curves = {
        f"t{n}": a_curve(
            *(chance.choice([chance.random(), math.nan]) for _ in range(81)), start=n, every=1 + n % 3
        )
        for n in range(12)
    }
    short = {name: at_rungs(rule, strategy, curve) for name, curve in curves.items()}
    assert max(map(len, short.values())) <= MAX_RUNGS
    assert judge(rule, objective, {}, short, curves) == judge(rule, objective, {}, curves, curves)
    assert at_rungs(rule, strategy, ()) == ()


def test_rungs_by_default_are_powers_of_three():
    assert StoppingRule(name="asha").rungs[:3] == (1, 3, 9)
