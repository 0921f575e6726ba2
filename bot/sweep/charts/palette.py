"""How all charts look: colors, sizes, axes; and how they become PNG files.

The colors are Okabe and Ito's, which the color-blind can tell apart and which differ in lightness. Yellow is
left out: it is too light for a line. Backgrounds are opaque, so that charts look the same in the dark mode.
"""

import asyncio
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeVar

BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = (
    *("#0072b2", "#56b4e9", "#009e73"),
    *("#e69f00", "#d55e00", "#cc79a7"),
)
LINE, BEST, OUTLIER = BLUE, ORANGE, VERMILION
TEXT, NOTE, MUTED, OTHERS, AXIS, GRID = "#222222", "#555555", "#999999", "#c4c4c4", "#cccccc", "#e5e5e5"
PALE_GREEN, WHITE, DARK, HATCH, HATCH_ON_DARK = "#b5dccb", "#ffffff", "#333333", "#888888", "#bbbbbb"
# Of lines that are compared: color and style.
STYLES = (
    (BLUE, "-"),
    (VERMILION, "--"),
    (GREEN, "-."),
    (PURPLE, ":"),
    (ORANGE, (0, (5, 1, 1, 1, 1, 1))),
    (SKY, (0, (8, 2))),
)
WIDTH, HEIGHT, DPI = 8.0, 6.4, 150  # inches; 1200 pixels wide, which a phone shows in 400
TITLE_SIZE, LABEL_SIZE = 24, 20  # points: 12 and 10 on such a phone

T = TypeVar("T")


def new_figure(height: float = HEIGHT) -> Any:
    """Return an empty matplotlib Figure of this height in inches."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes 40 MB, and most processes never draw

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    margins: Any = figure.get_layout_engine()
    margins.set(w_pad=0.12, h_pad=0.08)  # keeps text off the edges; matplotlib's default is 0.04 inches
    return figure


def label_lines(axes: Any, title: str, below: str) -> None:
    """Title the axes of lines by trial or step, and label what is below them."""
    axes.set_title(title, fontsize=TITLE_SIZE, loc="left", color=TEXT, parse_math=False)
    axes.set_xlabel(below, fontsize=LABEL_SIZE, color=TEXT)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.tick_params(labelsize=LABEL_SIZE, pad=8, colors=TEXT)
    axes.grid(axis="y", color=GRID, linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Any, *labels: Sequence[Any], columns: int, **more: Any) -> None:
    """Put the legend below all axes, where it hides no line."""
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "fontsize": LABEL_SIZE}
    figure.legend(*labels, **place, frameon=False, labelcolor=TEXT, **more)


def png_of(figure: Any) -> bytes:
    """`figure`: a matplotlib Figure."""
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


async def drawn(picture: Callable[[T], Any], content: T) -> bytes:
    """Draw in a thread: it takes half a second of CPU, and three the first time."""
    return await asyncio.to_thread(lambda: png_of(picture(content)))
