"""Draw the learning curves of a sweep's trials, readable on a phone and by the color-blind."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.charts.axes import with_margin
from bot.charts.png import drawn
from bot.core.curves import Curve, so_far
from bot.results.finite import clipped
from bot.text.wording import counted

# The Okabe-Ito palette without yellow, which is too light for a line. Line styles differ, too.
STYLES = (
    ("#0072b2", "-"),
    ("#d55e00", "--"),
    ("#009e73", "-."),
    ("#cc79a7", ":"),
    ("#e69f00", (0, (5, 1, 1, 1, 1, 1))),
    ("#56b4e9", (0, (8, 2))),
)
OTHERS_COLOR, TEXT_COLOR = "#c4c4c4", "#222222"
FIGURE_SIZE, DPI = (8.0, 6.4), 150  # inches; 1200 pixels wide, which a phone shows in 400
TITLE_SIZE, LABEL_SIZE = 24, 20  # points: 12 and 10 on such a phone
LOG_RATIO = 10.0  # ratio of largest to smallest value from which the axis is logarithmic
DIGITS = 4  # of values in the legend


@dataclass(frozen=True, kw_only=True)
class CurvesChart:
    sweep: str
    metric: str
    maximize: bool
    strategy: str  # which value of a trial counts: min, max, or latest
    curves: Mapping[str, Curve]  # by trial
    running: frozenset[str] = frozenset()
    objectives: Mapping[str, float] = field(default_factory=dict)  # if known: a curve can be a sample

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """Return each trial with its objective, best first; trials without a finite one are last."""
        values = {
            name: self.objectives.get(name, so_far([p.value for p in curve], self.strategy)[-1])
            for name, curve in self.curves.items()
        }
        sign = -1 if self.maximize else 1
        return sorted(values.items(), key=lambda pair: (not math.isfinite(pair[1]), sign * pair[1], pair[0]))

    def short(self, trial: str) -> str:
        """Return the end of the trial's name, without the sweep's name."""
        return trial.removeprefix(f"{self.sweep}-")[-12:]


async def png(chart: CurvesChart) -> bytes:
    return await drawn(picture, chart)


def alt_text(chart: CurvesChart) -> str:
    goal = "highest" if chart.maximize else "lowest"
    best = "; ".join(f"{chart.short(name)} {value:.{DIGITS}g}" for name, value in chart.ranked[: len(STYLES)])
    trials = (
        f"{counted(len(chart.curves), 'trial')}, {len(chart.running & chart.curves.keys())} still running"
    )
    return f"Learning curves of {chart.metric} for {trials}. The {goal}: {best}."


def picture(chart: CurvesChart) -> Any:
    """Return a matplotlib Figure. Its background is opaque, so it reads the same in Slack's dark mode."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes 40 MB, and most processes never draw

    figure = Figure(figsize=FIGURE_SIZE, dpi=DPI, layout="constrained")
    with_margin(figure)
    plot(figure.add_subplot(), chart)
    columns = 2 if len(chart.curves) > 1 else 1
    legend = {"fontsize": LABEL_SIZE, "frameon": False, "handlelength": 2.4, "columnspacing": 1.2}
    figure.legend(loc="outside lower center", ncols=columns, labelcolor=TEXT_COLOR, **legend)
    return figure


def plot(axes: Any, chart: CurvesChart) -> None:
    """Draw the curves, without a legend."""
    for trial, _ in chart.ranked[len(STYLES) :]:
        axes.plot(*points(chart.curves[trial]), color=OTHERS_COLOR, linewidth=1.5, zorder=1)
    best = list(zip(chart.ranked, STYLES, strict=False))
    for number, ((trial, value), (color, style)) in enumerate(best):
        steps, values = points(chart.curves[trial])
        width = 5.0 if number == 0 else 3.0
        label = f"{chart.short(trial)}  {value:.{DIGITS}g}"
        axes.plot(
            steps, values, color=color, linestyle=style, linewidth=width, label=label, zorder=3 - number / 9
        )
        if trial in chart.running or len(steps) == 1:  # a line of one point is invisible
            axes.plot(steps[-1:], values[-1:], "o", color=color, markersize=12, zorder=3)
    _label(axes, chart)


def points(curve: Curve) -> tuple[list[int], list[float]]:
    """Return a curve's steps and values; one that isn't finite leaves a gap, and huge ones are clipped."""
    return [p.step for p in curve], [_drawable(p.value) for p in curve]


def _drawable(value: float) -> float:
    return clipped(value) if math.isfinite(value) else math.nan


def log_scale(axes: Any, values: Sequence[float]) -> None:
    """Make the axis of these finite values logarithmic if they are positive and far apart."""
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415 - as in picture

    if values and min(values) > 0 and max(values) / min(values) > LOG_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # 0.1 rather than a power of ten


def _label(axes: Any, chart: CurvesChart) -> None:
    values = [clipped(p.value) for curve in chart.curves.values() for p in curve if math.isfinite(p.value)]
    log_scale(axes, values)
    metric = chart.metric if len(chart.metric) <= 24 else f"{chart.metric[:23]}…"
    title = f"{metric}, {'higher' if chart.maximize else 'lower'} is better"
    axes.set_title(title, fontsize=TITLE_SIZE, loc="left", color=TEXT_COLOR, parse_math=False)
    dots = " (dot: still running)" if chart.running & chart.curves.keys() else ""
    axes.set_xlabel(f"step{dots}", fontsize=LABEL_SIZE, color=TEXT_COLOR)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=LABEL_SIZE, pad=8, colors=TEXT_COLOR)
    axes.grid(axis="y", color="#e5e5e5", linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
