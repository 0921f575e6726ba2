"""Which parameters decide the objective."""

import math
import random
from dataclasses import replace

import pytest

from bot.core.space import Goal, Parameter
from bot.sweep.charts.importances import MIN_TRIALS, importances
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import a_result, some_results

PARAMETERS = (
    Parameter(name="unused", values=("a", "b", "c")),
    Parameter(name="width", min=0.0, max=1.0),
    Parameter(name="lr", min=1e-5, max=1.0, log=True),
    Parameter(name="constant", min=1, max=9, integer=True),
)


def known(count, seed=3, goal=Goal.MINIMIZE, **changes):
    """Return trials of a function where lr counts four times as much as width, and nothing else counts."""
    chance, trials = random.Random(seed), []  # noqa: S311
    for number in range(count):
        lr, width = 10 ** chance.uniform(-5, 0), chance.random()
        loss = ((math.log10(lr) + 3) / 3) ** 2 + (width - 0.5) ** 2
        text = {"lr": repr(lr), "width": repr(width), "unused": chance.choice("abc"), "constant": "3"}
        trials.append(a_result(f"t{number:04}", -loss if goal is Goal.MAXIMIZE else loss, parameters=text))
    space = replace(SPACE, parameters=PARAMETERS, goal=goal, max_trials=count)
    return some_results(*trials, space=space, **changes)


@pytest.mark.parametrize("goal", Goal)
def test_importances_of_a_known_function_are_in_order(goal):
    found = importances(known(120, goal=goal))
    assert list(found) == ["lr", "width", "unused"]
    assert sum(found.values()) == pytest.approx(1)
    assert found["lr"] > 2 * found["width"]


def test_importances_of_equal_trials_do_not_follow_their_names():
    grid = [
        {"unused": "abc"[n // 40], "width": f"0.{n % 40:02}", "lr": "1", "constant": "1"} for n in range(120)
    ]
    values = [float(each["width"] > "0.19") for each in grid]
    trials = [a_result(f"t{n:04}", values[n], parameters=each) for n, each in enumerate(grid)]
    found = importances(replace(known(120), trials=tuple(trials)))
    assert found["unused"] == pytest.approx(0)
    equal = tuple(replace(each, value=0.5) for each in trials)
    assert importances(replace(known(120), trials=equal)) == {}


def test_importances_need_varied_parameters_and_finite_values_of_enough_trials():
    assert importances(known(MIN_TRIALS - 1)) == {}
    assert importances(known(MIN_TRIALS)) != {}
    results = known(MIN_TRIALS)
    trials = [replace(results.trials[0], value=None), *results.trials[1:]]
    assert importances(replace(results, trials=tuple(trials))) == {}
    results = known(60)
    trials = [replace(t, parameters=t.parameters | {"width": "0.5", "unused": "a"}) for t in results.trials]
    assert importances(replace(results, trials=tuple(trials))) == {}
    extreme = ["1e308", "-1e308", "nan", "inf", "", "x" * 500, "5e-324"]
    trials = [
        replace(t, value=1e308 if n % 2 else -1e308, parameters=t.parameters | {"width": extreme[n % 7]})
        for n, t in enumerate(results.trials * 4)
    ]
    found = importances(replace(results, trials=tuple(trials)))
    assert all(0 <= share <= 1 for share in found.values())
