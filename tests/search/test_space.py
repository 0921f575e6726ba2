"""Values of a space: every one that is proposed can be read again as the same value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.space import Choice, Range, Space
from tests.cases import cases

UNITS = st.floats(0, 1, exclude_max=True)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    integer, log = draw(st.booleans()), draw(st.booleans())
    low = draw(st.integers(1, 1000)) if integer else draw(st.floats(1e-6, 1e3))
    width = draw(st.integers(0, 10_000)) if integer else draw(st.floats(0, 1e4))
    steps = st.integers(1, 100) if integer else st.sampled_from([0.1, 0.25, 1.0, 3.0])
    step = draw(st.none() | steps)
    return Range(name="x", low=low, high=low + width, step=step, log=log, integer=integer)


@given(ranges(), UNITS)
def test_range_value_is_inside_and_read_again_as_itself(searched: Range, unit: float) -> None:
    value = searched.at(unit)
    assert searched.low <= value <= searched.high
    assert isinstance(value, int) == searched.integer
    assert searched.read(repr(value)) == value
    assert searched.at(searched.unit(value)) == pytest.approx(value, rel=1e-6)


@given(ranges())
def test_range_reaches_its_first_and_last_value(searched: Range) -> None:
    assert searched.at(0) == pytest.approx(searched.low)
    assert searched.at(math.nextafter(1, 0)) == pytest.approx(searched.top, rel=1e-6)


@pytest.mark.parametrize(
    ("searched", "values"),
    [
        (Range(name="x", low=0.0, high=0.35, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (Range(name="x", low=1, high=10, step=3, integer=True), [1, 4, 7, 10]),
        (Range(name="x", low=2, high=4, integer=True), [2, 3, 4]),
        (Range(name="x", low=5.0, high=5.0, step=1.0), [5.0]),
        (Range(name="x", low=1.0, high=1.2999999999999998, step=0.1), [1.0, 1.1, 1.2]),
    ],
)
def test_range_with_step_counts_from_min_without_binary_rounding(
    searched: Range, values: list[float]
) -> None:
    assert [searched.nth(index) for index in range(searched.count)] == values
    assert searched.top == values[-1]


@cases("parts", [1, 3, 11, 13, 15, 22])
def test_range_whose_step_was_rounded_up_keeps_its_last_value(parts: int) -> None:
    searched = Range(name="x", low=0.0, high=1.0, step=1 / parts)
    assert (searched.count, searched.top) == (parts + 1, pytest.approx(1))


@cases("text", ["0.05", "0.4", "-0.1", "nan", "inf", "", "a", "1e999"])
def test_range_reads_nothing_outside_or_between_its_steps(text: str) -> None:
    assert Range(name="x", low=0.0, high=0.35, step=0.1).read(text) is None


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"low": 2.0, "high": 1.0}, "x: min must be at most max, and both finite"),
        ({"low": math.nan, "high": 1.0}, "x: min must be at most max, and both finite"),
        ({"low": -1.7e308, "high": 1.7e308}, "x: min must be at most max, and both finite"),
        ({"low": 0.0, "high": 1.0, "log": True}, "x: a log scale needs a min above 0"),
        ({"low": 0.0, "high": 1.0, "step": 0.0}, "x: step must be above 0"),
        ({"low": 0.0, "high": 1e300, "step": 1e-300}, "x: step is too small for this range"),
        ({"low": 0, "high": 2**60, "integer": True}, "x: whole numbers can't exceed 2^53"),
    ],
)
def test_range_that_has_no_values_is_rejected(keys: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("^", r"\^")):
        Range(name="x", **keys)  # type: ignore[arg-type]


def test_space_reads_a_point_only_if_all_its_values_are_in_it() -> None:
    space = Space(dimensions=(Range(name="x", low=0.0, high=1.0), Choice(name="c", values=("", "b c"))))
    assert space.read({"x": "1e-1", "c": "", "other": "1"}) == {"x": 0.1, "c": ""}
    assert space.read({"x": "0.1"}) is None
    assert space.read({"x": "0.1", "c": "a"}) is None
    assert space.read({"x": "2", "c": ""}) is None


def test_space_without_values_or_with_a_name_twice_is_rejected() -> None:
    x = Range(name="x", low=0.0, high=1.0)
    for dimensions, why in (((), "no parameters"), ((x, x), "same name")):
        with pytest.raises(ValueError, match=why):
            Space(dimensions=dimensions)
    with pytest.raises(ValueError, match="x: the list is empty"):
        Choice(name="x", values=())
