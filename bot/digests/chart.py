"""Draw the day's GPUs as a stacked bar chart, readable on a phone and by the color-blind."""

from typing import Any

from bot.charts.png import drawn
from bot.digests.figures import Figures
from bot.text.wording import day_text

# Okabe and Ito's palette, which also differs in lightness; unknown and unhealthy are hatched.
SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("used", "used", {"facecolor": "#0072b2"}),
    ("unused", "allocated, not used", {"facecolor": "#e69f00"}),
    ("unknown", "unknown", {"facecolor": "#ffffff", "edgecolor": "#888888", "hatch": "///"}),
    ("free", "free", {"facecolor": "#b5dccb"}),
    ("unhealthy", "unhealthy", {"facecolor": "#333333", "edgecolor": "#bbbbbb", "hatch": "xx"}),
)
FIGURE_SIZE, DPI = (8.0, 5.6), 150  # inches; 1200 pixels wide, which a phone shows in 400
TITLE_SIZE, LABEL_SIZE = 24, 20  # points: 12 and 10 on such a phone
VISIBLE = 0.05  # GPUs; smaller kinds get no legend entry


async def png(figures: Figures) -> bytes:
    return await drawn(picture, figures)


def alt_text(figures: Figures) -> str:
    kinds = [("capacity", "capacity"), *((kind, label) for kind, label, _ in SERIES)]
    sums = [(label, sum(getattr(step, kind) for step in figures.steps)) for kind, label in kinds]
    totals = "; ".join(f"{label} {hours:,.0f}" for label, hours in sums if round(hours))
    day = f"{figures.day:%B} {figures.day.day}, {figures.day.year}"
    return f"Chart of all GPUs by hour on {day}. GPU-hours: {totals or 'none'}."


def picture(figures: Figures) -> Any:
    """Return a matplotlib Figure."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes 40 MB, and most processes never draw

    figure = Figure(figsize=FIGURE_SIZE, dpi=DPI, layout="constrained")
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
    figure.legend(
        loc="outside lower center",
        ncols=3,
        fontsize=LABEL_SIZE,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.0,
    )
    return figure


def _label(axes: Any, figures: Figures, top: float) -> None:
    """Label hours in the digest's time zone; a day of 25 hours has one label twice."""
    every = [number for number, step in enumerate(figures.steps) if step.hour.hour % 6 == 0]
    axes.set_title(f"GPUs, {figures.day:%a}, {day_text(figures.day)}", fontsize=TITLE_SIZE, loc="left")
    axes.set_xticks(every, [f"{figures.steps[number].hour:%H:%M}" for number in every])
    axes.set_xlim(0, len(figures.steps))
    axes.set_ylim(0, max(top, 1.0) * 1.02)
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=LABEL_SIZE, pad=8)
    axes.spines[["top", "right"]].set_visible(False)
