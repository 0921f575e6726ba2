"""Samples of all GPUs of a cluster without Prometheus, and the figures computed from them. Pure."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from bot.measure.gpus.models import (
    BUSY,
    HALF_HOUR,
    HOUR,
    MIN_COVERAGE,
    Gpu,
    HourCapacity,
    HourUse,
    NodeUse,
    PodUse,
)
from bot.measure.sources.shared_use import assignable, assignable_hour
from k8s.nodes.dcgm import Load, Xid
from k8s.nodes.gpu_pods import is_placeholder


@dataclass(frozen=True, kw_only=True, slots=True)
class PodSample:
    """One pod at one time."""

    use: PodUse  # `peak` of its GPUs is their utilization at that time
    busy: bool = False  # in this sample or an earlier one
    complete: int = 0  # samples since it started with metrics of every GPU
    cpu_requested: float | None = None  # cores
    cpu: float | None = None  # cores used
    ram_requested: float | None = None  # bytes
    ram: float | None = None  # bytes used
    model: str = ""  # of what it requests, also without metrics


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The cluster at one time, which represents the `step` seconds before."""

    at: datetime
    step: int
    pods: tuple[PodSample, ...]
    nodes: tuple[NodeUse, ...]
    xids: tuple[Xid, ...] = ()
    wanted: int = 0  # GPUs requested by pods that can't be scheduled
    waiting: int = 0  # number of these pods
    longest: float = 0.0  # hours since the oldest of them was created
    nodes_unknown: bool = False  # they couldn't be listed


_SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)


def dump(sample: Sample) -> bytes:
    return _SAMPLE.dump_json(sample, exclude_defaults=True)


def load(text: bytes) -> Sample:
    return _SAMPLE.validate_json(text)


def with_history(now: Sample, before: Sample | None) -> Sample:
    """Carry over each pod's activity so far, and the models of nodes without metrics."""
    known = {_key(pod.use): pod for pod in before.pods} if before else {}
    models = dict(_models(before.nodes)) if before else {}
    return replace(
        now,
        pods=tuple(_after(known.get(_key(pod.use)), pod) for pod in now.pods),
        nodes=tuple(
            replace(node, model=model or models.get(place, ""))
            for node, (place, model) in zip(now.nodes, _models(now.nodes), strict=True)
        ),
    )


def _models(nodes: Iterable[NodeUse]) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield each node's models with their places; a node has one for each resource, in the same order."""
    seen = Counter[str]()
    for node in nodes:
        yield (node.node, seen[node.node]), node.model
        seen[node.node] += 1


def _key(use: PodUse) -> tuple[str, str, str]:
    return use.namespace, use.pod, use.node


def _after(before: PodSample | None, now: PodSample) -> PodSample:
    busy = any((gpu.peak or 0) >= BUSY for gpu in now.use.gpus)
    complete = len(now.use.gpus) >= now.use.allocated
    return replace(
        now,
        busy=busy or (before is not None and before.busy),
        complete=complete + (before.complete if before else 0),
        model=now.model or (before.model if before else ""),
    )


@dataclass(slots=True)
class _Seen:
    """What a window's samples had of one GPU of a pod: hours of them are only sums and shares."""

    shares: "array[float]" = field(default_factory=lambda: array("d"))
    sm: list[float] = field(default_factory=lambda: [0.0, 0])  # sum and number
    watts: list[float] = field(default_factory=lambda: [0.0, 0])
    memory: float | None = None

    def add(self, gpu: Gpu) -> None:
        self.shares.append(gpu.peak or 0.0)
        for kept, value in ((self.sm, gpu.load.sm), (self.watts, gpu.load.watts)):
            if value is not None:
                kept[0] += value
                kept[1] += 1
        self.memory = gpu.load.memory


_Devices = dict[tuple[str, str], _Seen]  # by name and model


def pods(samples: Sequence[Sample], window: timedelta) -> tuple[PodUse, ...]:
    """Return the pods of the last sample, with statistics over the window before it.

    One sample at a time is in memory, if they are loaded when they are read.
    """
    last = samples[-1]
    recent = {_key(pod.use): defaultdict[tuple[str, str], _Seen](_Seen) for pod in last.pods}
    for sample in samples:
        if sample.at <= last.at - window:
            continue
        for pod in sample.pods:
            if (mine := recent.get(_key(pod.use))) is not None:
                for gpu in pod.use.gpus:
                    mine[gpu.device, gpu.model].add(gpu)
    return assignable(_pod(pod, recent[_key(pod.use)], last, window) for pod in last.pods)


def _pod(pod: PodSample, recent: _Devices, last: Sample, window: timedelta) -> PodUse:
    started = pod.use.started
    age = max(last.at - started, timedelta(seconds=last.step)) if started else window
    expected = MIN_COVERAGE * min(age, window).total_seconds() / last.step
    return replace(
        pod.use,
        gpus=tuple(
            _gpu(device, seen, expected) for device, seen in sorted(recent.items(), key=lambda each: each[0])
        ),
        busy_ever=True if pod.busy else False if _known(pod, last) else None,
    )


