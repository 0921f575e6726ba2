"""Read the learning curves in the logs of trials that print their metric, or have the reader of event files.

A log is read on from where the last reading ended, in pieces of MAX_PIECE bytes. Of the training's own
output, a step is the number of the report, as Katib's medianstop counts. The values at rungs are kept, which
early stopping needs, and a curve of some points. The lines of the reader are those of `reader/series.py`.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ConfigDict

from bot.core.curves import Curve, Point, better, in_order
from bot.core.plan import SweepPlan
from bot.core.space import MetricSource
from bot.sweep.spaces.metrics import line_filter
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.pods import READER, Pod
from k8s.trial_kinds import JOB

MAX_PIECE = 2**20  # bytes of one log and reading; a log that grows faster is read behind the training
MAX_LINE = 2**14  # characters that are searched; the kubelet's runtime splits lines there
READ_TIMEOUT = 5.0  # seconds of one log
PARALLEL = 5  # logs
MAX_CURVE = 200  # points that are kept of one metric of a trial, evenly spaced
MAX_NAMES = 50  # metrics of a trial that are only named
LATEST = 2**32  # Unix seconds: in 2106
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* ")  # the kubelet's own messages have none


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Up to MAX_CURVE evenly spaced points of a curve, and the newest one, in the order of their times."""

    points: Curve = ()
    newest: Point | None = None
    count: int = 0  # of all points
    stride: int = 1  # one of so many is kept

    def extended(self, points: Iterable[Point]) -> "Sample":
        kept, newest, count, stride = list(self.points), self.newest, self.count, self.stride
        for newest in points:
            if count % stride == 0:
                kept.append(newest)
            count += 1
            if len(kept) == MAX_CURVE:
                kept, stride = kept[::2], 2 * stride
        return Sample(points=tuple(kept), newest=newest, count=count, stride=stride)

    @property
    def curve(self) -> Curve:
        left = [self.newest] if self.newest and (self.count - 1) % self.stride else []
        return in_order([*self.points, *left])


