"""What pairs of two branches show, and what is said of it."""

import random
from dataclasses import dataclass, replace

import pytest

from bot.core.space import Goal, Pairs
from bot.sweep.results.pairs import compared, verdict
from tests.bot.factories import SPACE

BRANCHES = replace(
    SPACE, metric="acc", pairs=Pairs(branches=("main", "wider"), seed="seed", settings=15, finals=5)
)


@dataclass(frozen=True)
class Trial:
    parameters: dict[str, str]
    value: float | None


def trials(count: int, gain: float, noise: float = 0.01) -> list[Trial]:
    """Pairs of the finals, and screened trials, of which main's are far better by luck."""
    draw, found = random.Random(3), []  # noqa: S311
    for number in range(count):
        where = {"lr": f"0.{number % 5}", "seed": f"{1 + number // 5}"}
        found += [
            Trial(where | {"branch": "main"}, 0.9 + draw.gauss(0, noise)),
            Trial(where | {"branch": "wider"}, 0.9 + gain + draw.gauss(0, noise)),
            Trial({"lr": "0.1", "seed": "0", "branch": "main"}, 99.0),
        ]
    return found


@pytest.mark.parametrize(
    ("goal", "count", "gain", "text"),
    [
        (
            Goal.MAXIMIZE,
            15,
            0.05,
            "`wider` is better than `main` by 5.3% of `acc` (95%: 4.6% to 6.1%; 15 pairs",
        ),
        (
            Goal.MINIMIZE,
            15,
            0.05,
            "`main` is better than `wider` by 5% of `acc` (95%: 4.3% to 5.8%; 15 pairs",
        ),
        (Goal.MAXIMIZE, 15, 0, "No difference between `main` and `wider` shown with this budget (95%: -"),
        (
            Goal.MAXIMIZE,
            8,
            0.05,
            "`wider` is better than `main` by 5.4% of `acc` (95%: 4.2% to 6.7%; 8 pairs",
        ),
        (
            Goal.MAXIMIZE,
            7,
            0.05,
            "No difference between `wider` and `main` shown: 7 pairs, and a claim needs 8",
        ),
        (
            Goal.MAXIMIZE,
            0,
            0,
            "No difference between the branches shown: no pair of the finals has two results",
        ),
    ],
)
def test_verdict_names_a_branch_only_if_the_interval_excludes_zero(goal, count, gain, text):
    space = replace(BRANCHES, goal=goal)
    assert verdict(space, compared(space, trials(count, gain))).startswith(text)


def test_compare_leaves_out_what_is_no_pair_and_percentages_that_mislead():
    space = replace(
        BRANCHES, goal=Goal.MAXIMIZE, pairs=replace(BRANCHES.pairs, branches=("main", "old", "wider"))
    )
    odd = [
        Trial({"branch": "main", "seed": "9", "lr": "1"}, 5.0),
        Trial({"branch": "main", "seed": "9", "lr": "9"}, 0.9),
        Trial({"branch": "main", "seed": "8", "lr": "1"}, 1e300),
        Trial({"branch": "wider", "seed": "8", "lr": "1"}, 0.9),
        Trial({"branch": "wider", "seed": "9", "lr": "1"}, None),
        *(Trial({"branch": "old", "seed": f"{seed}", "lr": "9"}, 1.0) for seed in range(1, 30)),
    ]
    found = compared(space, [*trials(15, 0.05), *odd])
    assert (len(found.pairs), found.left) == (15, ("old",))
    assert compared(space, trials(15, 0.05)[::-1]).pairs == found.pairs, "by setting and seed"
    assert verdict(space, found).endswith("one setting and seed). `old` didn't reach the finals")
    same = compared(replace(BRANCHES, goal=Goal.MAXIMIZE), trials(15, 0, noise=0))
    assert (same.better, same.interval, same.is_shown) == ("main", (0, 0), False)
    first, *others = trials(15, 0.05)
    space = replace(BRANCHES, goal=Goal.MAXIMIZE)
    assert "by 0.114 of `acc` (95%: 0.0262 to" in verdict(
        space, compared(space, [replace(first, value=-0.1), *others])
    )
    none_learns = [replace(each, value=0.0) for each in trials(15, 0)]
    assert "(95%: 0 to 0; 15 pairs" in verdict(space, compared(space, none_learns))
    found = [
        Trial({"lr": "0.1", "seed": f"{number}", "branch": branch}, value)
        for number in range(1, 13)
        for branch, value in (("main", 1e-9), ("wider", 0.1))
    ]
    maximized = replace(BRANCHES, goal=Goal.MAXIMIZE)
    text = verdict(maximized, compared(maximized, found))
    assert text.startswith("`wider` is better than `main` by 0.1 of `acc` (95%: 0.1 to 0.1; 12 pairs")
    almost_equal = [
        (0.9, 0.91),
        (0.92, 0.93),
        (0.8, 0.81),
        (0.81, 0.82),
        (0.71, 0.72),
        (0.61, 0.62),
        (0.51, 0.52),
    ]
    found = [
        Trial({"lr": "0.1", "seed": f"{number}", "branch": branch}, value)
        for number, both in enumerate([*almost_equal, (0.55, 0.555)], 1)
        for branch, value in zip(("main", "wider"), both, strict=True)
    ]
    text = verdict(maximized, compared(maximized, found))
    assert text.startswith("`wider` is better than `main` by 1.3% of `acc` (95%: 1.3% to 1.4%; 8 pairs")
