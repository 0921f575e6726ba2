"""Draw learning curves, as `/sweep curves` shows them, with legend and alternative text, readable on a phone
and by the color-blind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.core.curves import Curve, so_far
from bot.sweep.charts.palette import OTHERS, STYLES, drawn, label_lines, legend_below, new_figure
from bot.sweep.results.ranking import clipped
from bot.text.wording import counted, shortened

LOG_RATIO = 10.0  # ratio of largest to smallest value from which the axis is logarithmic
DIGITS = 4  # of values in the legend


@dataclass(frozen=True, kw_only=True)
class CurvesChart:
    sweep: str
    metric: str
    maximize: bool | None  # None: not the objective, so neither direction is better
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
        sign = 1 if self.maximize is False else -1
        return sorted(values.items(), key=lambda pair: (not math.isfinite(pair[1]), sign * pair[1], pair[0]))

    def short(self, trial: str) -> str:
        """Return the end of the trial's name, without the sweep's name."""
        return trial.removeprefix(f"{self.sweep}-")[-12:]


async def png(chart: CurvesChart) -> bytes:
    return await drawn(picture, chart)


def alt_text(chart: CurvesChart) -> str:
    goal = "lowest" if chart.maximize is False else "highest"
    best = "; ".join(f"{chart.short(name)} {value:.{DIGITS}g}" for name, value in chart.ranked[: len(STYLES)])
    trials = (
        f"{counted(len(chart.curves), 'trial')}, {len(chart.running & chart.curves.keys())} still running"
    )
    return f"Learning curves of {chart.metric} for {trials}. The {goal}: {best}."


def picture(chart: CurvesChart) -> Any:
    """Return a matplotlib Figure."""
    figure = new_figure()
    plot(figure.add_subplot(), chart)
    legend_below(figure, columns=2 if len(chart.curves) > 1 else 1, handlelength=2.4, columnspacing=1.2)
    return figure


def plot(axes: Any, chart: CurvesChart) -> None:
    """Draw the curves, without a legend."""
    for trial, _ in chart.ranked[len(STYLES) :]:
        axes.plot(*points(chart.curves[trial]), color=OTHERS, linewidth=1.5, zorder=1)
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
    log_scale(
        axes, [clipped(p.value) for curve in chart.curves.values() for p in curve if math.isfinite(p.value)]
    )
    better = {None: "", True: ", higher is better", False: ", lower is better"}
    dots = " (dot: still running)" if chart.running & chart.curves.keys() else ""
    label_lines(axes, f"{shortened(chart.metric, 24)}{better[chart.maximize]}", f"step{dots}")


def points(curve: Curve) -> tuple[list[int], list[float]]:
    """Return a curve's steps and values; one that isn't finite leaves a gap, and huge ones are clipped."""
    return [p.step for p in curve], [clipped(p.value) if math.isfinite(p.value) else math.nan for p in curve]


def log_scale(axes: Any, values: Sequence[float]) -> None:
    """Make the axis of these finite values logarithmic if they are positive and far apart."""
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415 - as in picture

    if values and min(values) > 0 and max(values) / min(values) > LOG_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # 0.1 rather than a power of ten
