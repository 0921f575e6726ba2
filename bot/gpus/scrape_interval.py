"""How often each exporter is scraped, by its own samples: pools differ, and settings change. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

RUNGS = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)  # seconds; each is a whole part of half an hour
LATE = 1.02  # a scrape may be that much later than its time
A_ROW = 10  # gaps that are compared with one another
USUAL = 1.5  # times their median; a longer one is an outage


@dataclass(frozen=True)
class Rhythm:
    """Seconds between two samples of each GPU."""

    by_gpu: Mapping[str, int]  # by UUID
    usual: int  # of a GPU that nothing is known of

    def of(self, device: str) -> int:
        """Of a GPU or one of its slices, as `Row.device` names them."""
        return self.by_gpu.get(device.partition("/")[0], self.usual)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({*self.by_gpu.values()} or {self.usual}))


def step_of(moments: Iterable[float]) -> int | None:
    """Return the slowest rhythm of a row of scrapes, in seconds; None for fewer than two.

    Slowest, because a step that is too long loses nothing, while one that is too short takes most of the time
    for unmeasured. Rounded up to one of a few, because each takes queries of its own.
    """
    gaps = [later - earlier for earlier, later in pairwise(sorted(moments))]
    rows = [gaps[at : at + A_ROW] for at in range(0, len(gaps), A_ROW)]
    whole = [row for row in rows if len(row) == A_ROW] or rows
    return _rung(max(map(_usual, whole))) if whole else None


def _usual(gaps: list[float]) -> float:
    usual = sorted(gap for gap in gaps if gap <= USUAL * median(gaps))
    return usual[round(0.9 * (len(usual) - 1))]


def _rung(seconds: float) -> int:
    return next((rung for rung in RUNGS if seconds <= rung * LATE), RUNGS[-1])
