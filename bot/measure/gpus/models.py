"""Values of GPU use: pods and their GPUs, nodes, and sums of an hour, with the thresholds of busy, of waiting
(SM activity, watts), and of enough samples.

Shares are fractions, 0 to 1, over the requested window; sums are GPU-hours. None means unknown, never idle:
the exporter was unavailable, the pod still pulls its image, or the container is seconds old. Classes with
up to 100,000 instances have slots, which halves their memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, compress
from typing import Any, NamedTuple, Protocol

from bot.core.plan import HOME_CLUSTER
from bot.core.work_item import ItemKind, WorkItem
from k8s.api.errors import SweepbotError
from k8s.nodes.dcgm import NO_LOAD, Load, Xid

ITEM = WorkItem(ItemKind.IDLE_GPUS, "gpus")


BUSY = 0.01  # utilization from which a GPU is busy: the counter has a noise floor
MAX_UNMEASURED = 0.01  # share of an hour that can stay unmeasured
MIN_COVERAGE = 0.8  # share of the expected samples; with fewer, use is unknown
# A GPU waits rather than computes if it is busy, and both its SM activity and its power are below these. A
# kernel spins on few multiprocessors; at 150 W, gpu-pruner no longer takes an A100 or H100 for idle either.
WAITING_BUSY, WAITING_SM, WAITING_WATTS = 0.5, 0.1, 150.0
HALF_HOUR = timedelta(minutes=30)  # idle means no activity for that long
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU of a pod, or one MIG slice.

    Shares are of the window, or of the time since the pod's start where that is shorter. They are None when
    less than 80% of the samples of that time are there.
    """

    device: str  # UUID; with the slice's id behind a slash for MIG
    model: str = ""  # "NVIDIA A100-SXM4-80GB", for a slice "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    peak: float | None = None
    mean: float | None = None
    p95: float | None = None
    load: Load = NO_LOAD  # means, and the memory in use now

    @property
    def waits(self) -> bool:
        """Whether its kernels mostly wait. Without SM activity and power, nothing shows that.

        An SM activity of 0 is of a counter that doesn't work: each kernel has work on at least one.
        """
        busy, sm, watts = self.mean, self.load.sm, self.load.watts
        if busy is None or not sm or watts is None:
            return False
        return busy >= WAITING_BUSY and sm < WAITING_SM and watts < WAITING_WATTS


def mean_load(gpus: Iterable[Gpu]) -> Load:
    """Return the mean of each measure; None if it is unknown for one of the GPUs."""
    columns = zip(*((gpu.load.sm, gpu.load.watts, gpu.load.memory) for gpu in gpus), strict=True)
    means = [None if None in column else sum(filter(None, column)) / len(column) for column in columns]
    return Load(sm=means[0], watts=means[1], memory=means[2]) if means else NO_LOAD


@dataclass(frozen=True, kw_only=True, slots=True)
class PodUse:
    """A pod with allocated GPUs: running, or scheduled and, for example, pulling its image."""

    namespace: str
    pod: str
    node: str
    owner: str = ""  # Slack user id; "" is unknown, also below
    team: str = ""
    sweep: str = ""
    trial: str = ""
    started: datetime | None = None  # when its containers last started; None: they don't run
    pod_started: datetime | None = None  # if a container has restarted; None: none has
    allocated: int
    gpus: tuple[Gpu, ...] = ()  # those with metrics; can be fewer than `allocated`
    busy_ever: bool | None = None  # since it began; None: unknown, for example older than a day

    @property
    def began(self) -> datetime | None:
        """Return since when it could have used its GPUs. A container that crash-loops is always young."""
        return self.pod_started or self.started


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """What a node offers as one resource: its GPUs, its MIG slices of one profile, or shares of its GPUs.

    A slice or share counts as one GPU, as Kubernetes allocates it.
    """

    node: str
    model: str = ""
    physical: int
    allocatable: int
    allocated: int
    ready: bool = True
    cordoned: bool = False

    @property
    def free(self) -> int:
        return max(self.allocatable - self.allocated, 0) if self.ready and not self.cordoned else 0

    @property
    def unavailable(self) -> int:
        """Return GPUs that the device plugin withdrew: an admin must check the node."""
        return max(self.physical - self.allocatable, 0)


@dataclass(frozen=True, kw_only=True)
class ClusterGpus:
    """The GPUs of a cluster other than the main cluster."""

    cluster: str
    free: int = 0  # on nodes that accept pods
    total: int = 0  # allocatable on these
    failure: str = ""  # in mrkdwn: why nothing is known; "" if it answered


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    at: datetime
    nodes: tuple[NodeUse, ...]
    pods: tuple[PodUse, ...]  # with utilization of the last 30 min
    reserved: str = ""  # one line about reservations, in mrkdwn
    others: tuple[ClusterGpus, ...] = ()  # other clusters, if the configuration has some

    def free_in(self, cluster: str) -> int | None:
        """Return the free GPUs of this cluster; None if unknown."""
        if cluster == HOME_CLUSTER:
            return sum(node.free for node in self.nodes)
        answered = (each.free for each in self.others if each.cluster == cluster and not each.failure)
        return next(answered, None)


