"""Draw the best value so far of several sweeps in one picture, readable on a phone and by the color-blind."""

import asyncio
from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any

from bot.charts.axes import with_margin
from bot.charts.curves import (
    DPI,
    FIGURE_SIZE,
    LABEL_SIZE,
    LOG_RATIO,
    STYLES,
    TEXT_COLOR,
    TITLE_SIZE,
)
from bot.core.space import Goal
from bot.core.wording import counted
from bot.results.finite import clipped
from bot.results.models import SweepResults


def best_so_far(results: SweepResults) -> list[float]:
    """Return the best value after each trial that has one, in the order in which they ended."""
    ended = [trial for trial in results.trials if trial.value is not None]
    ended.sort(key=lambda each: (each.ended is None, each.ended or results.ended, each.name))
    better = max if results.space.goal is Goal.MAXIMIZE else min
    return list(accumulate((each.value for each in ended if each.value is not None), better))


async def png(sweeps: Sequence[SweepResults]) -> bytes:
    """Draw in a thread: it takes half a second of CPU, and three the first time."""
    return await asyncio.to_thread(_draw, sweeps)


def alt_text(sweeps: Sequence[SweepResults]) -> str:
    """Describe the picture. Only for sweeps with one objective (comparison.comparable)."""
    ends = [(each.sweep, found) for each in sweeps if (found := best_so_far(each))]
    facts = "; ".join(f"{name} {found[-1]:.6g} after {counted(len(found), 'trial')}" for name, found in ends)
    return f"Best {sweeps[0].space.metric} so far by trial. At the end: {facts or 'no values'}."


def _draw(sweeps: Sequence[SweepResults]) -> bytes:
    file = BytesIO()
    picture(sweeps).savefig(file, format="png")
    return file.getvalue()


def picture(sweeps: Sequence[SweepResults]) -> Any:
    """Return a matplotlib Figure. Its background is opaque, so it reads the same in Slack's dark mode."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes 40 MB, and most processes never draw

    figure = Figure(figsize=FIGURE_SIZE, dpi=DPI, layout="constrained")
    with_margin(figure)
    axes = figure.add_subplot()
    for each, (color, style) in zip(sweeps, STYLES, strict=False):
        values = best_so_far(each)
        label = f"{each.sweep}  {values[-1]:.4g}" if values else f"{each.sweep}  no result"
        line: dict[str, Any] = {"color": color, "linestyle": style, "linewidth": 4.0}
        drawn = [clipped(value) for value in values]
        axes.step(range(1, len(drawn) + 1), drawn, where="post", label=label, **line)
        if drawn:  # a line of one point is invisible
            axes.plot(len(drawn), drawn[-1], "o", color=color, markersize=12)
    _label(axes, sweeps)
    figure.legend(
        loc="outside lower center", ncols=1, fontsize=LABEL_SIZE, frameon=False, labelcolor=TEXT_COLOR
    )
    return figure


def _label(axes: Any, sweeps: Sequence[SweepResults]) -> None:
    values = [clipped(value) for each in sweeps for value in best_so_far(each)]
    if values and min(values) > 0 and max(values) / min(values) > LOG_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # 0.1 rather than a power of ten
    space = sweeps[0].space
    metric = space.metric if len(space.metric) <= 18 else f"{space.metric[:17]}…"
    axes.set_title(
        f"Best {metric} so far", fontsize=TITLE_SIZE, loc="left", color=TEXT_COLOR, parse_math=False
    )
    axes.set_xlabel("trials that ended with a value", fontsize=LABEL_SIZE, color=TEXT_COLOR)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=LABEL_SIZE, pad=8, colors=TEXT_COLOR)
    axes.grid(axis="y", color="#e5e5e5", linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
