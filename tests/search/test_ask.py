"""`ask`: which points follow from which trials, for each method."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.ask import MAX_LEARNED, MAX_MODELED, Method, ask, grid_size, learned
from search.space import Choice, Condition, Finished, Point, Range, Space
from tests.cases import cases
from tests.search.spaces import SPACES, X, loss

PLANE = SPACES["decimals"]


def trained(space: Space, points: list[Point]) -> list[Finished]:
    return [Finished(point=each, value=loss(space, each)) for each in points]


@cases("method", [each for each in Method if each is not Method.GRID])
@cases("name", SPACES)
def test_ask_proposes_points_of_the_space_and_repeats_its_answer(name: str, method: Method) -> None:
    space = SPACES[name]
    finished = trained(space, ask(space, [], [], 20, 1, method=Method.SOBOL))
    running = ask(space, [], [], 3, 2, method=Method.RANDOM)
    points = ask(space, finished, running, 8, 1, method=method)
    assert [space.read({key: str(value) for key, value in each.items()}) for each in points] == points
    assert len(points) == 8
    assert ask(space, finished, running, 8, 1, method=method) == points


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_points_without_results_follow_from_their_position_alone(first: int, n: int, seed: int) -> None:
    """So calls for one point each give the same search as one call for all."""
    for method in (Method.SOBOL, Method.RANDOM, Method.TPE):
        together = ask(PLANE, [], [], n, seed, method=method, first=first)
        apart = [ask(PLANE, [], [], 1, seed, method=method, first=first + i)[0] for i in range(n)]
        assert together == apart


def test_sobol_covers_each_range_evenly() -> None:
    points = ask(Space(dimensions=(X,)), [], [], 64, 5, method=Method.SOBOL)
    assert Counter(int(float(each["x"]) * 8) for each in points) == dict.fromkeys(range(8), 8)


def test_search_with_another_seed_has_other_points() -> None:
    for method in (Method.SOBOL, Method.RANDOM):
        assert ask(PLANE, [], [], 4, 1, method=method) != ask(PLANE, [], [], 4, 2, method=method)


@pytest.mark.parametrize("method", [Method.TPE, Method.CMAES])
def test_model_finds_better_points_than_random(method: Method) -> None:
    """The medians of three searches of 60 trials, four in parallel, for each direction."""
    for maximize in (False, True):
        space, sign = Space(dimensions=PLANE.dimensions, maximize=maximize), -1 if maximize else 1
        late = {}
        for chosen in (method, Method.RANDOM):
            means = []
            for seed in range(3):
                finished: list[Finished] = []
                for _ in range(15):
                    points = ask(space, finished, [], 4, seed, method=chosen)
                    finished += [Finished(point=each, value=sign * loss(space, each)) for each in points]
                means.append(sum(sign * each.value for each in finished[-12:]) / 12)
            late[chosen] = sorted(means)[1]
        assert late[method] < late[Method.RANDOM] / 2


def test_tpe_keeps_parallel_trials_apart() -> None:
    finished = trained(PLANE, ask(PLANE, [], [], 20, 1, method=Method.SOBOL))
    (first,) = ask(PLANE, finished, [], 1, 1, first=20)
    (second,) = ask(PLANE, finished, [first], 1, 1, first=20)
    assert math.dist([*first.values()], [*second.values()]) > 1e-6


def test_tpe_covers_the_space_until_enough_trials_have_finished() -> None:
    points = ask(PLANE, [], [], 12, 3, method=Method.SOBOL)
    five, six = trained(PLANE, points[:5]), trained(PLANE, points[:6])
    assert ask(PLANE, five, points[5:6], 1, 3) == points[6:7]
    assert ask(PLANE, six, [], 1, 3) != points[6:7]
    assert ask(PLANE, six, [], 1, 3, startup=7) == points[6:7]


def test_points_of_an_earlier_search_take_every_other_position() -> None:
    past: list[Point] = [{"x": 0.5, "y": 0.5, "z": 1.0}, {"x": 0.25}]
    cold, warm = ask(PLANE, [], [], 6, 1), ask(PLANE, [], [], 6, 1, past=past)
    assert warm == [past[0], cold[1], cold[2] | past[1], *cold[3:]]
    assert [ask(PLANE, [], [], 1, 1, first=at, past=past)[0] for at in range(6)] == warm


@pytest.mark.parametrize("maximize", [False, True])
def test_misleading_point_of_an_earlier_search_is_the_last_one_tried(maximize: bool) -> None:
    """It is judged by the median of the search's own points, once it has finished."""
    space, sign = Space(dimensions=(X,), maximize=maximize), -1 if maximize else 1
    past: list[Point] = [{"x": 0.5}, {"x": 0.25}]
    own = [Finished(point={"x": 0.1 * at}, value=sign * at) for at in range(1, 4)]

    def third(*tried: Finished) -> Point:
        return ask(space, [*tried, *own], [], 1, 1, first=2, past=past)[0]

    assert third() == past[1]
    assert third(Finished(point=past[0], value=sign * 2)) == past[1]
    assert third(Finished(point=past[0], value=sign * 2.5)) != past[1]
    assert third(Finished(point=past[0], value=sign * 1, stopped_at=4)) != past[1]
    assert ask(space, [Finished(point=past[0], value=9.0)], [], 1, 1, first=2, past=past)[0] == past[1]


