"""Classify allocations: idle, unused, underused, waiting, hung, or fine. Pure.

Defaults and their sources: gpu-pruner looks for 30 minutes without a sample above 1%; Princeton's cluster
warns after one and two hours. A low mean alone would flag bursty work, so the 95th percentile counts, too.
GPUs without data are unknown, never idle.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.models import BUSY, Gpu, PodUse, mean_load
from bot.platform.config.idle_thresholds import IdleThresholds
from k8s.nodes.dcgm import NO_LOAD, Load
from k8s.nodes.gpu_pods import is_placeholder

SETTLING = 4 / 3  # times the window: the age from which a container's inactivity counts
LOW_WINDOW = timedelta(hours=2)
LOW_P95 = 0.5  # utilization; above it, work is bursty and not low
ALWAYS_BUSY = 0.95  # mean utilization; processes that wait for one another in NCCL reach it, too
LOW_MIN_GPU_HOURS = 4.0  # allocated so far; smaller jobs aren't worth a warning


class Kind(StrEnum):
    UNUSED = "unused"  # no activity since the start
    IDLE = "idle"
    PARTIAL = "partial"  # some of several GPUs are idle
    LOW = "low"
    WAITING = "waiting"  # busy, but by SM activity and power hardly computing
    STUCK = "stuck"  # always busy, but no log output
    FULL = "full"  # without GPUs: its memory is near its limit
    SPARE = "spare"  # without GPUs: it has requested much more memory than it uses
    FINE = "fine"
    MAYBE_LOW = "maybe low"  # busy lately; too few samples in the last two hours to rule out LOW
    UNKNOWN = "unknown"
    ENDED = "ended"  # no longer allocated

    @property
    def needs_alert(self) -> bool:
        return self not in {Kind.FINE, Kind.MAYBE_LOW, Kind.UNKNOWN, Kind.ENDED}

    @property
    def over_two_hours(self) -> bool:
        """Whether it is about LOW_WINDOW."""
        return self in {Kind.LOW, Kind.WAITING, Kind.SPARE}

    @property
    def shows_share(self) -> bool:
        """Whether its warning has the used share."""
        return self in {Kind.LOW, Kind.FULL, Kind.SPARE}


@dataclass(frozen=True, kw_only=True)
class GpuAllocation:
    """The GPUs of one trial on any number of nodes, or of one pod outside sweeps.

    A trial without GPUs has one device, which is `what` its assessment is about: CPUs, or memory.
    """

    cluster: str = HOME_CLUSTER
    namespace: str
    name: str  # of the trial if `sweep` is set, else of the pod
    sweep: str = ""
    team: str = ""
    owner: str = ""
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    started: datetime | None = None  # when the last of its containers began to run
    began: datetime | None = None  # the same; of pods whose containers restarted, when the pods started
    allocated: int
    gpus: tuple[Gpu, ...] = ()
    busy_ever: bool | None = None
    what: str = ""  # such as `8 CPUs`; "": GPUs

    @property
    def key(self) -> str:
        place = f"{self.namespace}/{self.name}"
        return place if self.cluster == HOME_CLUSTER else f"{self.cluster}:{place}"

    @property
    def measured(self) -> bool:
        """Whether it runs, or did before it crashed, and every GPU has enough samples."""
        seen = [gpu for gpu in self.gpus if gpu.peak is not None]
        return bool(self.began) and bool(seen) and len(seen) == max(self.allocated, len(self.gpus))

    @property
    def idle(self) -> int:
        return sum(gpu.peak is not None and gpu.peak < BUSY for gpu in self.gpus)

    @property
    def mean(self) -> float | None:
        means = [gpu.mean for gpu in self.gpus if gpu.mean is not None]
        return sum(means) / len(means) if len(means) == max(self.allocated, len(self.gpus)) else None

    @property
    def load(self) -> Load:
        return mean_load(self.gpus) if self.measured else NO_LOAD

    @property
    def p95(self) -> float:
        return max((gpu.p95 for gpu in self.gpus if gpu.p95 is not None), default=1.0)


def allocations(pods: Iterable[PodUse], cluster: str = HOME_CLUSTER) -> dict[str, GpuAllocation]:
    """Group one cluster's pods by trial; pods outside sweeps stay alone.

    Those that hold reserved GPUs are idle on purpose. Keys are `GpuAllocation.key`.
    """

    def place(pod: PodUse) -> tuple[str, str]:
        return pod.namespace, pod.trial if pod.sweep and pod.trial else pod.pod

    known = (pod for pod in pods if not is_placeholder(pod.pod))
    groups = groupby(sorted(known, key=place), key=place)
    found = [_allocation(cluster, name, list(group)) for (_, name), group in groups]
    return {each.key: each for each in found}


def _allocation(cluster: str, name: str, pods: list[PodUse]) -> GpuAllocation:
    starts = [pod.started for pod in pods if pod.started]
    begins = [pod.began for pod in pods if pod.began]
    ever = {pod.busy_ever for pod in pods}
    return GpuAllocation(
        cluster=cluster,
        namespace=pods[0].namespace,
        name=name,
        sweep=pods[0].sweep if pods[0].trial else "",
        team=pods[0].team,
        owner=pods[0].owner,
        pods=tuple(pod.pod for pod in pods),
        nodes=tuple(sorted({pod.node for pod in pods})),
        started=max(starts) if len(starts) == len(pods) else None,
        began=max(begins) if len(begins) == len(pods) else None,
        allocated=sum(pod.allocated for pod in pods),
        gpus=tuple(gpu for pod in pods for gpu in pod.gpus),
        busy_ever=True if True in ever else None if None in ever else False,
    )


def measurement_window(thresholds: IdleThresholds) -> timedelta:
    """Return the window over which `classify` needs its allocations measured."""
    return timedelta(minutes=thresholds.idle_minutes or IdleThresholds().idle_minutes)


def classify(
    allocation: GpuAllocation,
    over_two_hours: GpuAllocation | None,
    thresholds: IdleThresholds,
    now: datetime,
) -> Kind:
    if allocation.began is None or not allocation.measured:
        return Kind.UNKNOWN
    if allocation.busy_ever is False and thresholds.first_use_minutes:
        unused = now - allocation.began >= timedelta(minutes=thresholds.first_use_minutes)
        return Kind.UNUSED if unused else Kind.FINE
    # After a restart, a program that has used its GPUs needs time to load its data again.
    since = allocation.started if allocation.busy_ever else allocation.began
    if since is None:
        return Kind.UNKNOWN
    age = now - since
    if allocation.idle and thresholds.idle_minutes:
        if age < measurement_window(thresholds) * SETTLING:
            return Kind.UNKNOWN
        return Kind.IDLE if allocation.idle == len(allocation.gpus) else Kind.PARTIAL
    return _low(over_two_hours, age, thresholds) if thresholds.low_percent else Kind.FINE


def _low(allocation: GpuAllocation | None, age: timedelta, thresholds: IdleThresholds) -> Kind:
    if allocation is None or age < LOW_WINDOW:
        return Kind.FINE
    if age / timedelta(hours=1) * allocation.allocated < LOW_MIN_GPU_HOURS:
        return Kind.FINE
    if allocation.mean is None:
        return Kind.MAYBE_LOW
    if allocation.mean < thresholds.low_percent / 100 and allocation.p95 < LOW_P95:
        return Kind.LOW
    return Kind.WAITING if all(gpu.waits for gpu in allocation.gpus) else Kind.FINE


def always_busy(allocation: GpuAllocation, thresholds: IdleThresholds, now: datetime) -> bool:
    """Return whether all GPUs have been busy for so long that the log should have grown."""
    if not thresholds.stuck_minutes or allocation.started is None or not allocation.measured:
        return False
    window = max(timedelta(minutes=thresholds.stuck_minutes), measurement_window(thresholds))
    old_enough = now - allocation.started >= window * SETTLING
    return old_enough and all((gpu.mean or 0.0) >= ALWAYS_BUSY for gpu in allocation.gpus)


def first_alert_after(kind: Kind, thresholds: IdleThresholds) -> timedelta:
    """Return how long a condition lasts before its first warning."""
    if kind.over_two_hours:
        return LOW_WINDOW
    if kind is Kind.STUCK:
        return timedelta(minutes=thresholds.stuck_minutes)
    if kind is Kind.UNUSED:
        return timedelta(minutes=thresholds.first_use_minutes)
    return measurement_window(thresholds)
