"""Values of GPU use: pods and their GPUs, nodes, and sums of an hour.

Shares are fractions, 0 to 1, over the requested window; sums are GPU-hours. None means unknown, never idle:
the exporter was unavailable, the pod still pulls its image, or the container is seconds old. Classes with
up to 100,000 instances have slots, which halves their memory.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from bot.core.work_item import ItemKind, WorkItem

ITEM = WorkItem(ItemKind.IDLE_GPUS, "gpus")


BUSY = 0.01  # the utilization from which a GPU is busy: the counter has a noise floor
SLACK = 0.01  # share of an hour that may stay unmeasured
ENOUGH = 0.8  # share of the expected samples; with fewer, use is unknown
HALF_HOUR = timedelta(minutes=30)  # what idle is judged by
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PodUse:
    """A pod that holds GPUs now: it runs, or it has got a node and waits there, say for its image."""

    namespace: str
    pod: str
    node: str
    owner: str = ""  # Slack user id; "" is unknown, here and below
    team: str = ""
    sweep: str = ""
    trial: str = ""
    started: datetime | None = None  # since when its containers have run without a break; None: they do not
    allocated: int
    gpus: tuple[
        Gpu, ...
    ] = ()  # those that were seen at work or idle; fewer than `allocated` when not all were
    busy_ever: bool | None = None  # in its life; None when gaps, or all before the last day, might hide it


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """A node with GPUs. Here and everywhere a MIG slice counts as one, as Kubernetes gives it out."""

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
    def lost(self) -> int:
        """GPUs that the device plugin has given up: somebody has to look at the machine."""
        return max(self.physical - self.allocatable, 0)


@dataclass(frozen=True, kw_only=True)
class Xid:
    """A GPU's last error since its exporter began; the same one twice looks like one."""

    device: str
    model: str = ""
    node: str
    namespace: str = ""  # whose pod held it
    pod: str = ""
    code: int  # 0: none


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    at: datetime
    nodes: tuple[NodeUse, ...]
    pods: tuple[PodUse, ...]  # with the half hour before


@dataclass(frozen=True, kw_only=True, slots=True)
class HourUse:
    """One pod's GPU-hours in one hour.

    Used counts each moment by the share the GPU is busy. Idle is whole half hours of the clock without any
    work: what lies between the two are pauses between batches, checkpoints, starts and ends.
    """

    hour: datetime  # its start, UTC
    namespace: str
    pod: str
    node: str = ""
    owner: str = ""
    team: str = ""
    sweep: str = ""
    model: str = ""
    allocated: float
    observed: float
    used: float
    idle: float
    # What follows is not in hours that an older version has written.
    gpus: int = 0  # so many were measured
    unused: int = 0  # so many of them did nothing all hour
    cpu_requested: float | None = None  # cores; None is unknown, here and below
    cpu_mean: float | None = None  # cores, while its containers ran
    ram_requested: float | None = None  # bytes
    ram_peak: float | None = None  # bytes

    @property
    def unknown(self) -> float:
        return max(self.allocated - self.observed, 0.0)


@dataclass(frozen=True, kw_only=True)
class HourCapacity:
    """What there was to give, in GPU-hours, and what was wanted besides."""

    hour: datetime
    capacity: float  # allocatable, on every node
    allocated: float
    unhealthy: float  # lost GPUs, and those of nodes that are not ready or cordoned and held by nobody
    coverage: float = 1.0  # the share of the hour that anybody looked at; below 1 every sum is too small
    closed: float = 0.0  # the part of unhealthy that counts as capacity, on nodes that take nobody
    waited: float = 0.0  # asked for by pods that no node had room for
    waiting: int = 0  # so many such pods at a time, at most
    wanted: int = 0  # so many GPUs for them
    longest: float = 0.0  # hours since the oldest of them was made; 0 is unknown
    observed: float | None = None  # of what was allocated; None: an older version has written it

    @property
    def whole(self) -> bool:
        """Nothing of it can become known better."""
        nearly = 1 - SLACK
        return (
            self.observed is not None and self.coverage >= nearly and self.observed >= nearly * self.allocated
        )

    def worse(self, other: "HourCapacity") -> bool:
        """Than another account of the hour: less of it was covered, or as much, and less was measured."""
        if abs(self.coverage - other.coverage) > SLACK:
            return self.coverage < other.coverage
        return (self.observed or 0.0) < (other.observed or 0.0)

    @property
    def free(self) -> float:
        return max(self.capacity - self.allocated - self.closed, 0.0)


@dataclass(frozen=True, kw_only=True)
class Hour:
    uses: tuple[HourUse, ...]
    capacity: HourCapacity


class Source(Protocol):
    """A source of GPU data: Prometheus or scraping. Methods raise NoGpuDataError."""

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        """Every pod that holds GPUs now, with what its GPUs did in the `window` before."""
        ...

    async def nodes(self) -> tuple[NodeUse, ...]: ...

    async def xids(self) -> tuple[Xid, ...]:
        """Of every GPU whose exporter knows of errors."""
        ...

    async def hour(self, start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
        """Prometheus knows any past hour; scraping what was collected while it looked."""
        ...


class NoGpuDataError(Exception):
    """There is no GPU data at the moment; the message says why."""
