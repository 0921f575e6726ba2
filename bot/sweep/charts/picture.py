"""Draw the picture of an ended sweep, and word its alternative text: trials in their order, Pareto front,
curves, each parameter, importances, seeds. Takes seconds of CPU.

`draw` runs it in its own process. It is readable on a phone and by the color-blind: Okabe and Ito's palette
and cividis also differ in lightness.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from bot.core.seeds import statistics
from bot.core.space import Goal
from bot.sweep.charts.axes import (
    DOT,
    LABEL,
    Scale,
    dots,
    legend,
    objective_range,
    shown,
    style,
)
from bot.sweep.charts.curves import CurvesChart, plot
from bot.sweep.charts.importances import EVALUATOR, importances
from bot.sweep.charts.pairs import draw_pairs
from bot.sweep.charts.palette import AXIS, BEST, LINE, MUTED, new_figure, png_of
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.pairs import compared, verdict
from bot.sweep.results.ranking import LIMIT, clipped, ranked
from bot.text.number_format import short
from bot.text.wording import counted, shortened

SLICES_MAX, AXES_MAX = 6, 7  # parameters
MIN_PARALLEL = 3  # parameters
MAX_ALT = 900  # characters; Slack accepts 1,000
HEIGHTS = {
    "objective": 4.3,
    "front": 4.8,
    "curves": 5.0,
    "slice": 3.2,
    "parallel": 4.2,
    "importance": 0.8,
    "seeds": 4.2,
    "pairs": 6.0,
}  # inches

LINES_MAX = 300  # trials; more would hide one another


class Content:
    """What the picture and its alternative text show."""

    def __init__(self, results: SweepResults) -> None:
        self.results, self.space = results, results.space
        timed = sorted(results.trials, key=lambda t: (t.started is None, str(t.started), t.name))
        self.finite = [trial for trial in timed if trial.value is not None]
        self.values = [trial.value for trial in self.finite if trial.value is not None]
        self.best = ranked(self.space.goal, self.finite, results.best)[0] if self.finite else None
        self.importances = importances(results) if self.space.names_best else {}
        self.compared = compared(self.space, self.finite)
        searched = self.space.parameters if self.space.names_best else ()
        scales = [Scale(p, self.finite) for p in searched]
        varied = [scale for scale in scales if scale.varies]
        weight = self.importances
        self.scales = sorted(varied, key=lambda scale: -weight.get(scale.name, 0.0))
        self.front = [trial for trial in self.finite if trial.name in results.front]
        self.curves = {name: curve for name, curve in results.curves.items() if len(curve) > 1}


def alt_text(content: Content) -> str:
    """Return the picture's facts in words."""
    results, space, best = content.results, content.space, content.best
    total = counted(len(results.trials) + results.omitted, "trial")
    if best is None:
        return f"Results of {results.sweep}: {total} without a finite {shown(space.metric, 60)}."
    facts = [
        f"Results of {results.sweep}: {total}, {len(content.finite)} with a finite {shown(space.metric, 60)}"
    ]
    facts += [f"from {min(content.values):.6g} to {max(content.values):.6g}."]
    if space.seed:
        facts += [_seed_facts(content.values)]
    elif space.pairs:
        facts += [f"{verdict(space, content.compared, shown)}."]
    else:
        flags = ", ".join(f"{shown(name)}={shown(short(value))}" for name, value in best.parameters.items())
        facts += [f"Best ({space.goal}): {best.value:.6g} with {flags}."]
    if content.front:
        facts += [f"Pareto front: {counted(len(content.front), 'trial')}."]
    if content.curves:
        facts += [f"Learning curves of the best {counted(len(content.curves), 'trial')}."]
    if content.importances:
        shares = ", ".join(f"{shown(name)} {share:.0%}" for name, share in content.importances.items())
        facts += [f"Importance by {EVALUATOR}: {shares}."]
    return shortened(" ".join(facts), MAX_ALT)


def _seed_facts(values: Sequence[float]) -> str:
    found = statistics([clipped(value) for value in values])
    if found is None:
        return ""
    interval = "" if found.interval is None else ", 95% interval {:.6g} to {:.6g}".format(*found.interval)
    return f"Mean {found.mean:.6g}{interval}."


