"""Sweeps whose budgets hold 1 to 20 usual trials: none exceeds its budget by more than its longest trial."""

import math
import random
from statistics import quantiles

import pytest

from tests.bot.sweep.features.budget.simulated_katib import BudgetedSweep

USUAL = 0.2  # hours of a trial
SECOND = 1 / 3600
LENGTHS = {  # of trials, in usual ones
    "alike": lambda chance: chance.lognormvariate(0, 0.4),
    "heavy tail": lambda chance: chance.lognormvariate(0, 1),
    "heavier tail": lambda chance: chance.paretovariate(1.5) / 2,
    "short and long": lambda chance: chance.choice([0.1, 0.1, 1, 3]) * chance.lognormvariate(0, 0.1),
}


def simulated(length, seed, **known):
    chance = random.Random(seed)  # noqa: S311
    parallel, size = chance.choice([2, 4, 8]), math.exp(chance.uniform(0, math.log(20)))
    lengths = [USUAL * length(chance) for _ in range(24)]
    return BudgetedSweep(size * sum(lengths) / len(lengths), lengths, parallel, **known).run()


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 60), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LENGTHS)
def test_no_sweep_exceeds_its_budget_by_more_than_its_longest_trial(name, seeds):
    sweeps = [simulated(LENGTHS[name], seed) for seed in seeds]
    over = [each.over - each.parallel * SECOND / each.longest for each in sweeps]  # counted by the second
    stopped, started = (sum(len(getattr(each, what)) for each in sweeps) for what in ("stopped", "began"))
    deciles = ", ".join(f"{each:.2f}" for each in [*quantiles(over, n=10), max(over)])
    assert max(over) <= 1, (
        f"over the budget, in longest trials, as deciles: {deciles}; {stopped} of {started} trials stopped"
    )
    if name == "alike":
        assert stopped == 0


@pytest.mark.parametrize(
    ("budget", "known", "at_once"),
    [
        (100, {}, 1),
        (100, {"usual": 1.0}, 8),
        (17, {"usual": 1.0}, 4),  # a trial can take five times as long
        (16, {"trial_hours": 2}, 8),
        (7, {"trial_hours": 2}, 4),
        (1, {"trial_hours": 2}, 1),
    ],
)
def test_first_trials_are_those_that_surely_fit(budget, known, at_once):
    sweep = BudgetedSweep(budget, [1.0] * 20, 8, **known)
    sweep.start()
    assert len(sweep.began) == at_once
    assert sweep.run().over <= 1
    assert len(sweep.began) >= min(20, budget) - 1
