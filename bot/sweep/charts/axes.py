"""Axes of a sweep's picture, for any value and any name: log scales, ranges that one diverged trial doesn't
flatten, ticks, cut names, legends. Pure.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from bot.core.space import Goal, Parameter
from bot.sweep.charts import palette
from bot.sweep.results.models import TrialResult
from bot.sweep.results.ranking import clipped, number
from bot.text.wording import printable

TITLE, LABEL = 22, 18  # points: 11 and 9 on a phone that shows 8 inches in 400 pixels
DOT = 60  # square points
POINTS_MAX = 5_000
NAME_MAX = 18  # characters
CATEGORIES_MAX = 8  # with a label

T = TypeVar("T")


def shown(text: str, most: int = NAME_MAX) -> str:
    """Return a name on one line; a long one is cut in the middle, where names differ least."""
    clean, half = printable(text), most // 2
    return clean if len(clean) <= most else f"{clean[: half - 1]}…{clean[-(most - half) :]}"


def objective_range(goal: Goal, finite: Sequence[float]) -> tuple[float, float]:
    """Return the values between which the objective is drawn: a diverged trial must not flatten the others.

    On the bad side, the range ends two interquartile ranges from the quartile; values beyond are drawn there.
    """
    values = sorted(clipped(value) for value in finite)
    first, third = values[len(values) // 4], values[-1 - len(values) // 4]
    far = 2 * (third - first)
    if goal is Goal.MAXIMIZE:
        return (max(values[0], first - far) if far else values[0]), values[-1]
    return values[0], (min(values[-1], third + far) if far else values[-1])


def dots(
    axes: Any,
    points: Sequence[tuple[float, float]],
    ends: tuple[float, float],
    *,
    above: str = "",
    **more: Any,
) -> None:
    """Draw points; those beyond `ends` as triangles at the end, labeled `above`."""
    drawn = points[:: max(1, math.ceil(len(points) / POINTS_MAX))]  # evenly spread
    inside = [(x, y) for x, y in drawn if ends[0] <= y <= ends[1]]
    axes.scatter([x for x, _ in inside], [y for _, y in inside], s=DOT, linewidth=0, **more)
    for marker, end, far in (
        ("^", ends[1], [x for x, y in drawn if y > ends[1]]),
        ("v", ends[0], [x for x, y in drawn if y < ends[0]]),
    ):
        if far:
            look = more | {"label": above, "marker": marker, "color": palette.OUTLIER}
            axes.scatter(far, [end] * len(far), s=DOT * 1.5, linewidth=0, **look)


class Scale:
    """One parameter's axis: where each trial lies on it."""

    def __init__(self, parameter: Parameter, trials: Sequence[TrialResult]) -> None:
        self.name, self._parameter = parameter.name, parameter
        self.is_conditional = bool(parameter.when)  # some trials have no value, by their other parameters
        self._categories: dict[str, int] = {}
        if parameter.values:
            given = {trial.parameters.get(parameter.name, "") for trial in trials}
            known = [value for value in parameter.values if value in given]
            self._categories = {value: place for place, value in enumerate(known)}
        self.positions = [self.position(trial) for trial in trials]
        self._known = [position for position in self.positions if position is not None]
        self._low, self._high = min(self._known, default=0.0), max(self._known, default=0.0)
        self.log = parameter.log and self._low > 0

    @property
    def varies(self) -> bool:
        return len(set(self._known)) > 1

    @property
    def title(self) -> str:
        many = len(self._categories)
        more = f" ({many} values)" if many > CATEGORIES_MAX else " (log)" if self.log else ""
        return f"{shown(self.name)}{more}"

    def position(self, trial: TrialResult) -> float | None:
        text = trial.parameters.get(self.name, "")
        if self._parameter.values:
            place = self._categories.get(text)
            return None if place is None else float(place)
        return number(text)

    def share(self, position: float) -> float:
        """Return where a position lies between the axis' ends, 0 to 1."""
        low, high = self._low, self._high
        if self.log:
            low, high, position = math.log(low), math.log(high), math.log(position)
        return (position - low) / (high - low)

    def ends(self, most: int) -> tuple[str, str]:
        """Return the labels of both ends, of at most `most` characters."""
        if self._categories:
            names = list(self._categories)
            return shown(names[0], most), shown(names[-1], most)
        return _tick(self._low), _tick(self._high)

    def apply(self, axes: Any) -> None:
        if self.log:
            from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415  see picture

            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(numticks=4))  # powers of ten
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
            axes.xaxis.set_minor_locator(NullLocator())
        elif self._categories:
            few = len(self._categories) <= CATEGORIES_MAX
            names = (
                [shown(name, max(3, 22 // len(self._categories))) for name in self._categories] if few else []
            )
            axes.set_xticks(range(len(names)), names)
            axes.set_xlim(-0.5, len(self._categories) - 0.5)
        else:
            axes.xaxis.get_major_locator().set_params(nbins=4, integer=self._parameter.integer)


def _tick(value: float) -> str:
    """Format a number in few characters: `0.01`, `254`, `1e-4`."""
    size = abs(value)
    if 99.5 <= size < 99_999.5:
        return f"{value:.0f}"
    text = f"{value:.2g}" if not value or 0.001 <= size < 99.5 else f"{value:.1e}"
    return text.replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")


def legend(axes: Any, columns: int = 4, handle: float = 1.0) -> None:
    """Put the legend below the axes, where it hides no point."""
    look = {"frameon": False, "handlelength": handle, "columnspacing": 1.2, "markerscale": 0.6}
    axes.legend(fontsize=LABEL - 3, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=columns, **look)


def style(axes: Any, title: str, right: str = "", *, size: int = TITLE) -> None:
    axes.set_title(title, fontsize=size, loc="left")
    if right:
        axes.set_title(right, fontsize=LABEL - 2, loc="right", color=palette.NOTE)
    axes.tick_params(labelsize=LABEL, pad=6)
    axes.xaxis.get_offset_text().set_fontsize(LABEL - 2)
    axes.yaxis.get_offset_text().set_fontsize(LABEL - 2)
    axes.spines[["top", "right"]].set_visible(False)
