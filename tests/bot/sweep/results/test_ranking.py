"""The best trial: by finite values and the goal; the reported one of equal trials."""

import itertools

import pytest

from bot.core.space import Goal
from bot.sweep.results.ranking import LIMIT, best, number, pareto_front, ranked
from k8s.engine import TrialState
from k8s.katib.status import read_trial
from tests.bot.sweep.results.factories import a_result


def names(trials):
    return [trial.name.removeprefix("lr-brave-otter-") for trial in trials]


@pytest.mark.parametrize(("goal", "first"), [(Goal.MINIMIZE, "low"), (Goal.MAXIMIZE, "high")])
def test_best_of_each_goal_is_the_same_in_every_order(goal, first):
    trials = [a_result("low", -1e308), a_result("high", 1e308), a_result("zero", 0.0), a_result("none", None)]
    for order in itertools.permutations(trials):
        assert names(ranked(goal, order))[0] == first
        assert names(ranked(goal, order))[-1] == "none"


def test_best_of_equal_or_stopped_trials_is_by_report_and_name_and_none_without_a_value():
    equal = [a_result("b"), a_result("a"), a_result("c")]
    assert names([best(Goal.MINIMIZE, equal)]) == ["a"]
    assert names([best(Goal.MINIMIZE, equal, equal[2].name)]) == ["c"]
    stopped = a_result("early", 0.1, TrialState.STOPPED_EARLY)
    killed = a_result("killed", 0.05, TrialState.KILLED)
    assert names(ranked(Goal.MINIMIZE, [a_result("done", 0.2), stopped, killed])) == [
        "killed",
        "early",
        "done",
    ]
    assert best(Goal.MINIMIZE, [a_result("t1", None), a_result("t2", None)]) is None


@pytest.mark.parametrize(("strategy", "value"), [("min", 0.1), ("max", 0.9), ("latest", 0.4)])
def test_value_of_a_trial_follows_the_strategy(strategy, value):
    metrics = [{"name": "loss", "min": "0.1", "max": "0.9", "latest": "0.4"}]
    assert _read(metrics, {"loss": strategy}).value == value


@pytest.mark.parametrize("text", ["NaN", "inf", "-Infinity", "1e400", "unavailable", ""])
def test_value_that_is_not_finite_is_none(text):
    assert _read([{"name": "loss", "min": text}], {"loss": "min"}).value is None
    assert number(text) is None
    assert [*map(number, ("0.5", "1e308", "-1e308"))] == [0.5, LIMIT, -LIMIT]


def _read(metrics, strategies):
    status = {"observation": {"metrics": metrics}, "conditions": [{"type": "Succeeded", "status": "True"}]}
    return read_trial({"metadata": {"name": "t1"}, "status": status}, strategies)


def measured(name, value, latency, size=0.0):
    return a_result(name, value, more={} if latency is None else {"latency": latency, "size": size})


def test_pareto_front_has_the_trials_that_none_beats():
    """By accuracy from the best on; equal trials beat none of each other, in every order of the trials."""
    goals = {"accuracy": Goal.MAXIMIZE, "latency": Goal.MINIMIZE}
    trials = [
        measured("slow", 0.9, 30.0),
        measured("slower", 0.9, 31.0),
        measured("middle", 0.8, 20.0),
        measured("twin", 0.8, 20.0),
        measured("worse", 0.79, 20.0),
        measured("fast", 0.5, 1.0),
        measured("fast-and-bad", 0.4, 1.0),
        measured("unknown", 0.99, None),
        measured("none", None, 0.1),
    ]
    for order in (trials, trials[::-1], trials[4:] + trials[:4]):
        assert names(pareto_front(goals, order)) == ["slow", "middle", "twin", "fast"]
    assert pareto_front(goals, []) == []
    goals = {"accuracy": Goal.MAXIMIZE, "latency": Goal.MINIMIZE, "size": Goal.MINIMIZE}
    trials = [
        measured("good", 0.9, 1.0, 9.0),
        measured("small", 0.5, 5.0, 1.0),
        measured("bad", 0.5, 5.0, 9.5),
    ]
    assert names(pareto_front(goals, trials)) == ["good", "small"]