def png(content: Content) -> bytes:
    """Return the picture; b"" without a finite objective."""
    if content.best is None:
        return b""
    from matplotlib import rc_context  # noqa: PLC0415  takes 40 MB, and most processes never draw

    with rc_context({"text.parse_math": False, "path.simplify": True}):
        return png_of(_figure(content))


def _figure(content: Content) -> Any:
    slices = content.scales[:SLICES_MAX]
    first = "pairs" if content.compared else "seeds" if content.space.seed else "objective"
    heights, top = [HEIGHTS[first]], {"pairs": _pairs, "seeds": _seeds, "objective": _objective}[first]
    heights += [HEIGHTS["front"]] * len(content.space.goals) if content.front else []
    heights += [HEIGHTS["curves"]] if content.curves else []
    heights += [HEIGHTS["slice"]] * math.ceil(len(slices) / 2)
    shared = [each for each in content.scales if not each.is_conditional]
    heights += [HEIGHTS["parallel"]] if len(shared) >= MIN_PARALLEL else []
    shares = dict(list(content.importances.items())[:SLICES_MAX])
    heights += [0.8 + HEIGHTS["importance"] * len(shares)] if shares else []
    figure = new_figure(sum(heights))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    top(figure.add_subplot(grid[0, :]), content)
    row = 1
    for name, goal in content.space.goals.items() if content.front else ():
        _front(figure.add_subplot(grid[row, :]), content, name, goal)
        row += 1
    if content.curves:
        _curves(figure.add_subplot(grid[row, :]), content)
        row += 1
    for number, scale in enumerate(slices):
        _slice(figure.add_subplot(grid[row + number // 2, number % 2]), content, scale, left=number % 2 == 0)
    row += math.ceil(len(slices) / 2)
    if len(shared) >= MIN_PARALLEL:
        parallel_coordinates(figure, figure.add_subplot(grid[row, :]), shared[:AXES_MAX], content)
        row += 1
    if content.importances:
        _importances(figure.add_subplot(grid[row, :]), content)
    return figure


def _objective(axes: Any, content: Content) -> None:
    """Show each trial's value in the order in which they started, and the best so far."""
    low, high = objective_range(content.space.goal, content.values)
    points = [(float(place), value) for place, value in enumerate(content.values, 1)]
    dots(axes, points, (low, high), color=MUTED, label="trial", above="off scale")
    best_so_far = accumulate(content.values, max if content.space.goal is Goal.MAXIMIZE else min)
    drawn = [min(max(value, low), high) for value in best_so_far]
    axes.step(range(1, len(drawn) + 1), drawn, where="post", color=LINE, linewidth=4, label="best so far")
    if content.best:
        place, value = content.finite.index(content.best) + 1, min(max(content.best.value or 0.0, low), high)
        axes.scatter(
            [place], [value], marker="*", s=700, color=BEST, edgecolor="black", zorder=5, label="best"
        )
    axes.set_ylim(*_padded(low, high))
    axes.set_xlim(0.5, len(content.values) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=6)
    legend(axes)
    style(axes, f"{shown(content.space.metric, 24)} by trial", content.results.sweep)
    _name_axes(axes, "trial, in the order of their starts", shown(content.space.metric))


def _front(axes: Any, content: Content, name: str, goal: Goal) -> None:
    """Show the first objective over another one, and the trials that none beats."""
    both = [trial for trial in content.finite if name in trial.more]
    across = objective_range(goal, [trial.more[name] for trial in both])
    up = objective_range(content.space.goal, content.values)
    # Each far point lies on the edge, so that one diverged trial doesn't flatten the front.
    looks = (
        ("trial", [trial for trial in both if trial not in content.front], {"color": MUTED, "s": DOT}),
        ("Pareto front", content.front, {"color": BEST, "s": DOT * 3, "edgecolor": "black", "zorder": 5}),
    )
    for label, trials, look in looks:
        xs = [min(max(trial.more[name], across[0]), across[1]) for trial in trials]
        ys = [min(max(trial.value or 0.0, up[0]), up[1]) for trial in trials]
        axes.scatter(xs, ys, label=label, **look)
    axes.set_xlim(*_padded(*across))
    axes.set_ylim(*_padded(*up))
    legend(axes)
    style(axes, "Objectives")
    metric = content.space.metric
    _name_axes(axes, f"{shown(name)} ({goal})", f"{shown(metric)} ({content.space.goal})")


def _name_axes(axes: Any, across: str, up: str = "") -> None:
    axes.set_xlabel(across, fontsize=LABEL - 1)
    axes.set_ylabel(up, fontsize=LABEL - 1, labelpad=10)


def _curves(axes: Any, content: Content) -> None:
    """Show the objective by step, of the best trials whose curves are in MLflow."""
    results, space = content.results, content.space
    chart = CurvesChart(
        sweep=results.sweep,
        metric=space.metric,
        maximize=space.goal is Goal.MAXIMIZE,
        strategy=space.strategies[space.metric],
        curves=content.curves,
        objectives={trial.name: trial.value for trial in content.finite if trial.value is not None},
    )
    plot(axes, chart)
    style(axes, f"Best {counted(len(content.curves), 'trial')} by step")
    _name_axes(axes, "step", shown(space.metric))
    legend(axes, columns=2, handle=2.4)


def _slice(axes: Any, content: Content, scale: Scale, *, left: bool) -> None:
    """Show the objective over one parameter."""
    low, high = objective_range(content.space.goal, content.values)
    points = [(x, value) for x, value in zip(scale.positions, content.values, strict=True) if x is not None]
    dots(axes, points, (low, high), color=LINE, alpha=0.6)
    best = scale.position(content.best) if content.best else None
    if best is not None and content.best:
        height = min(max(content.best.value or 0.0, low), high)
        axes.scatter([best], [height], marker="*", s=500, color=BEST, edgecolor="black", zorder=5)
    scale.apply(axes)
    axes.set_ylim(*_padded(low, high))
    style(axes, scale.title, size=LABEL + 2)
    if left:
        axes.set_ylabel(shown(content.space.metric), fontsize=LABEL - 1, labelpad=10)
    else:
        axes.set_yticklabels([])


def _importances(axes: Any, content: Content) -> None:
    shown_shares = list(content.importances.items())[:SLICES_MAX]
    axes.barh(range(len(shown_shares)), [share for _, share in shown_shares], color=LINE, height=0.4)
    for place, (name, share) in enumerate(shown_shares):
        axes.text(0, place - 0.28, f"{shown(name, 40)}: {share:.0%}", va="bottom", fontsize=LABEL)
    axes.set_ylim(len(shown_shares) - 0.6, -0.9)
    axes.set_xlim(0, 1)
    style(axes, f"Importance ({EVALUATOR})")
    axes.set_xticks([])
    axes.set_yticks([])


def _seeds(axes: Any, content: Content) -> None:
    """Show each seed's value, their mean, and its interval."""
    values = [clipped(value) for value in content.values]
    look = {"color": MUTED, "edgecolor": "black", "zorder": 3}  # above the interval
    heights = [0.2 + 0.6 * ((number * 0.618034) % 1) for number in range(len(values))]  # equal values apart
    axes.scatter(values, heights, s=DOT * 3, label="seed", **look)
    found = statistics(values)
    if found:
        axes.axvline(found.mean, color=LINE, linewidth=4, label=f"mean {found.mean:.6g}")
    if found and found.interval and all(abs(end) < LIMIT * 10 for end in found.interval):
        axes.axvspan(*found.interval, color=LINE, alpha=0.2, linewidth=0, label="95% interval of the mean")
    axes.set_ylim(0, 1)
    style(axes, f"{shown(content.space.metric, 24)} by seed", content.results.sweep)
    _name_axes(axes, shown(content.space.metric))
    axes.set_yticks([])
    legend(axes)


def _pairs(axes: Any, content: Content) -> None:
    if content.compared:
        draw_pairs(axes, content.results, content.compared)


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - pad, high + pad


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
        axes.axvline(place, color=AXIS, linewidth=1.5, zorder=0)
        low, high = scale.ends(most)
        axes.text(place, -0.04, low, ha="center", va="top", fontsize=LABEL - 3)
        axes.text(place, 1.04, high, ha="center", va="bottom", fontsize=LABEL - 3)
    axes.set_xlim(-0.3, len(scales) - 0.7)
    axes.set_ylim(-0.2, 1.2)
    style(axes, "All parameters (orange: best)")
    axes.set_xticks(range(len(scales)), [shown(scale.name, most) for scale in scales])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