class HourUse(NamedTuple):
    """One pod's GPU-hours in one hour.

    Used is time weighted by utilization. Idle is half-hours of the clock without activity. The rest is
    pauses: between batches, checkpoints, starts, and stops.
    """

    hour: datetime  # its start, UTC
    namespace: str
    pod: str
    allocated: float
    observed: float
    used: float
    idle: float
    node: str = ""
    owner: str = ""
    team: str = ""
    sweep: str = ""
    model: str = ""
    gpus: int = 0  # with metrics
    unused: int = 0  # of these, idle for the whole hour
    cpu_requested: float | None = None  # cores; None is unknown, also below
    cpu_mean: float | None = None  # cores, while its containers ran
    ram_requested: float | None = None  # bytes
    ram_peak: float | None = None  # bytes
    cluster: str = HOME_CLUSTER
    price: float | None = None  # of a GPU-hour, as stored with the hour; None: the current one counts

    @property
    def unknown(self) -> float:
        return max(self.allocated - self.observed, 0.0)


_use = partial(tuple.__new__, HourUse)  # HourUse._make without its check, in half the time


class UseColumns(NamedTuple):
    """The fields of many `HourUse`, one tuple each.

    A day can have 100,000 of them. As objects or in lists, they keep the garbage collector busy.
    """

    hour: Sequence[datetime]
    namespace: Sequence[str]
    pod: Sequence[str]
    allocated: Sequence[float]
    observed: Sequence[float]
    used: Sequence[float]
    idle: Sequence[float]
    node: Sequence[str]
    owner: Sequence[str]
    team: Sequence[str]
    sweep: Sequence[str]
    model: Sequence[str]
    gpus: Sequence[int]
    unused: Sequence[int]
    cpu_requested: Sequence[float | None]
    cpu_mean: Sequence[float | None]
    ram_requested: Sequence[float | None]
    ram_peak: Sequence[float | None]
    cluster: Sequence[str]
    price: Sequence[float | None]

    @classmethod
    def of(cls, uses: Iterable[HourUse]) -> "UseColumns":
        rows = tuple(uses)
        return cls(*zip(*rows, strict=True)) if rows else cls(*(() for _ in cls._fields))

    @classmethod
    def joined(cls, parts: Iterable["UseColumns"]) -> "UseColumns":
        columns: Iterable[Any] = zip(cls.of(()), *parts, strict=True)
        return cls(*(tuple(chain.from_iterable(each)) for each in columns))

    @property
    def unknown(self) -> Sequence[float]:
        pairs = zip(self.allocated, self.observed, strict=True)
        return [allocated - observed if allocated > observed else 0.0 for allocated, observed in pairs]

    def where(self, selected: Sequence[bool]) -> "UseColumns":
        """Return the pods for which `selected`, one value per pod, is true."""
        columns: Iterable[Any] = self
        return UseColumns(*(tuple(compress(column, selected)) for column in columns))

    def row(self, index: int) -> HourUse:
        return _use([column[index] for column in self])

    def rows(self) -> Iterator[HourUse]:
        return map(_use, zip(*self, strict=True))


@dataclass(frozen=True, kw_only=True)
class HourCapacity:
    """The cluster's GPU-hours in one hour: capacity, allocation, and unmet requests."""

    hour: datetime
    capacity: float  # allocatable, on every node
    allocated: float
    unhealthy: float  # not allocatable, or free on nodes that are cordoned or not ready
    coverage: float = 1.0  # share of the hour with metrics; below 1, every sum is too small
    closed: float = 0.0  # part of unhealthy: free on nodes that are cordoned or not ready
    waited: float = 0.0  # requested by pods that could not be scheduled
    waiting: int = 0  # peak of these pods
    wanted: int = 0  # peak of GPUs that they request
    longest: float = 0.0  # hours that the oldest of them has waited; 0 is unknown
    observed: float | None = None  # part of allocated with metrics; None: unknown

    @property
    def complete(self) -> bool:
        """Return whether another measurement can't add anything."""
        enough = 1 - MAX_UNMEASURED
        return (
            self.observed is not None and self.coverage >= enough and self.observed >= enough * self.allocated
        )

    def worse_than(self, other: "HourCapacity") -> bool:
        """Return whether this measurement of the hour covers less, or covers as much but observed less."""
        if abs(self.coverage - other.coverage) > MAX_UNMEASURED:
            return self.coverage < other.coverage
        return (self.observed or 0.0) < (other.observed or 0.0)

    @property
    def free(self) -> float:
        return max(self.capacity - self.allocated - self.closed, 0.0)


@dataclass(frozen=True, kw_only=True)
class Hour:
    columns: UseColumns
    capacity: HourCapacity


class Source(Protocol):
    """A source of GPU data: Prometheus or scraping. Methods raise NoGpuDataError."""

    async def snapshot(self, window: timedelta) -> Snapshot:
        """Return nodes and pods; the pods without `p95` and `busy_ever`, which take the most time."""
        ...

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        """Return every pod with allocated GPUs, with their utilization in the last `window`."""
        ...

    async def nodes(self) -> tuple[NodeUse, ...]: ...

    async def xids(self) -> tuple[Xid, ...]:
        """Return the last error of every GPU whose exporter reports errors."""
        ...

    async def hour(self, start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
        """Measure the hour from `start` on. Without Prometheus, only the last two hours are available."""
        ...


class NoGpuDataError(SweepbotError):
    """GPU metrics are unavailable; the message says why."""
