"""Learning curves: the values that trials report while they run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pydantic import ConfigDict

MAX_FAILURES = 3  # failed readings in a row, a minute apart


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
    """The values that a sweep's trials had reported at one time, by trial."""

    latest: Mapping[str, Point] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)  # of those that were requested
    read: bool = False  # whether MLflow has answered
    failures: int = 0  # failed readings in a row; the values are then the last known ones
    at: float = field(default=0.0, compare=False)  # Unix seconds at its start
    since: float = field(default=0.0, compare=False)  # when the oldest trial that ran then had started

    @property
    def is_away(self) -> bool:
        """Whether MLflow is considered unavailable; one slow response isn't enough."""
        return self.failures >= MAX_FAILURES


def in_order(points: Iterable[Point]) -> Curve:
    """Sort points by step. If all steps are equal, as when none were logged, number the points instead."""
    found = sorted(points, key=lambda point: (point.step, point.at))
    if len(found) > 1 and found[-1].step == found[0].step:
        return tuple(Point(number, p.value, p.at) for number, p in enumerate(found, found[0].step + 1))
    return tuple(found)


def so_far(values: Sequence[float], strategy: str) -> list[float]:
    """Return the objective after each value: the min, max, or latest; NaN until a value is finite."""
    return list(accumulate(values, lambda before, value: better(before, value, strategy)))


def better(before: float, value: float, strategy: str) -> float:
    """Return the objective of two values; a value that isn't finite only counts for `latest`."""
    if strategy == "latest" or not math.isfinite(before):
        return value
    if not math.isfinite(value):
        return before
    return min(before, value) if strategy == "min" else max(before, value)
