"""Which GPUs are held and not used, and since when. Pure.

Defaults and their sources: 30 minutes without a sample above 1 % is what gpu-pruner looks at; Princeton's
cluster warns after one and two hours; a low mean alone would flag work in bursts, so what it does most of the
time counts, too. Never said of what was not measured: unknown is not idle.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby

from bot.core.thresholds import IdleThresholds
from bot.gpus.models import BUSY, Gpu, PodUse

SETTLING = 4 / 3  # a container is that many windows old before its silence means anything
AGAIN = (2, 4)  # times the first: 60 and 120 minutes
LOW_WINDOW = timedelta(hours=2)
LOW_MOST = 0.5  # what it may do in all but 5 % of the samples
ALWAYS = 0.95  # of the time at work: also what processes do that wait for one another in NCCL
LOW_HOURS = 4.0  # GPU-hours held; small jobs are nobody's worry


class Kind(StrEnum):
    UNUSED = "unused"  # nothing since the start
    IDLE = "idle"
    PARTIAL = "partial"  # some of several do nothing
    LOW = "low"
    STUCK = "stuck"  # at work all the time, and nothing comes of it
    FINE = "fine"
    MAYBE_LOW = "maybe low"  # at work of late; of the last two hours too little is known
    UNKNOWN = "unknown"
    OVER = "over"  # nobody holds them any more

    @property
    def wrong(self) -> bool:
        return self in {Kind.UNUSED, Kind.IDLE, Kind.PARTIAL, Kind.LOW, Kind.STUCK}


@dataclass(frozen=True, kw_only=True)
class GpuAllocation:
    """The GPUs of one trial, on however many nodes, or of one pod that is no trial's."""

    namespace: str
    name: str
    sweep: str = ""  # its trial then; else `name` is a pod
    team: str = ""
    owner: str = ""
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    started: datetime | None = None  # when the last of its containers began to run
    allocated: int
    gpus: tuple[Gpu, ...] = ()
    busy_ever: bool | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def measured(self) -> bool:
        seen = [gpu for gpu in self.gpus if gpu.peak is not None]
        return bool(self.started) and bool(seen) and len(seen) == max(self.allocated, len(self.gpus))

    @property
    def idle(self) -> int:
        return sum(gpu.peak is not None and gpu.peak < BUSY for gpu in self.gpus)

    @property
    def mean(self) -> float | None:
        means = [gpu.mean for gpu in self.gpus if gpu.mean is not None]
        return sum(means) / len(means) if len(means) == max(self.allocated, len(self.gpus)) else None

    @property
    def p95(self) -> float:
        return max((gpu.p95 for gpu in self.gpus if gpu.p95 is not None), default=1.0)


def holdings(pods: Iterable[PodUse]) -> dict[str, GpuAllocation]:
    def place(pod: PodUse) -> tuple[str, str]:
        return pod.namespace, pod.trial if pod.sweep and pod.trial else pod.pod

    groups = groupby(sorted(pods, key=place), key=place)
    found = [_holding(name, list(group)) for (_, name), group in groups]
    return {each.key: each for each in found}


def _holding(name: str, pods: list[PodUse]) -> GpuAllocation:
    starts = [pod.started for pod in pods if pod.started]
    ever = {pod.busy_ever for pod in pods}
    return GpuAllocation(
        namespace=pods[0].namespace,
        name=name,
        sweep=pods[0].sweep if pods[0].trial else "",
        team=pods[0].team,
        owner=pods[0].owner,
        pods=tuple(pod.pod for pod in pods),
        nodes=tuple(sorted({pod.node for pod in pods})),
        started=max(starts) if len(starts) == len(pods) else None,
        allocated=sum(pod.allocated for pod in pods),
        gpus=tuple(gpu for pod in pods for gpu in pod.gpus),
        busy_ever=True if True in ever else None if None in ever else False,
    )


def window(watch: IdleThresholds) -> timedelta:
    """What `judge` wants its holdings measured over."""
    return timedelta(minutes=watch.idle_minutes or IdleThresholds().idle_minutes)


def judge(
    held: GpuAllocation, over_two_hours: GpuAllocation | None, watch: IdleThresholds, now: datetime
) -> Kind:
    if held.started is None or not held.measured:
        return Kind.UNKNOWN
    age = now - held.started
    if held.busy_ever is False and watch.first_use_minutes:
        return Kind.UNUSED if age >= timedelta(minutes=watch.first_use_minutes) else Kind.FINE
    if held.idle and watch.idle_minutes:
        if age < window(watch) * SETTLING:
            return Kind.UNKNOWN
        return Kind.IDLE if held.idle == len(held.gpus) else Kind.PARTIAL
    return _low(over_two_hours, age, watch) if watch.low_percent else Kind.FINE


def _low(held: GpuAllocation | None, age: timedelta, watch: IdleThresholds) -> Kind:
    if held is None or age < LOW_WINDOW or age / timedelta(hours=1) * held.allocated < LOW_HOURS:
        return Kind.FINE
    if held.mean is None:
        return Kind.MAYBE_LOW
    return Kind.LOW if held.mean < watch.low_percent / 100 and held.p95 < LOW_MOST else Kind.FINE


def ever_at_work(held: GpuAllocation, watch: IdleThresholds, now: datetime) -> bool:
    """All of its GPUs, for so long that its log should say something meanwhile."""
    if not watch.stuck_minutes or held.started is None or not held.measured:
        return False
    long_enough = now - held.started >= max(timedelta(minutes=watch.stuck_minutes), window(watch)) * SETTLING
    return long_enough and all((gpu.mean or 0.0) >= ALWAYS for gpu in held.gpus)


def first_after(kind: Kind, watch: IdleThresholds) -> timedelta:
    """After how long it is told for the first time."""
    if kind is Kind.LOW:
        return LOW_WINDOW
    if kind is Kind.STUCK:
        return timedelta(minutes=watch.stuck_minutes)
    return timedelta(minutes=watch.first_use_minutes) if kind is Kind.UNUSED else window(watch)


def times(lasts: timedelta, first: timedelta) -> int:
    """1, 2 or 4: how many times the first word's time it has lasted."""
    return max((each for each in AGAIN if lasts >= first * each), default=1)