@dataclass(frozen=True, kw_only=True)
class LogCurve:
    """What was read of one trial's log."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")

    pod: str  # LogSource.key
    cursor: str = ""  # the kubelet's timestamp of the last line
    reports: int = 0  # or the highest step, of the reader's lines
    value: float = math.nan  # the objective of all reports
    latest: Point | None = None
    points: Curve = ()  # the report at each rung, with the objective up to it
    samples: dict[str, Sample] = field(default_factory=dict)  # by metric
    names: tuple[str, ...] = ()  # of what else the training logs
    complete: bool = False  # the pod has finished, and its log was read to the end

    def curve(self, metric: str) -> Curve:
        return self.samples.get(metric, Sample()).curve


@dataclass(frozen=True, kw_only=True)
class LogSource:
    trial: str
    namespace: str
    pod: str
    uid: str = ""  # of the pod
    container: str = JOB.container
    finished: bool

    @property
    def key(self) -> str:
        """Identify the pod: after a preemption, the next one of a PyTorchJob has the same name."""
        return f"{self.pod}/{self.uid}"


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """Which logs to read, and what to look for."""

    pattern: str = ""  # a name in the first group, a number in the second; "": lines of the reader
    metric: str = ""  # the objective
    more: tuple[str, ...] = ()  # of the reader's lines, whose curves are kept, too
    strategy: str  # which value of a trial counts: min, max, or latest
    rungs: frozenset[int]  # numbers of reports (bot.core.stopping)
    trials: frozenset[str] = frozenset()  # also those without a pod
    sources: Sequence[LogSource] = field(default_factory=tuple)
    new: frozenset[str] = frozenset()  # trials that started lately: their first values are read sooner
    cluster: KubernetesClient | None = None  # of the trials; None: the reader's


def log_query(
    plan: SweepPlan, pods: Iterable[Pod], trials: Collection[str], cluster: KubernetesClient
) -> LogQuery | None:
    """Return which logs to read of these trials; None: MLflow is read. Logs cost a request for each trial.

    Of the training's own output, only early stopping needs them.
    """
    space = plan.space
    if not plan.has_reader and (space.stopping is None or space.source is not MetricSource.STDOUT):
        return None
    sources = (
        LogSource(
            trial=pod.job,
            namespace=plan.experiment_ref.namespace,
            pod=pod.name,
            uid=pod.uid,
            container=READER if plan.has_reader else pod.container,
            finished=pod.finished,
        )
        for pod in pods
        if pod.job in trials and not pod.deleted and not pod.index
    )
    return LogQuery(
        pattern="" if plan.has_reader else line_filter((space.metric,)),
        metric=space.metric,
        more=tuple(space.additional),
        strategy=space.strategies[space.metric],
        rungs=frozenset(space.stopping.rungs if space.stopping else ()),
        trials=frozenset(trials),
        sources=tuple(sources),
        cluster=cluster,
    )


class LogReader:
    def __init__(self, cluster: KubernetesClient) -> None:
        self._cluster = cluster

    async def read(
        self, before: Mapping[str, LogCurve], query: LogQuery, until: float | None = None
    ) -> dict[str, LogCurve]:
        """Read on in each log, by a piece, or to its end; one that can't be read stays as it was.

        `until`: when to stop reading to the ends, by the monotonic clock; None: one piece.
        """
        limit = asyncio.Semaphore(PARALLEL)

        async def one(source: LogSource) -> LogCurve:
            known = before.get(source.trial)
            known = known if known and known.pod == source.key else LogCurve(pod=source.key)
            async with limit:
                while not known.complete and (until is None or time.monotonic() < until):
                    known, is_cut = await self._next(known, source, query)
                    if until is None or not is_cut:
                        break
                return known

        curves = await asyncio.gather(*map(one, query.sources))
        return dict(before) | {source.trial: each for source, each in zip(query.sources, curves, strict=True)}

    async def _next(self, known: LogCurve, source: LogSource, query: LogQuery) -> tuple[LogCurve, bool]:
        """Return the curve with the next piece of the log, and whether there is more."""
        options = {"container": source.container, "timestamps": "true", "limitBytes": MAX_PIECE}
        if known.cursor:  # in the node's time zone; sinceTime has no fractions
            since = datetime.fromisoformat(known.cursor).astimezone(UTC)
            options["sinceTime"] = f"{since:%Y-%m-%dT%H:%M:%S}Z"
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                text = await (query.cluster or self._cluster).raw_log(source.namespace, source.pod, options)
        except (ApiError, UnreachableError, TimeoutError):
            return known, False
        new = await asyncio.to_thread(read_on, known, text, query, finished=source.finished)
        return new, is_cut(text) and new != known


def is_cut(text: str) -> bool:
    return len(text.encode()) >= MAX_PIECE


def read_on(known: LogCurve, text: str, query: LogQuery, *, finished: bool) -> LogCurve:
    """Add the reports in a piece of the log, which starts in the second of the last line read."""
    *lines, _ = text.split("\n")  # the last one is empty, or cut
    more = is_cut(text)
    new = [line for line in lines if STAMP.match(line) and line.partition(" ")[0] > known.cursor]
    if not new:
        since = known.cursor or (text.partition(" ")[0] if STAMP.match(text) else "")
        cursor = _next_second(since) if more and since else known.cursor
        return replace(known, cursor=cursor, complete=finished and not more)
    found = {query.metric: [*_printed(known, new, query)]} if query.pattern else _of_reader(known, new, query)
    known = _with_points(known, found.get(query.metric, ()), query)
    samples = {
        name: known.samples.get(name, Sample()).extended(point for point, _ in points)
        for name, points in found.items()
        if name in (query.metric, *query.more)
    }
    names = sorted({*known.names, *found} - {query.metric})[:MAX_NAMES]
    known = replace(known, samples=known.samples | samples, names=tuple(names))
    return replace(known, cursor=new[-1].partition(" ")[0], complete=finished and not more)


def _with_points(known: LogCurve, points: Iterable[tuple[Point, float]], query: LogQuery) -> LogCurve:
    """Add points, each with the objective up to it."""
    highest, value, latest = known.reports, known.value, known.latest
    at_rungs = list(known.points)
    for latest, value in points:
        if any(highest < rung <= latest.step for rung in query.rungs):
            at_rungs.append(replace(latest, value=value))
        highest = max(highest, latest.step)
    return replace(known, points=tuple(at_rungs), reports=highest, value=value, latest=latest)


def _printed(known: LogCurve, lines: Sequence[str], query: LogQuery) -> Iterator[tuple[Point, float]]:
    """Yield the reports in a training's own lines, with the times of the lines."""
    pattern, value, number = re.compile(query.pattern), known.value, known.reports
    for line in lines:
        stamp, _, text = line.partition(" ")
        try:
            at = datetime.fromisoformat(stamp).timestamp()
        except ValueError:  # no line of the kubelet's
            continue
        for found in pattern.finditer(text[:MAX_LINE]):
            reported, number = float(found[2]), number + 1
            value = better(value, reported, query.strategy)
            yield Point(number, reported, at), value


def _of_reader(
    known: LogCurve, lines: Sequence[str], query: LogQuery
) -> dict[str, list[tuple[Point, float]]]:
    """Return the new points by metric: a reader that was restarted prints all of them again."""
    found: dict[str, list[tuple[Point, float]]] = {}
    newest = {name: sample.newest for name, sample in known.samples.items()}
    for line in lines:
        name, points = _points(line.partition(" ")[2][:MAX_LINE], query)
        kept = found.setdefault(name, []) if name else []
        for point, value in points:
            last = newest.get(name)
            if last is None or (point.at, point.step) > (last.at, last.step):
                newest[name] = point
                kept.append((point, value))
    return found


def _points(text: str, query: LogQuery) -> tuple[str, list[tuple[Point, float]]]:
    """Return a line's metric and points; "" of an error's text, or half a line."""
    try:
        line: Any = json.loads(text)
        # A folder's name can have bytes that are no UTF-8, and so can't be stored.
        return str(line["metric"]).encode(errors="replace").decode(), [
            (Point(int(step), float(value), _time(at)), float(value if best is None else best))
            for step, value, at, least, greatest in line["points"]
            for best in [{"min": least, "max": greatest}.get(query.strategy)]
        ]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "", []


def _time(at: Any) -> float:
    """Return the Unix seconds that a training wrote; 0 if they can't be right: MLflow takes no others."""
    return found if 0 <= (found := float(at)) < LATEST else 0.0


def _next_second(stamp: str) -> str:
    """Return a timestamp before all lines of the next second: this one has more text than a piece."""
    later = datetime.fromisoformat(stamp).replace(microsecond=0) + timedelta(seconds=1)
    return later.isoformat()
