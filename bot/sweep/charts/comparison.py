"""Draw the picture of `/sweep compare`, with its alternative text, readable on a phone and by the
color-blind.

Above, the best value so far; below, the learning curve of each sweep's best trial, if any is stored.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from bot.core.curves import Curve
from bot.core.space import Goal
from bot.sweep.charts.curves import log_scale, points
from bot.sweep.charts.palette import HEIGHT, STYLES, drawn, label_lines, legend_below, new_figure
from bot.sweep.results.models import SweepResults
from bot.sweep.results.ranking import clipped
from bot.text.wording import counted, shortened

MAX_METRIC = 18  # characters in a title


def best_so_far(results: SweepResults) -> list[float]:
    """Return the best value after each trial that has one, in the order in which they ended."""
    ended = [trial for trial in results.trials if trial.value is not None]
    ended.sort(key=lambda each: (each.ended is None, each.ended or results.ended, each.name))
    better = max if results.space.goal is Goal.MAXIMIZE else min
    return list(accumulate((each.value for each in ended if each.value is not None), better))


def best_curves(sweeps: Sequence[SweepResults]) -> dict[str, Curve]:
    """Return the learning curve of the best trial by sweep; sweeps without a stored one are left out."""
    return {each.sweep: curve for each in sweeps if (curve := each.curves.get(each.best))}


async def png(sweeps: Sequence[SweepResults]) -> bytes:
    return await drawn(picture, sweeps)


def alt_text(sweeps: Sequence[SweepResults]) -> str:
    """Describe the picture. Only for sweeps with one objective (comparison.comparable)."""
    ends = [(each.sweep, found) for each in sweeps if (found := best_so_far(each))]
    facts = "; ".join(f"{name} {found[-1]:.6g} after {counted(len(found), 'trial')}" for name, found in ends)
    drawn = " Below, the learning curve of each sweep's best trial." if best_curves(sweeps) else ""
    return f"Best {sweeps[0].space.metric} so far by trial. At the end: {facts or 'no values'}.{drawn}"


def picture(sweeps: Sequence[SweepResults]) -> Any:
    """Return a matplotlib Figure."""
    curves = best_curves(sweeps)
    figure = new_figure(HEIGHT * (1.7 if curves else 1))
    rows = figure.subplots(2 if curves else 1, squeeze=False)
    axes = rows[0, 0]
    for each, (color, style) in zip(sweeps, STYLES, strict=False):
        values = best_so_far(each)
        label = f"{each.sweep}  {values[-1]:.4g}" if values else f"{each.sweep}  no result"
        line: dict[str, Any] = {"color": color, "linestyle": style, "linewidth": 4.0}
        drawn = [clipped(value) for value in values]
        axes.step(range(1, len(drawn) + 1), drawn, where="post", label=label, **line)
        if drawn:  # a line of one point is invisible
            axes.plot(len(drawn), drawn[-1], "o", color=color, markersize=12)
    values = [clipped(value) for each in sweeps for value in best_so_far(each)]
    _label(
        axes,
        f"Best {shortened(sweeps[0].space.metric, MAX_METRIC)} so far",
        "trials that ended with a value",
        values,
    )
    labels = axes.get_legend_handles_labels()
    if curves:
        _draw_curves(rows[1, 0], sweeps, curves)
    legend_below(figure, *labels, columns=1)
    return figure


def _draw_curves(axes: Any, sweeps: Sequence[SweepResults], curves: Mapping[str, Curve]) -> None:
    """Draw each sweep's curve in the color that it has above."""
    values: list[float] = []
    for each, (color, style) in zip(sweeps, STYLES, strict=False):
        if curve := curves.get(each.sweep):
            steps, drawn = points(curve)
            axes.plot(steps, drawn, color=color, linestyle=style, linewidth=4.0)
            if len(steps) == 1:  # a line of one point is invisible
                axes.plot(steps, drawn, "o", color=color, markersize=12)
            values += [value for value in drawn if math.isfinite(value)]
    _label(axes, f"{shortened(sweeps[0].space.metric, MAX_METRIC)} of the best trials", "step", values)


def _label(axes: Any, title: str, below: str, values: Sequence[float]) -> None:
    log_scale(axes, values)
    label_lines(axes, title, below)
