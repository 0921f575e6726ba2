"""Draw the pairs of a comparison of branches: one line from a trial to the same trial on the other branch."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

from bot.sweep.charts.axes import LABEL, legend, objective_range, shown, style
from bot.sweep.charts.palette import LINE, OUTLIER, TEXT
from bot.text.wording import counted

if TYPE_CHECKING:
    from bot.sweep.charts.picture import Content


def draw_pairs(axes: Any, content: "Content") -> None:
    """Show each pair as a line between the branches, and the means. Far values lie at the edge."""
    found, goal = content.compared, content.space.goal
    if found is None:
        return
    both = [value for each in found.pairs for value in (each.other, each.better)]
    low, high = objective_range(goal, both)
    lines = [[min(max(value, low), high) for value in (each.other, each.better)] for each in found.pairs]
    sign = 1 if goal == "maximize" else -1
    for (left, right), pair in zip(lines, found.pairs, strict=True):
        gains = sign * (pair.better - pair.other) > 0
        look: dict[str, Any] = {"color": LINE} if gains else {"color": OUTLIER, "linestyle": "--"}
        axes.plot([0, 1], [left, right], marker="o", markersize=8, linewidth=2, alpha=0.7, **look)
    sides = [each.other for each in found.pairs], [each.better for each in found.pairs]
    means = [min(max(fmean(side), low), high) for side in sides]
    axes.plot([0, 1], means, color=TEXT, linewidth=6, marker="D", markersize=14, label="mean")
    axes.plot([], [], color=LINE, linewidth=2, marker="o", label=f"better on {shown(found.better)}")
    axes.plot([], [], color=OUTLIER, linewidth=2, linestyle="--", marker="o", label="not better")
    axes.set_xlim(-0.25, 1.25)
    axes.set_xticks([0, 1], [shown(found.other, 24), shown(found.better, 24)])
    legend(axes, columns=3, handle=1.6)
    style(axes, counted(len(found.pairs), "pair"), content.results.sweep)
    axes.set_ylabel(shown(content.space.metric), fontsize=LABEL - 1, labelpad=10)
