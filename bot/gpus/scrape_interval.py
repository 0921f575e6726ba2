"""Estimate each exporter's scrape interval from its samples: node pools differ, settings change. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

STANDARD_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)  # seconds; each divides 30 min
JITTER = 1.02  # a scrape may be that much later than its interval
RUN_LENGTH = 10  # gaps that are compared with one another
OUTAGE = 1.5  # times the median gap of a run; a longer gap is an outage


@dataclass(frozen=True)
class ScrapeIntervals:
    """Seconds between two samples of each GPU."""

    by_gpu: Mapping[str, int]  # by UUID
    default: int  # of a GPU without measurements

    def of(self, device: str) -> int:
        """Return the interval of a GPU or of one of its MIG slices, named as by `Row.device`."""
        return self.by_gpu.get(device.partition("/")[0], self.default)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the distinct intervals in use, the shortest first."""
        return tuple(sorted({*self.by_gpu.values()} or {self.default}))


def scrape_interval(*scrapers: Iterable[float]) -> int | None:
    """Return the longest interval that an exporter's scrapes had, in seconds; None for fewer than two.

    Args:
        scrapers: the times of each one's scrapes. Two jobs or two replicas of Prometheus can scrape an
            exporter at different seconds of the same interval.

    An interval that is too long loses nothing; one that is too short leaves most of the time unmeasured.
    Rounded up to one of a few, because each distinct interval takes its own queries.
    """
    gaps = [later - earlier for times in scrapers for earlier, later in pairwise(sorted(times))]
    runs = [gaps[at : at + RUN_LENGTH] for at in range(0, len(gaps), RUN_LENGTH)]
    full = [run for run in runs if len(run) == RUN_LENGTH] or runs
    return _rounded_up(max(map(_typical, full))) if full else None


def _typical(gaps: list[float]) -> float:
    typical = sorted(gap for gap in gaps if gap <= OUTAGE * median(gaps))
    return typical[round(0.9 * (len(typical) - 1))]


def _rounded_up(seconds: float) -> int:
    standard = (each for each in STANDARD_INTERVALS if seconds <= each * JITTER)
    return next(standard, STANDARD_INTERVALS[-1])
