"""Draw the pairs of a comparison of branches: one line from a trial to the same trial on the other branch."""

from statistics import fmean
from typing import Any

from bot.core.space import Goal
from bot.sweep.charts.axes import LABEL, legend, objective_range, shown, style
from bot.sweep.charts.palette import LINE, OUTLIER, TEXT
from bot.sweep.results.models import SweepResults
from bot.sweep.results.pairs import Compared
from bot.text.wording import counted


def draw_pairs(axes: Any, results: SweepResults, found: Compared) -> None:
    """Show each pair as a line between the branches, and the means. Far values lie at the edge."""
    goal, sides = (
        results.space.goal,
        ([each.other for each in found.pairs], [each.better for each in found.pairs]),
    )
    low, high = objective_range(goal, [*sides[0], *sides[1]])
    sign = 1 if goal is Goal.MAXIMIZE else -1

    def line(*ends: float, **look: Any) -> None:
        axes.plot([0, 1], [min(max(end, low), high) for end in ends], **look)

    for other, better in zip(*sides, strict=True):
        gains = sign * (better - other) > 0
        look: dict[str, Any] = {"color": LINE} if gains else {"color": OUTLIER, "linestyle": "--"}
        line(other, better, marker="o", markersize=8, linewidth=2, alpha=0.7, **look)
    line(*map(fmean, sides), color=TEXT, linewidth=6, marker="D", markersize=14, label="mean")
    axes.plot([], [], color=LINE, linewidth=2, marker="o", label=f"better on {shown(found.better)}")
    axes.plot([], [], color=OUTLIER, linewidth=2, linestyle="--", marker="o", label="not better")
    axes.set_xlim(-0.25, 1.25)
    axes.set_xticks([0, 1], [shown(found.other), shown(found.better)])
    legend(axes, columns=3, handle=1.6)
    style(axes, counted(len(found.pairs), "pair"), results.sweep)
    axes.set_ylabel(shown(results.space.metric), fontsize=LABEL - 1, labelpad=10)
