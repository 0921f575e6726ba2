"""What is kept of a metric, however long a training is."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.core.curves import Point
from bot.core.stopping import StoppingRule, at_rungs
from reader.events import Scalar
from reader.series import MAX_FOLDERS, MAX_POINTS, Metrics, Series, names


def series(*values, rungs=()):
    made = Series("loss", list(rungs))
    for step, value in enumerate(values, 1):
        made.add(Scalar("loss", step, value, float(step)))
    return made


def printed(made):
    line = made.line()
    return [(step, value) for step, value, *_ in json.loads(line)["points"]] if line else []


def test_rows_are_first_least_greatest_and_last_in_order_of_time():
    assert series(3.0, 1.0, 4.0, 2.0).rows() == [
        ("1970-01-01T00:00:01.000000Z", "loss", "3.0"),
        ("1970-01-01T00:00:02.000000Z", "loss", "1.0"),
        ("1970-01-01T00:00:03.000000Z", "loss", "4.0"),
        ("1970-01-01T00:00:04.000000Z", "loss", "2.0"),
    ]
    assert [value for _, _, value in series(math.nan, 2.0, 1.0, math.nan).rows()] == ["2.0", "1.0", "nan"]
    assert series(1.0).rows() == [("1970-01-01T00:00:01.000000Z", "loss", "1.0")]
    assert series().rows() == []


def test_rows_of_one_moment_have_different_times_and_the_last_one_comes_last():
    made = Series("loss")
    for step, value in enumerate((2.0, 1.0, 3.0), 1):
        made.add(Scalar("loss", step, value, 1e300))
    assert made.rows() == [
        ("1970-01-01T00:00:00.000000Z", "loss", "2.0"),
        ("1970-01-01T00:00:00.000001Z", "loss", "1.0"),
        ("1970-01-01T00:00:00.000002Z", "loss", "3.0"),
    ]
    made = Series("loss")
    for value in (1.0, 2.0, 0.0, 1.0):  # the last one equals the first
        made.add(Scalar("loss", 0, value, 0.0))
    assert made.rows()[-1][2] == "1.0"


def test_last_value_of_a_restarted_training_is_that_of_the_later_time():
    made = series(1.0, 2.0, 3.0)
    made.add(Scalar("loss", 2, 9.0, 10.0))
    made.add(Scalar("loss", 5, 7.0, 5.0))  # of an older file that was read later
    assert made.rows()[-1][2] == "9.0"


def test_line_has_few_points_evenly_spaced_and_always_rungs_and_the_last():
    made = series(*map(float, range(100_000)), rungs=[1, 7, 50_001])
    points = printed(made)
    steps = [step for step, _ in points]
    assert len(points) <= MAX_POINTS + 4
    assert {1, 7, 50_001, 100_000} <= {*steps}
    assert max(later - one for one, later in pairwise(steps)) <= 100_000 / 5
    assert printed(made) == []
    made.add(Scalar("loss", 100_001, math.nan, 1e6))
    assert printed(made) == [(100_001, "nan")]


def test_points_without_steps_are_numbered():
    made = Series("loss", [1, 3])
    for number in range(4):
        made.add(Scalar("loss", 0, float(number), float(number)))
    assert printed(made) == [(0, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]


def test_names_are_the_tag_alone_and_with_its_folder():
    assert (names("", "loss"), names("a/b", "loss")) == (("loss",), ("loss", "a/b/loss"))


@given(st.lists(st.floats(width=32), min_size=1, max_size=100), st.sampled_from(["min", "max"]))
def test_points_at_rungs_are_those_that_early_stopping_takes_from_the_whole_curve(values, strategy):
    rule = StoppingRule(name="asha", grace=1, factor=3)
    made = series(*values, rungs=rule.rungs)
    curve = tuple(Point(step, value, float(step)) for step, value in enumerate(values, 1))
    best = {"min": 3, "max": 4}[strategy]
    written = {point[0]: point for point in json.loads(made.line())["points"]}
    for point in at_rungs(rule, strategy, curve):
        found = written[point.step][best]
        found = written[point.step][1] if found is None else found
        if math.isfinite(point.value):
            assert float(found) == point.value
        else:
            assert not math.isfinite(float(found))


@pytest.mark.parametrize(
    ("times", "mixed"),
    [
        ({"train": (1, 5), "validation": (2, 6)}, ["train", "validation"]),
        ({"": (1, 9), "a": (2, 3), "b": (4, 5)}, ["", "a", "b"]),
        ({"version_1": (4, 6), "version_0": (1, 4)}, []),  # a restart, whose files were read later
        ({f"fold_{number}": (number, number + 0.5) for number in range(MAX_FOLDERS + 5)}, []),
    ],
)
def test_folders_that_write_a_metric_at_once_are_named_in_its_line(times, mixed):
    metrics = Metrics(["loss"], [])
    for folder, both in times.items():
        for at in both:
            metrics.add(folder, Scalar("loss", 1, 0.5, at))
    assert json.loads(metrics.all[0].line()).get("mixed", []) == mixed


def test_tag_in_a_folder_is_printed_by_both_names():
    metrics = Metrics(["loss"], [])
    metrics.add("version_0", Scalar("acc", 1, 0.5, 2.0))
    metrics.add("version_0", Scalar("loss", 1, 0.5, 2.0))
    points = [[1, 0.5, 2.0, 0.5, 0.5]]
    assert [json.loads(each.line()) for each in metrics.all] == [
        {"metric": "loss", "points": points},
        {"metric": "version_0/acc", "tag": "acc", "points": points},
    ]
