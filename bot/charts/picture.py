"""Draw an ended sweep: one picture, readable on a phone and by the color-blind. Takes seconds of CPU.

`bot.charts.draw` runs it in its own process. Okabe and Ito's palette and cividis also differ in lightness.
"""

import math
from collections.abc import Sequence
from typing import Any

from bot.charts.axes import (
    BEST,
    DOT,
    LABEL,
    LINE,
    MUTED,
    Scale,
    dots,
    legend,
    objective_range,
    shown,
    style,
    with_margin,
)
from bot.charts.content import Content
from bot.charts.curves import CurvesChart, plot
from bot.charts.importances import EVALUATOR
from bot.charts.parallel import parallel_coordinates
from bot.charts.png import png_of
from bot.core.seeds import statistics
from bot.core.space import Goal
from bot.results.finite import LIMIT, clipped
from bot.text.number_format import short
from bot.text.wording import counted

WIDTH, DPI = 8.0, 150  # inches; 1200 pixels, which a phone shows in 400
SLICES_MAX, AXES_MAX = 6, 7  # parameters
MIN_PARALLEL = 3  # parameters
MAX_ALT = 900  # characters; Slack accepts 1,000
HEIGHTS = {
    "objective": 4.3,
    "curves": 5.0,
    "slice": 3.2,
    "parallel": 4.2,
    "importance": 0.8,
    "seeds": 4.2,
}  # inches


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
    else:
        flags = ", ".join(f"{shown(name)}={shown(short(value))}" for name, value in best.parameters.items())
        facts += [f"Best ({space.goal}): {best.value:.6g} with {flags}."]
    if content.curves:
        facts += [f"Learning curves of the best {counted(len(content.curves), 'trial')}."]
    if content.importances:
        shares = ", ".join(f"{shown(name)} {share:.0%}" for name, share in content.importances.items())
        facts += [f"Importance by {EVALUATOR}: {shares}."]
    text = " ".join(facts)
    return text if len(text) <= MAX_ALT else f"{text[: MAX_ALT - 1]}…"


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
    from matplotlib.figure import Figure  # noqa: PLC0415

    slices = content.scales[:SLICES_MAX]
    heights = [HEIGHTS["seeds" if content.space.seed else "objective"]]
    heights += [HEIGHTS["curves"]] if content.curves else []
    heights += [HEIGHTS["slice"]] * math.ceil(len(slices) / 2)
    heights += [HEIGHTS["parallel"]] if len(content.scales) >= MIN_PARALLEL else []
    shares = dict(list(content.importances.items())[:SLICES_MAX])
    heights += [0.8 + HEIGHTS["importance"] * len(shares)] if shares else []
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=DPI, layout="constrained")
    with_margin(figure)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    first = figure.add_subplot(grid[0, :])
    (_seeds if content.space.seed else _objective)(first, content)
    row = 1
    if content.curves:
        _curves(figure.add_subplot(grid[row, :]), content)
        row += 1
    for number, scale in enumerate(slices):
        _slice(figure.add_subplot(grid[row + number // 2, number % 2]), content, scale, left=number % 2 == 0)
    row += math.ceil(len(slices) / 2)
    if len(content.scales) >= MIN_PARALLEL:
        parallel_coordinates(figure, figure.add_subplot(grid[row, :]), content.scales[:AXES_MAX], content)
        row += 1
    if content.importances:
        _importances(figure.add_subplot(grid[row, :]), content)
    return figure


def _objective(axes: Any, content: Content) -> None:
    """Show each trial's value in the order in which they started, and the best so far."""
    low, high = objective_range(content.space.goal, content.values)
    points = [(float(place), value) for place, value in enumerate(content.values, 1)]
    dots(axes, points, (low, high), color=MUTED, label="trial", above="off scale")
    best_so_far = _running_best(content.space.goal, content.values)
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


def _running_best(goal: Goal, values: Sequence[float]) -> list[float]:
    better = max if goal is Goal.MAXIMIZE else min
    found: list[float] = []
    for value in values:
        found.append(better(value, found[-1]) if found else value)
    return found


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
    axes.set_ylabel(shown(space.metric), fontsize=LABEL - 1)
    axes.set_xlabel("")
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
    axes.scatter(values, _spread(len(values)), s=DOT * 3, label="seed", **look)
    found = statistics(values)
    if found:
        axes.axvline(found.mean, color=LINE, linewidth=4, label=f"mean {found.mean:.6g}")
    if found and found.interval and all(abs(end) < LIMIT * 10 for end in found.interval):
        axes.axvspan(*found.interval, color=LINE, alpha=0.2, linewidth=0, label="95% interval of the mean")
    axes.set_ylim(0, 1)
    style(axes, f"{shown(content.space.metric, 24)} by seed", content.results.sweep)
    axes.set_yticks([])
    legend(axes)


def _spread(count: int) -> list[float]:
    """Return heights that keep equal values apart, the same each time."""
    return [0.2 + 0.6 * ((number * 0.618034) % 1) for number in range(count)]


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - pad, high + pad
