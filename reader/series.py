"""What is kept of a metric: its tags, the rows for Katib's database, and how many points, how often, the
log's lines have. Pure.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from reader.events import Scalar

LINE_SECONDS = 10.0  # between two lines of a metric: the kubelet rotates logs at 10 MiB
OTHER_SECONDS = 60.0  # of a tag that is only printed
LATEST = 2**32  # Unix seconds: in 2106
MAX_POINTS = 20  # per line, plus those at rungs
OTHER_POINTS = 6  # of a tag that is only printed
MAX_OTHERS = 50  # such tags

# Step, value, Unix seconds, and the least and the greatest value so far.
Point = tuple[int, float, float, float | None, float | None]
Row = tuple[str, str, str]  # time, metric, value


@dataclass
class Series:
    """One metric, in constant memory.

    Early stopping compares trials at `rungs`: the first point at or after each of these steps is in the log,
    whatever else is left out there.
    """

    metric: str
    rungs: list[int] = field(default_factory=list)  # ascending, those that weren't reached yet
    pause: float = LINE_SECONDS
    most: int = MAX_POINTS
    tag: str = ""  # printed, too, if the metric's name has its folder
    count: int = 0
    first: Scalar | None = None  # these three are finite
    least: Scalar | None = None
    greatest: Scalar | None = None
    last: Scalar | None = None  # by time: a restarted training repeats steps
    printed: float = -math.inf  # when, by the caller's clock
    _step: int = 0  # of the first point
    _varied: bool = False  # whether steps differ
    _points: list[Point] = field(default_factory=list)
    _at_rungs: list[Point] = field(default_factory=list)
    _newest: Point | None = None
    _stride: int = 1  # one of so many points is kept
    _skipped: int = 0

    def add(self, scalar: Scalar) -> None:
        self.count += 1
        self._step = scalar.step if self.count == 1 else self._step
        self._varied |= scalar.step != self._step
        if self.last is None or (scalar.at, scalar.step) >= (self.last.at, self.last.step):
            self.last = scalar
        if math.isfinite(scalar.value):
            self.first = self.first or scalar
            self.least = scalar if self.least is None or scalar.value < self.least.value else self.least
            above = self.greatest is None or scalar.value > self.greatest.value
            self.greatest = scalar if above else self.greatest
        # Without steps, all are equal: the points are then numbered.
        step = scalar.step if self._varied or self.count == 1 else self._step + self.count
        least = None if self.least is None else self.least.value
        greatest = None if self.greatest is None else self.greatest.value
        self._note((step, scalar.value, scalar.at, least, greatest))

    def _note(self, point: Point) -> None:
        reached = bool(self.rungs) and point[0] >= self.rungs[0]
        while self.rungs and point[0] >= self.rungs[0]:
            self.rungs.pop(0)
        if reached:
            self._at_rungs.append(point)
        self._newest, self._skipped = point, self._skipped + 1
        if self._skipped < self._stride:
            return
        self._points, self._skipped = [*self._points, point], 0
        if len(self._points) == self.most:
            self._points, self._stride = self._points[1::2], self._stride * 2

    def line(self) -> str:
        """Return the points since the last line as JSON, "" without any. NaN and infinity are texts."""
        kept = {*self._points, *self._at_rungs, *([self._newest] if self._newest else [])}
        points = sorted(kept, key=lambda point: (point[2], point[0]))
        self._points, self._at_rungs, self._newest, self._skipped = [], [], None, 0
        self._stride = 1
        written = [[_number(each) for each in point] for point in points]
        name = {"metric": self.metric} | ({"tag": self.tag} if self.tag else {})
        return json.dumps({**name, "points": written}) if points else ""

    def rows(self) -> list[Row]:
        """Return the first, least, greatest, and last value, in order of their times.

        Katib takes the min and max of all rows, so these must be finite where one is, and as `latest` any of
        the rows with the latest time, so all times differ.
        """
        kept = {s for s in (self.last, self.first, self.least, self.greatest) if s}  # of equal ones, the last
        before, rows = datetime.min.replace(tzinfo=UTC), []
        for each in sorted(kept, key=lambda s: (s is self.last, s.at, s.step)):
            before = max(_time(each.at), before + timedelta(microseconds=1))
            rows.append((f"{before:%Y-%m-%dT%H:%M:%S.%f}Z", self.metric, repr(each.value)))
        return rows


class Metrics:
    """All that a training logs: the metrics to report, and up to MAX_OTHERS other tags, which are printed."""

    def __init__(self, reported: Sequence[str], rungs: Sequence[int]) -> None:
        self.reported = {name: Series(name, list(rungs)) for name in reported}
        self._others: dict[str, Series] = {}

    @property
    def all(self) -> list[Series]:
        return [*self.reported.values(), *self._others.values()]

    def add(self, folder: str, scalar: Scalar) -> None:
        meant = names(folder, scalar.tag)
        found = [self.reported[name] for name in meant if name in self.reported]
        for each in found or self._other(meant[-1], scalar.tag if folder else ""):
            each.add(scalar)

    def _other(self, name: str, tag: str) -> list[Series]:
        if name not in self._others and len(self._others) < MAX_OTHERS:
            self._others[name] = Series(name, pause=OTHER_SECONDS, most=OTHER_POINTS, tag=tag)
        return [self._others[name]] if name in self._others else []


def names(folder: str, tag: str) -> Sequence[str]:
    """Return by which names of metrics a tag is meant: `loss`, or with its folder `validation/loss`."""
    return (tag, f"{folder}/{tag}") if folder else (tag,)


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else repr(value)


def _time(at: float) -> datetime:
    """Return the time; of one that can't be right, 1970."""
    return datetime.fromtimestamp(at if 0 <= at < LATEST else 0, UTC)
