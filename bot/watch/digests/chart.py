"""Draw a digest's chart, the day's GPUs as stacked bars, and word its alternative text, readable on a phone
and by the color-blind.
"""

from typing import Any

from bot.sweep.charts.palette import (
    BLUE,
    DARK,
    HATCH,
    HATCH_ON_DARK,
    LABEL_SIZE,
    ORANGE,
    PALE_GREEN,
    PURPLE,
    SKY,
    TITLE_SIZE,
    WHITE,
    drawn,
    legend_below,
    new_figure,
)
from bot.text.wording import day_text
from bot.watch.digests.figures import Figures

SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("used", "used", {"facecolor": BLUE}),
    ("pauses", "pauses", {"facecolor": SKY}),
    ("idle", "idle", {"facecolor": ORANGE}),
    ("unknown", "unknown", {"facecolor": WHITE, "edgecolor": HATCH, "hatch": "///"}),
    ("reserved", "reserved", {"facecolor": PURPLE}),
    ("free", "free", {"facecolor": PALE_GREEN}),
    ("unhealthy", "unhealthy", {"facecolor": DARK, "edgecolor": HATCH_ON_DARK, "hatch": "xx"}),
)
HEIGHT = 5.6  # inches
OF_ALL = "GPUs of all teams"  # also in a team's digest: free ones belong to no team
VISIBLE = 0.05  # GPUs; smaller kinds get no legend entry


async def png(figures: Figures) -> bytes:
    return await drawn(picture, figures)


def alt_text(figures: Figures) -> str:
    kinds = [("capacity", "capacity"), *((kind, label) for kind, label, _ in SERIES)]
    sums = [(label, sum(getattr(step, kind) for step in figures.steps)) for kind, label in kinds]
    totals = "; ".join(f"{label} {hours:,.0f}" for label, hours in sums if round(hours))
    day = f"{figures.day:%B} {figures.day.day}, {figures.day.year}"
    gpus = OF_ALL if figures.schedule.team else "all GPUs"
    return f"Chart of {gpus} by hour on {day}. GPU-hours: {totals or 'none'}."


def picture(figures: Figures) -> Any:
    """Return a matplotlib Figure."""
    figure = new_figure(HEIGHT)
    axes = figure.add_subplot()
    below = [0.0] * len(figures.steps)
    hours = range(len(figures.steps))
    for kind, label, style in SERIES:
        heights = [getattr(step, kind) for step in figures.steps]
        if any(height >= VISIBLE for height in heights):
            axes.bar(hours, heights, 1.0, bottom=below, align="edge", label=label, linewidth=0, **style)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    capacity = [step.capacity for step in figures.steps]
    axes.stairs(capacity, [*hours, len(hours)], baseline=None, color="black", linewidth=3, label="capacity")
    _label(axes, figures, max(*below, *capacity, 0.0))
    legend_below(figure, columns=3, handlelength=1.2, columnspacing=1.0)
    return figure


def _label(axes: Any, figures: Figures, top: float) -> None:
    """Label hours in the digest's time zone; a day of 25 hours has one label twice."""
    every = [number for number, step in enumerate(figures.steps) if step.hour.hour % 6 == 0]
    gpus = OF_ALL if figures.schedule.team else "GPUs"
    title = f"{gpus}, {figures.day:%a}, {day_text(figures.day)}"
    axes.set_title(title, fontsize=TITLE_SIZE, loc="left")
    axes.set_ylabel("GPUs, hourly mean", fontsize=LABEL_SIZE)
    axes.set_xlabel(f"Hour, {figures.schedule.timezone}", fontsize=LABEL_SIZE)
    axes.set_xticks(every, [f"{figures.steps[number].hour:%H:%M}" for number in every])
    axes.set_xlim(0, len(figures.steps))
    axes.set_ylim(0, max(top, 1.0) * 1.02)
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=LABEL_SIZE, pad=8)
    axes.spines[["top", "right"]].set_visible(False)
