"""Learning curves: what trials report while they run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pydantic import ConfigDict

AWAY_AFTER = 3  # failed readings in a row, a minute apart


@dataclass(frozen=True)
class Point:
    """One reported value, which can be NaN or infinite. `at`: Unix seconds, by the reporter's clock."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")

    step: int
    value: float
    at: float = 0.0


Curve = tuple[Point, ...]  # by step


@dataclass(frozen=True, kw_only=True)
class LiveReading:
    """What a sweep's trials had reported at one moment, by trial."""

    latest: Mapping[str, Point] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)  # of those that were requested
    failures: int = 0  # readings in a row that failed; the values are then the last known ones

    @property
    def is_away(self) -> bool:
        """Whether MLflow counts as unavailable: one slow answer doesn't."""
        return self.failures >= AWAY_AFTER


def in_order(points: Iterable[Point]) -> Curve:
    """Sort points by step. A curve logged without steps, which are all 0 then, counts its reports."""
    found = sorted(points, key=lambda point: (point.step, point.at))
    if len(found) > 1 and found[-1].step == found[0].step:
        return tuple(Point(number, p.value, p.at) for number, p in enumerate(found, found[0].step + 1))
    return tuple(found)


def so_far(values: Sequence[float], strategy: str) -> list[float]:
    """Return what counts after each value: the min, the max, or the latest; NaN until one is finite."""
    return list(accumulate(values, lambda before, value: better(before, value, strategy)))


def better(before: float, value: float, strategy: str) -> float:
    """Return which of two values counts; one that isn't finite never does, except the latest."""
    if strategy == "latest" or not math.isfinite(before):
        return value
    if not math.isfinite(value):
        return before
    return min(before, value) if strategy == "min" else max(before, value)
