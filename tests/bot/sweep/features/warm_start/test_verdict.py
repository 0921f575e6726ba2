"""What the thread says of an earlier sweep's points: at the start, and whether they led."""

from dataclasses import replace

import pytest

from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.space import WarmStart
from bot.sweep.features.warm_start import footer, verdict
from tests.bot.factories import PLAN, a_sweep

TWO = ({"lr": "1e-3", "optimizer": "adam"}, {"lr": "0.1"})


def sweep(points, phase=Phase.SUCCEEDED, **parameters):
    start = WarmStart(sweep="lr-old-owl", points=points, why="main @ 01234567")
    best = Result(trial="t", value=0.1, parameters={"layers": "2"} | parameters)
    plan = replace(PLAN, space=replace(PLAN.space, warm_start=start))
    return a_sweep(phase, plan=plan, progress=Progress(best=best))


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"lr": "0.001", "optimizer": "adam"}, "The best trial took a point of `lr-old-owl`"),
        ({"lr": "0.1", "optimizer": "sgd"}, "The best trial took a point of `lr-old-owl`"),
        ({"lr": "0.001"}, "The best trial took a point of `lr-old-owl`"),  # here, optimizer has a condition
        (
            {"lr": "0.001", "optimizer": "sgd"},
            "The best trial is the search's own: it beat the 2 best points of `lr-old-owl`",
        ),
    ],
)
def test_end_says_whether_the_points_led_and_numbers_can_be_written_in_two_ways(parameters, text):
    assert verdict(sweep(TWO, **parameters)) == text
    assert verdict(sweep(TWO, Phase.RUNNING, **parameters)) == ""
    ending = replace(sweep(TWO, Phase.STOPPING, **parameters), ending=Phase.SUCCEEDED)
    assert verdict(ending) == text
    assert verdict(sweep((), **parameters)) == ""
    assert verdict(replace(sweep(TWO, **parameters), plan=PLAN)) == ""


def test_start_names_the_sweep_or_says_that_none_compares():
    assert footer(sweep(TWO)) == "Starts from the 2 best points of `lr-old-owl` (main @ 01234567)"
    assert footer(sweep(TWO[:1])) == "Starts from the best point of `lr-old-owl` (main @ 01234567)"
    assert footer(sweep(())) == "from=auto: no comparable earlier sweep of this space has 8 results"
    assert footer(a_sweep(Phase.RUNNING, plan=PLAN)) == ""
