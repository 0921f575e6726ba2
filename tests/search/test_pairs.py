"""The order in which branches are compared: shared settings, the halving, and finals in pairs."""

from collections import Counter
from collections.abc import Callable

import pytest

from search.pairs import Pairs, paired
from search.space import Choice, Finished, Point, Range, Space

BRANCHES = ("a", "b", "c")
LEVEL = {"a": 0.5, "b": 0.0, "c": 0.2}
SPACE = Space(
    dimensions=(
        Choice(name="branch", values=BRANCHES),
        Range(name="lr", low=0.0, high=1.0),
        Range(name="seed", low=0, high=60, integer=True),
    )
)
PAIRS = Pairs(branch="branch", seed="seed", settings=12, finals=5)


def loss(point: Point) -> float:
    return LEVEL[str(point["branch"])] + float(point["lr"])


def ran(
    total: int = 60,
    parallel: int = 4,
    space: Space = SPACE,
    pairs: Pairs = PAIRS,
    fails: Callable[[Point], bool] = lambda _: False,
) -> list[Point]:
    """Return what each trial ran. Failed trials aren't among the ones that the search is told."""
    points, running, finished = list[Point](), list[Point](), list[Finished]()
    for position in range(total):
        if len(running) == parallel:
            ended = running.pop(0)
            finished += [] if fails(ended) else [Finished(point=ended, value=loss(ended))]
        (point,) = paired(space, pairs, finished, running, [position], seed=7)
        points.append(point)
        running.append(point)
    return points


def test_sixty_trainings_screen_three_branches_and_end_in_fifteen_pairs_of_the_best_two() -> None:
    points = ran()
    screened, finals = points[:30], points[30:]
    assert {each["seed"] for each in screened} == {0}
    assert Counter(each["branch"] for each in screened) == {"b": 12, "c": 12, "a": 6}
    assert len({each["lr"] for each in screened}) == 12
    assert Counter(each["branch"] for each in finals) == {"b": 15, "c": 15}
    both = Counter((each["lr"], each["seed"]) for each in finals)
    assert set(both.values()) == {2}
    assert {seed for _, seed in both} == {1, 2, 3}
    best = sorted({float(each["lr"]) for each in screened})[:5]
    assert {lr for lr, _ in both} == set(best)


def test_two_branches_share_all_settings_and_a_repeated_call_has_the_same_answer() -> None:
    space = Space(dimensions=(Choice(name="branch", values=("a", "b")), *SPACE.dimensions[1:]))
    points = ran(32, space=space, pairs=Pairs(branch="branch", seed="seed", settings=8, finals=5))
    assert set(Counter((each["lr"], each["seed"]) for each in points).values()) == {2}
    assert points == ran(32, space=space, pairs=Pairs(branch="branch", seed="seed", settings=8, finals=5))


def test_failed_trials_cost_their_own_pairs_and_no_others() -> None:
    """Katib doesn't tell of each of them: positions, not the list of trials, say what comes next."""
    broken = {str(each["lr"]) for each in ran()[30:32]}
    points = ran(fails=lambda point: str(point["lr"]) in broken and point["seed"] == 2)
    finals = Counter((each["lr"], each["seed"]) for each in points[30:])
    assert set(finals.values()) == {2}
    assert len(finals) == 15


def test_a_branch_whose_trials_all_fail_drops_out() -> None:
    points = ran(fails=lambda point: point["branch"] == "b")
    assert Counter(each["branch"] for each in points[30:]) == {"a": 15, "c": 15}


def test_a_space_of_two_points_has_two_settings_and_more_seeds() -> None:
    space = Space(
        dimensions=(SPACE.dimensions[0], Choice(name="size", values=("s", "l")), SPACE.dimensions[2])
    )
    points = paired(space, PAIRS, [], [], range(60), seed=1)
    assert {each["size"] for each in points} == {"s", "l"}
    assert max(int(each["seed"]) for each in points) > 10


@pytest.mark.parametrize(
    "dimensions",
    [
        SPACE.dimensions[1:],
        SPACE.dimensions[:2],
        (Choice(name="branch", values=("a",)), *SPACE.dimensions[1:]),
    ],
)
def test_a_space_without_branches_or_seeds_is_refused(dimensions: tuple[Choice | Range, ...]) -> None:
    with pytest.raises(ValueError, match="pairs: "):
        paired(Space(dimensions=dimensions), PAIRS, [], [], [0], seed=1)
