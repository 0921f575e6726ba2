"""The day's GPUs as a picture that can be read on a phone, also by the colour-blind."""

import asyncio
from io import BytesIO
from typing import Any

from bot.digests.figures import Figures

# Okabe and Ito's colours, different in lightness, too; hatched is what is not known or broken.
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("used", "used", {"facecolor": "#0072b2"}),
    ("unused", "held, not used", {"facecolor": "#e69f00"}),
    ("unknown", "unknown", {"facecolor": "#ffffff", "edgecolor": "#888888", "hatch": "///"}),
    ("free", "free", {"facecolor": "#b5dccb"}),
    ("unhealthy", "unhealthy", {"facecolor": "#333333", "edgecolor": "#bbbbbb", "hatch": "xx"}),
)
INCHES, DOTS = (8.0, 5.6), 150  # 1200 dots wide, which a phone shows in 400
LARGE, USUAL = 24, 20  # points: 12 and 10 on such a phone
VISIBLE = 0.05  # GPUs


async def png(figures: Figures) -> bytes:
    """In a thread: drawing takes a processor half a second, and the first time three."""
    return await asyncio.to_thread(_drawn, figures)


def alt_text(figures: Figures) -> str:
    kinds = [("capacity", "capacity"), *((kind, label) for kind, label, _ in KINDS)]
    sums = [(sum(getattr(step, kind) for step in figures.steps), label) for kind, label in kinds]
    said = ", ".join(f"{hours:,.0f} {label}" for hours, label in sums if round(hours))
    return f"Chart of all GPUs on {figures.day:%d %B %Y}, hour by hour. GPU-hours: {said or 'none'}."


def _drawn(figures: Figures) -> bytes:
    file = BytesIO()
    picture(figures).savefig(file, format="png")
    return file.getvalue()


def picture(figures: Figures) -> Any:
    """A matplotlib Figure."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - 40 MB, and most processes never draw

    figure = Figure(figsize=INCHES, dpi=DOTS, layout="constrained")
    axes = figure.add_subplot()
    below = [0.0] * len(figures.steps)
    hours = range(len(figures.steps))
    for kind, label, style in KINDS:
        heights = [getattr(step, kind) for step in figures.steps]
        if any(height >= VISIBLE for height in heights):
            axes.bar(hours, heights, 1.0, bottom=below, align="edge", label=label, linewidth=0, **style)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    capacity = [step.capacity for step in figures.steps]
    axes.stairs(capacity, [*hours, len(hours)], baseline=None, color="black", linewidth=3, label="capacity")
    _label(axes, figures, max(*below, *capacity, 0.0))
    figure.legend(loc="outside lower center", ncols=3, fontsize=USUAL, frameon=False, handlelength=1.2)
    return figure


def _label(axes: Any, figures: Figures, top: float) -> None:
    """The hours as clocks there showed them, so a day of 25 has one twice."""
    every = [number for number, step in enumerate(figures.steps) if step.hour.hour % 6 == 0]
    axes.set_title(f"GPUs, {figures.day:%a %d %b}", fontsize=LARGE, loc="left")
    axes.set_xticks(every, [f"{figures.steps[number].hour:%H:%M}" for number in every])
    axes.set_xlim(0, len(figures.steps))
    axes.set_ylim(0, max(top, 1.0) * 1.02)
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=USUAL, pad=8)
    axes.spines[["top", "right"]].set_visible(False)
