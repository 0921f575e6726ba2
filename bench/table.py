"""The rows of the benchmark table: how they are compared, printed, and written to bench/results/.

Absolute times depend on the machine and its load. Rows therefore compare two measurements that alternate in
the same run, and a goal is a limit on their ratio, round by round.
"""

import json
import os
import platform
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("redis", "hiredis", "slack-bolt", "slack-sdk", "uvicorn", "aiohttp", "kubernetes", "pydantic")
COLUMNS = ("what", "against", "measured", "ratio", "goal", "met")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. `met` is None if the row has no goal.

    `samples`: the figures behind `measured`, by name, for the file.
    """

    what: str
    against: str
    measured: str
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)


def compared(
    what: str,
    against: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    unit: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """Compare alternating measurements: the ratio is the median of the ratios of each round."""
    ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
    return Row(
        what=what,
        against=against,
        measured=f"{spread(ours, unit)} vs {spread(theirs, unit)}",
        ratio=round(ratio, 3),
        samples={"ours": list(ours), "theirs": list(theirs)},
        **_goal(ratio, "x", at_most, at_least),
    )


def bounded(
    what: str, figures: Sequence[float], *, unit: str, at_most: float | None, against: str = ""
) -> Row:
    """Hold the median of `figures` under a limit in their own unit."""
    return Row(
        what=what,
        against=against,
        measured=spread(figures, unit),
        samples={"ours": list(figures)},
        **_goal(median(figures), f" {unit}", at_most, None),
    )


def _goal(figure: float, unit: str, at_most: float | None, at_least: float | None) -> dict[str, Any]:
    if at_most is not None:
        return {"goal": f"at most {at_most:g}{unit}", "met": figure <= at_most}
    if at_least is not None:
        return {"goal": f"at least {at_least:g}{unit}", "met": figure >= at_least}
    return {}


def spread(figures: Sequence[float], unit: str) -> str:
    """Return the median, and the range if there is one: `1.2 ms (1.1-1.4)`."""
    low, middle, high = (_number(each) for each in (min(figures), median(figures), max(figures)))
    return f"{middle} {unit}" + (f" ({low}-{high})" if low != high else "")


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


async def interleaved(
    rounds: int, *measures: Callable[[], Awaitable[Any]], warm_up: bool = True
) -> list[list[Any]]:
    """Alternate the measurements, A B A B ...; return the results of each. The first round isn't counted."""
    taken: list[list[Any]] = [[] for _ in measures]
    for number in range(rounds + warm_up):
        order = list(enumerate(measures))
        for index, measure in order if number % 2 else reversed(order):
            result = await measure()
            if number >= warm_up:
                taken[index].append(result)
    return taken


def table(rows: Sequence[Row]) -> str:
    lines = [COLUMNS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[row.met]
    ratio = f"{row.ratio:.3g}x" if row.ratio is not None else ""
    return row.what, row.against, row.measured, ratio, row.goal, met


def summary(rows: Sequence[Row]) -> str:
    goals = [row for row in rows if row.met is not None]
    return f"goals met {sum(1 for row in goals if row.met)} of {len(goals)}"


async def part(what: str, measuring: Awaitable[list[Row]]) -> list[Row]:
    """Return the rows of a group, or of a part of one; if it fails, one row that says why."""
    try:
        return await measuring
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return [Row(what=what, against="", measured=f"failed: {reason(error)}", goal="runs", met=False)]


def reason(error: BaseException) -> str:
    """Return an error's type and text in one line; of a group of errors, those of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def write(
    group: str, rows: Sequence[Row], seconds: float, code: Mapping[str, str], folder: Path = RESULTS
) -> None:
    """Write the results of a group that took so many seconds, and measured this code."""
    folder.mkdir(exist_ok=True)
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "machine": {**machine(), **code},
        "versions": {name: version(name) for name in PACKAGES},
        "rows": [asdict(row) for row in rows],
    }
    (folder / f"{group}.json").write_text(json.dumps(document, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Describe the machine. `load`: of the last minute, including other programs."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }
