"""Read what early stopping needs of the learning curves in the logs of trials that print their metric.

A log is read on from where the last reading ended, in pieces of MAX_PIECE bytes. A step is the number of the
report, as Katib's medianstop counts. Only the values at rungs are kept.
"""

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import ConfigDict

from bot.core.curves import Curve, Point, better
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.trial_kinds import JOB

MAX_PIECE = 2**20  # bytes of one log and reading; a log that grows faster is read behind the training
MAX_LINE = 2**14  # characters that are searched; the kubelet's runtime splits lines there
READ_TIMEOUT = 5.0  # seconds of one log
PARALLEL = 5  # logs
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* ")  # the kubelet's own messages have none


@dataclass(frozen=True, kw_only=True)
class LogCurve:
    """What was read of one trial's log."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")

    pod: str  # LogSource.key
    cursor: str = ""  # the kubelet's timestamp of the last line
    reports: int = 0
    value: float = math.nan  # the objective of all reports
    latest: Point | None = None
    points: Curve = ()  # the report at each rung, with the objective up to it
    complete: bool = False  # the pod has finished, and its log was read to the end


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
    """Which logs to read, and what to look for: a name in the first group, a number in the second."""

    pattern: str
    strategy: str  # which value of a trial counts: min, max, or latest
    rungs: frozenset[int]  # numbers of reports (bot.core.stopping)
    sources: Sequence[LogSource] = field(default_factory=tuple)
    cluster: KubernetesClient | None = None  # of the trials; None: the reader's


class LogReader:
    def __init__(self, cluster: KubernetesClient) -> None:
        self._cluster = cluster

    async def read(self, before: Mapping[str, LogCurve], query: LogQuery) -> dict[str, LogCurve]:
        """Read on in each log; one that can't be read stays as it was."""
        limit = asyncio.Semaphore(PARALLEL)

        async def one(source: LogSource) -> LogCurve:
            known = before.get(source.trial)
            known = known if known and known.pod == source.key else LogCurve(pod=source.key)
            async with limit:
                return known if known.complete else await self._next(known, source, query)

        curves = await asyncio.gather(*map(one, query.sources))
        return dict(before) | {source.trial: each for source, each in zip(query.sources, curves, strict=True)}

    async def _next(self, known: LogCurve, source: LogSource, query: LogQuery) -> LogCurve:
        since = {"sinceTime": _whole_second(known.cursor)} if known.cursor else {}
        options = {"container": source.container, "timestamps": "true", "limitBytes": MAX_PIECE} | since
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                text = await (query.cluster or self._cluster).raw_log(source.namespace, source.pod, options)
        except (ApiError, UnreachableError, TimeoutError):
            return known
        return await asyncio.to_thread(read_on, known, text, query, finished=source.finished)


def read_on(known: LogCurve, text: str, query: LogQuery, *, finished: bool) -> LogCurve:
    """Add the reports in a piece of the log, which starts in the second of the last line read."""
    *lines, _ = text.split("\n")  # the last one is empty, or cut
    is_cut = len(text.encode()) >= MAX_PIECE
    new = [line for line in lines if STAMP.match(line) and line.partition(" ")[0] > known.cursor]
    if not new:
        since = known.cursor or (text.partition(" ")[0] if STAMP.match(text) else "")
        cursor = _next_second(since) if is_cut and since else known.cursor
        return replace(known, cursor=cursor, complete=finished and not is_cut)
    known = _counted(known, _values(new, re.compile(query.pattern)), query)
    return replace(known, cursor=new[-1].partition(" ")[0], complete=finished and not is_cut)


def _counted(known: LogCurve, reports: Iterator[tuple[float, float]], query: LogQuery) -> LogCurve:
    """Add reports: their values, and the Unix times of their lines."""
    number, value, latest, points = known.reports, known.value, known.latest, list(known.points)
    for number, (reported, at) in enumerate(reports, known.reports + 1):
        value, latest = better(value, reported, query.strategy), Point(number, reported, at)
        if number in query.rungs:
            points.append(replace(latest, value=value))
    return replace(known, reports=number, value=value, latest=latest, points=tuple(points))


def _values(lines: Sequence[str], pattern: re.Pattern[str]) -> Iterator[tuple[float, float]]:
    for line in lines:
        stamp, _, text = line.partition(" ")
        try:
            at = datetime.fromisoformat(stamp).timestamp()
        except ValueError:  # no line of the kubelet's
            continue
        for found in pattern.finditer(text[:MAX_LINE]):
            yield float(found[2]), at


def _whole_second(stamp: str) -> str:
    """Return sinceTime, which has no fractions; the kubelet's timestamps are in the node's time zone."""
    return f"{datetime.fromisoformat(stamp).astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def _next_second(stamp: str) -> str:
    """Return a timestamp before all lines of the next second: this one has more text than a piece."""
    later = datetime.fromisoformat(stamp).replace(microsecond=0) + timedelta(seconds=1)
    return later.isoformat()