def test_misleading_point_is_recognized_without_its_value_that_does_not_apply() -> None:
    """The earlier search had no condition on x."""
    kind, other = Choice(name="kind", values=("a", "b")), Range(name="y", low=0.0, high=1.0)
    space = Space(dimensions=(kind, other, replace(X, when=Condition(parameter="kind", values=("a",)))))
    past: list[Point] = [{"kind": "b", "y": 0.5, "x": 0.5}, {"kind": "b", "y": 0.25, "x": 0.5}]
    (first,) = ask(space, [], [], 1, 1, past=past)
    assert first == {"kind": "b", "y": 0.5}
    own = Finished(point=ask(space, [], [], 1, 1, first=1)[0], value=1.0)
    assert ask(space, [Finished(point=first, value=1.0), own], [], 1, 1, past=past)[0]["y"] == 0.25
    assert ask(space, [Finished(point=first, value=2.0), own], [], 1, 1, past=past)[0]["y"] != 0.25


def test_grid_takes_each_combination_once_and_then_again() -> None:
    space = SPACES["grid"]
    assert grid_size(space) == 12
    points = [ask(space, [], [], 1, 0, method=Method.GRID, first=at)[0] for at in range(24)]
    assert points[:5] == [
        {"layers": 1, "drop": 0.0, "norm": "batch"},
        {"layers": 1, "drop": 0.0, "norm": "layer"},
        {"layers": 1, "drop": 0.1, "norm": "batch"},
        {"layers": 1, "drop": 0.1, "norm": "layer"},
        {"layers": 2, "drop": 0.0, "norm": "batch"},
    ]
    assert len({tuple(each.values()) for each in points[:12]}) == 12
    assert points[12:] == points[:12]


def test_grid_of_decimals_without_a_step_is_rejected() -> None:
    with pytest.raises(ValueError, match="x: a grid needs a step here, or a list of values"):
        ask(Space(dimensions=(X,)), [], [], 1, 0, method=Method.GRID)


def test_cmaes_with_a_single_range_is_tpe() -> None:
    space = SPACES["mixed list"]
    finished = trained(space, ask(space, [], [], 8, 1, method=Method.SOBOL))
    assert ask(space, finished, [], 2, 1, method=Method.CMAES) == ask(space, finished, [], 2, 1)


@pytest.mark.parametrize("n", [0, -1])
def test_no_points_are_proposed_for_none(n: int) -> None:
    assert ask(PLANE, [], [], n, 0) == []


def test_large_request_takes_the_first_points_from_the_model() -> None:
    finished = trained(PLANE, ask(PLANE, [], [], 8, 1, method=Method.SOBOL))
    points = ask(PLANE, finished, [], MAX_MODELED + 3, 1)
    rest = ask(PLANE, [], [], 3, 1, method=Method.SOBOL, first=8 + MAX_MODELED)
    assert points[MAX_MODELED:] == rest


def test_space_too_large_for_the_model_is_covered() -> None:
    wide = Space(dimensions=(X, Choice(name="c", values=tuple(map(str, range(501))))))
    finished = trained(wide, ask(wide, [], [], 8, 1, method=Method.SOBOL))
    assert ask(wide, finished, [], 2, 1) == ask(wide, finished, [], 2, 1, method=Method.SOBOL)


def test_model_learns_from_the_best_and_the_latest_of_many_trials() -> None:
    many = [Finished(point={"x": 0.5}, value=float(at)) for at in range(MAX_LEARNED + 500)]
    for maximize, kept in ((False, [*range(200), *range(700, 2500)]), (True, [*range(500, 2500)])):
        assert [each.value for each in learned(many, maximize=maximize)] == kept
    assert learned(many[:MAX_LEARNED], maximize=False) == many[:MAX_LEARNED]


def test_failing_model_is_replaced_by_even_cover(caplog: pytest.LogCaptureFixture) -> None:
    finished = trained(PLANE, ask(PLANE, [], [], 8, 1, method=Method.SOBOL))
    outside: Point = {"x": 5.0, "y": 0.0, "z": 0.0}  # Optuna rejects it
    even = ask(PLANE, finished, [outside], 3, 1, method=Method.SOBOL)
    assert ask(PLANE, finished, [outside], 3, 1) == even
    assert "model failed, sobol points instead: 8 trials" in caplog.text


@pytest.mark.parametrize("method", [Method.TPE, Method.CMAES])
def test_equal_and_extreme_values_are_learned_from(method: Method, caplog: pytest.LogCaptureFixture) -> None:
    points = ask(PLANE, [], [], 20, 1, method=Method.SOBOL)
    for values in ([0.0] * 20, [1e308, -1e308] * 10):
        finished = [Finished(point=p, value=v) for p, v in zip(points, values, strict=True)]
        assert len(ask(PLANE, finished, [], 3, 1, method=method)) == 3
    assert not caplog.records


def test_cmaes_of_several_objectives_is_tpe() -> None:
    space = replace(PLANE, others=(True,))
    finished = [
        replace(each, others=(float(each.point["x"]),)) for each in trained(space, ask(space, [], [], 9, 0))
    ]
    assert ask(space, finished, [], 4, 0, method=Method.CMAES) == ask(space, finished, [], 4, 0)