def _known(pod: PodSample, last: Sample) -> bool:
    if not pod.use.began or not pod.complete:
        return False
    return pod.complete >= MIN_COVERAGE * ((last.at - pod.use.began).total_seconds() // last.step)


def _gpu(device: tuple[str, str], seen: _Seen, expected: float) -> Gpu:
    name, model = device
    shares = sorted(seen.shares)
    if len(shares) < expected:
        return Gpu(device=name, model=model)
    return Gpu(
        device=name,
        model=model,
        peak=shares[-1],
        mean=sum(shares) / len(shares),
        p95=shares[round(0.95 * (len(shares) - 1))],
        load=Load(sm=_mean(seen.sm, expected), watts=_mean(seen.watts, expected), memory=seen.memory),
    )


def _mean(kept: Sequence[float], expected: float) -> float | None:
    total, number = kept
    return total / number if number and number >= expected else None


@dataclass(slots=True)
class _PodHour:
    """One pod's hour so far."""

    first: PodUse
    last: PodSample
    model: str = ""  # of its GPU seen last
    allocated: float = 0.0  # GPU-hours, as the next two
    observed: float = 0.0
    used: float = 0.0
    cpu: list[float] = field(default_factory=lambda: [0.0, 0])  # sum and number
    ram: float | None = None
    # Of each half hour, by GPU: seconds with samples, and the highest share.
    halves: tuple[dict[str, tuple[int, float]], dict[str, tuple[int, float]]] = field(
        default_factory=lambda: ({}, {})
    )

    def add(self, pod: PodSample, step: int, half: int) -> None:
        use, seen, self.last = pod.use, self.halves[half], pod
        self.allocated += step / 3600 * use.allocated
        self.observed += step / 3600 * min(len(use.gpus), use.allocated)
        for gpu in use.gpus:
            share, (seconds, peak) = gpu.peak or 0.0, seen.get(gpu.device, (0, 0.0))
            seen[gpu.device] = seconds + step, max(peak, share)
            self.used += step / 3600 * share
            self.model = gpu.model
        if pod.cpu is not None:
            self.cpu = [self.cpu[0] + pod.cpu, self.cpu[1] + 1]
        if pod.ram is not None:
            self.ram = max(self.ram or 0.0, pod.ram)


def hour(samples: Iterable[Sample], start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
    """Return the figures of an hour; each sample counts for the `step` seconds before it.

    One sample at a time is in memory, if they are loaded when they are read.
    """
    seen: dict[tuple[str, str], _PodHour] = {}
    models: dict[str, str] = {}
    capacity, seconds = HourCapacity(hour=start, capacity=0.0, allocated=0.0, unhealthy=0.0, coverage=0.0), 0
    for sample in samples:
        if not start < sample.at <= start + HOUR:
            continue
        half = sample.at > start + HALF_HOUR
        for pod in sample.pods:
            key = pod.use.namespace, pod.use.pod
            seen.setdefault(key, _PodHour(pod.use, pod)).add(pod, sample.step, half)
        models |= {node.node: node.model for node in sample.nodes if node.model}
        capacity, seconds = _with(capacity, sample), seconds + sample.step
    uses = tuple(_use(start, seen[pod], models) for pod in sorted(seen))
    observed = sum(use.observed for use in uses)
    coverage = min(1.0, seconds / 3600)
    return assignable_hour(uses), replace(capacity, observed=observed, coverage=coverage)


def _use(start: datetime, seen: _PodHour, models: Mapping[str, str]) -> HourUse:
    """Return one pod's hour; `models` by node."""
    first, last = seen.first, seen.last
    early, late = map(_idle, seen.halves)
    held = is_placeholder(first.pod)  # idle on purpose
    return HourUse(
        hour=start,
        namespace=first.namespace,
        pod=first.pod,
        node=first.node,
        owner=first.owner,
        team=first.team,
        sweep=first.sweep,
        model=seen.model or last.model or models.get(first.node, ""),
        allocated=seen.allocated,
        observed=seen.observed,
        used=seen.used,
        idle=0.0 if held else sum(early.values()) + sum(late.values()),
        gpus=len(seen.halves[0].keys() | seen.halves[1].keys()),
        unused=0 if held else len(early.keys() & late.keys()),
        cpu_requested=last.cpu_requested,
        cpu_mean=seen.cpu[0] / seen.cpu[1] if seen.cpu[1] else None,
        ram_requested=last.ram_requested,
        ram_peak=seen.ram,
    )


def _idle(half: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return the hours of each GPU that was idle for a half-hour with enough samples."""
    enough = MIN_COVERAGE * HALF_HOUR.total_seconds()
    return {gpu: seconds / 3600 for gpu, (seconds, peak) in half.items() if seconds >= enough and peak < BUSY}


def _with(so_far: HourCapacity, sample: Sample) -> HourCapacity:
    """Return the cluster's hour with another sample."""
    hours, nodes = sample.step / 3600, sample.nodes
    shut = [node for node in nodes if node.cordoned or not node.ready]
    closed = hours * sum(max(0, node.allocatable - node.allocated) for node in shut)
    return replace(
        so_far,
        capacity=so_far.capacity + hours * sum(node.allocatable for node in nodes),
        allocated=so_far.allocated + hours * sum(pod.use.allocated for pod in sample.pods),
        unhealthy=so_far.unhealthy + hours * sum(node.unavailable for node in nodes) + closed,
        closed=so_far.closed + closed,
        waited=so_far.waited + hours * sample.wanted,
        waiting=max(so_far.waiting, sample.waiting),
        wanted=max(so_far.wanted, sample.wanted),
        longest=max(so_far.longest, sample.longest),
    )
