"""The chart of learning curves, and its values as text."""

import math
from dataclasses import replace

import pytest

from bot.core.curves import Point, better, in_order, so_far
from bot.sweep.charts.curves import CurvesChart, alt_text, picture, png
from bot.sweep.charts.palette import STYLES


def a_chart(curves, **changes):
    known = {"metric": "loss", "maximize": False, "strategy": "min", "running": frozenset({"s-a"})}
    points = {name: tuple(Point(n, value) for n, value in enumerate(c)) for name, c in curves.items()}
    return CurvesChart(sweep="s", curves=points, **known | changes)


def test_chart_labels_the_best_trials_with_values_colors_and_styles():
    chart = a_chart({"s-a": [0.9, 0.2, 0.4], "s-b": [0.1, 0.3], "s-c": [math.nan], "s-d": [0.5]})
    assert [name for name, _ in chart.ranked] == ["s-b", "s-a", "s-d", "s-c"]
    assert alt_text(chart) == (
        "Learning curves of loss for 4 trials, 1 still running. The lowest: b 0.1; a 0.2; d 0.5; c nan."
    )
    up = a_chart({"s-a": [0.9, 0.2], "s-b": [0.1, 0.3]}, maximize=True, strategy="latest")
    assert [name for name, _ in up.ranked] == ["s-b", "s-a"]
    titles = [
        picture(replace(up, maximize=each)).axes[0].get_title(loc="left") for each in (True, False, None)
    ]
    assert titles == ["loss, higher is better", "loss, lower is better", "loss"]
    axes = picture(a_chart({f"s-{n:02}": [1.0, n] for n in range(20)})).axes[0]
    labeled = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert len(labeled) == len(STYLES)
    assert len({line.get_color() for line in labeled}) == len({style for _, style in STYLES}) == len(STYLES)
    assert in_order([Point(0, 3.0, 2.0), Point(0, 4.0, 1.0)]) == (Point(1, 4.0, 1.0), Point(2, 3.0, 2.0))
    assert in_order([Point(7, 3.0, 2.0)]) == (Point(7, 3.0, 2.0),)
    assert in_order([Point(2, 1.0), Point(1, 2.0)]) == (Point(1, 2.0), Point(2, 1.0))


@pytest.mark.parametrize(
    ("curves", "scale"),
    [
        ({"s-a": [100.0, 0.1]}, "log"),
        ({"s-a": [1.0, 0.1]}, "linear"),
        ({"s-a": [100.0, -0.1]}, "linear"),
        ({"s-a": [math.inf, 1.0]}, "linear"),
        ({"s-a": [math.nan]}, "linear"),
    ],
)
def test_chart_axis_is_logarithmic_if_values_differ_widely(curves, scale):
    assert picture(a_chart(curves)).axes[0].get_yscale() == scale


@pytest.mark.parametrize(
    "curves",
    [
        {"s-a": [1e300, -1e300], "s-b": [math.nan, math.inf]},
        {"s-a": [1.7e308, -1.7e308]},
        {"s-a": [1e308]},
        {"s-a": [5e-324, 1e308], "s-b": [1e308, 1e308]},
    ],
)
async def test_chart_accepts_any_metric_and_value(curves):
    assert (await png(a_chart(curves, metric="$\\frac{a"))).startswith(b"\x89PNG")


def test_best_value_so_far_follows_the_strategy():
    assert so_far([3.0, math.nan, 1.0, 2.0], "min") == [3.0, 3.0, 1.0, 1.0]
    assert so_far([3.0, math.inf, 4.0], "max") == [3.0, 3.0, 4.0]
    assert so_far([3.0, 1.0, 2.0], "latest") == [3.0, 1.0, 2.0]
    assert better(math.nan, 2.0, "min") == 2.0
