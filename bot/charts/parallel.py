"""Draw parallel coordinates: one line per trial across the parameters, colored by the objective."""

from collections.abc import Sequence
from typing import Any

from bot.charts.axes import BEST, LABEL, Scale, objective_range, shown, style
from bot.charts.content import Content
from bot.core.space import Goal
from bot.results.models import TrialResult
from bot.results.ranking import ranked

LINES_MAX = 300  # trials; more would hide one another


def parallel_coordinates(figure: Any, axes: Any, scales: Sequence[Scale], content: Content) -> None:
    """Draw the better trials over the others, the best one on top."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415  see picture
    from matplotlib.colors import Normalize  # noqa: PLC0415

    goal, low_high = content.space.goal, objective_range(content.space.goal, content.values)
    trials = [t for t in content.finite if all(scale.position(t) is not None for scale in scales)]
    order = ranked(goal, trials)[::-1]
    drawn = order[:: max(len(order) // LINES_MAX, 1)]
    colors = "cividis_r" if goal is Goal.MINIMIZE else "cividis"
    norm = Normalize(*low_high)
    lines = LineCollection([_line(scales, trial) for trial in drawn], cmap=colors, norm=norm, linewidth=1.8)
    lines.set_array([min(max(trial.value or 0.0, low_high[0]), low_high[1]) for trial in drawn])
    axes.add_collection(lines)
    if content.best in trials and content.best:
        xs, ys = zip(*_line(scales, content.best), strict=True)
        axes.plot(xs, ys, color="black", linewidth=7, zorder=4)
        axes.plot(xs, ys, color=BEST, linewidth=4, zorder=5)
    _label(axes, scales)
    bar = figure.colorbar(lines, ax=axes, aspect=14, pad=0.02)
    bar.ax.tick_params(labelsize=LABEL - 2)
    bar.set_label(shown(content.space.metric), fontsize=LABEL - 2)
    bar.outline.set_visible(False)


def _line(scales: Sequence[Scale], trial: TrialResult) -> list[tuple[float, float]]:
    positions = [scale.position(trial) for scale in scales]
    return [
        (float(place), scale.share(position))
        for place, (scale, position) in enumerate(zip(scales, positions, strict=True))
        if position is not None
    ]


def _label(axes: Any, scales: Sequence[Scale]) -> None:
    most = max(5, 36 // len(scales))
    for place, scale in enumerate(scales):
        axes.axvline(place, color="#cccccc", linewidth=1.5, zorder=0)
        low, high = scale.ends(most)
        axes.text(place, -0.04, low, ha="center", va="top", fontsize=LABEL - 3)
        axes.text(place, 1.04, high, ha="center", va="bottom", fontsize=LABEL - 3)
    axes.set_xlim(-0.3, len(scales) - 0.7)
    axes.set_ylim(-0.2, 1.2)
    style(axes, "All parameters (orange: best)")
    axes.set_xticks(range(len(scales)), [shown(scale.name, most) for scale in scales])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
