"""Samples of all GPUs of a cluster without Prometheus, and the figures computed from them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from bot.gpus.models import (
    BUSY,
    HALF_HOUR,
    HOUR,
    MIN_COVERAGE,
    Gpu,
    HourCapacity,
    HourUse,
    NodeUse,
    PodUse,
    Xid,
)
from k8s.reservations import is_placeholder


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


_SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)


def dump(sample: Sample) -> bytes:
    return _SAMPLE.dump_json(sample, exclude_defaults=True)


def load(text: bytes) -> Sample:
    return _SAMPLE.validate_json(text)


def with_history(now: Sample, before: Sample | None) -> Sample:
    """Carry over each pod's activity so far, and the models of nodes without metrics."""
    known = {_key(pod.use): pod for pod in before.pods} if before else {}
    models = {node.node: node.model for node in before.nodes} if before else {}
    return replace(
        now,
        pods=tuple(_after(known.get(_key(pod.use)), pod) for pod in now.pods),
        nodes=tuple(replace(node, model=node.model or models.get(node.node, "")) for node in now.nodes),
    )


def _key(use: PodUse) -> tuple[str, str, str]:
    return use.namespace, use.pod, use.node


def _after(before: PodSample | None, now: PodSample) -> PodSample:
    busy = any((gpu.peak or 0) >= BUSY for gpu in now.use.gpus)
    complete = len(now.use.gpus) >= now.use.allocated
    return replace(
        now,
        busy=busy or (before is not None and before.busy),
        complete=complete + (before.complete if before else 0),
    )


def pods(samples: Sequence[Sample], window: timedelta) -> tuple[PodUse, ...]:
    """Return the pods of the last sample, with statistics over the window before it."""
    last = samples[-1]
    recent: dict[tuple[str, str, str], list[PodUse]] = defaultdict(list)
    for sample in samples:
        if sample.at > last.at - window:
            for pod in sample.pods:
                recent[_key(pod.use)].append(pod.use)
    return tuple(_pod(pod, recent[_key(pod.use)], last, window) for pod in last.pods)


def _pod(pod: PodSample, recent: Sequence[PodUse], last: Sample, window: timedelta) -> PodUse:
    started = pod.use.started
    age = max(last.at - started, timedelta(seconds=last.step)) if started else window
    expected = MIN_COVERAGE * min(age, window).total_seconds() / last.step
    return replace(
        pod.use,
        gpus=tuple(_gpu(device, shares, expected) for device, shares in sorted(_shares(recent).items())),
        busy_ever=True if pod.busy else False if _known(pod, last) else None,
    )


def _known(pod: PodSample, last: Sample) -> bool:
    if not pod.use.started or not pod.complete:
        return False
    return pod.complete >= MIN_COVERAGE * ((last.at - pod.use.started).total_seconds() // last.step)


def _shares(uses: Iterable[PodUse]) -> dict[tuple[str, str], list[float]]:
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for use in uses:
        for gpu in use.gpus:
            shares[gpu.device, gpu.model].append(gpu.peak or 0.0)
    return shares


def _gpu(device: tuple[str, str], shares: list[float], expected: float) -> Gpu:
    name, model = device
    if len(shares) < expected:
        return Gpu(device=name, model=model)
    p95 = sorted(shares)[round(0.95 * (len(shares) - 1))]
    return Gpu(device=name, model=model, peak=max(shares), mean=sum(shares) / len(shares), p95=p95)


def hour(samples: Iterable[Sample], start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
    """Return the figures of an hour; each sample counts for the `step` seconds before it."""
    within = [sample for sample in samples if start < sample.at <= start + HOUR]
    seen: dict[tuple[str, str], list[tuple[Sample, PodSample]]] = defaultdict(list)
    for sample in within:
        for pod in sample.pods:
            seen[pod.use.namespace, pod.use.pod].append((sample, pod))
    models = {node.node: node.model for sample in within for node in sample.nodes if node.model}
    uses = tuple(_use(start, seen[pod], models) for pod in sorted(seen))
    return uses, replace(_capacity(within, start), observed=sum(use.observed for use in uses))


def _use(start: datetime, seen: Sequence[tuple[Sample, PodSample]], models: Mapping[str, str]) -> HourUse:
    """Return one pod's hour; `models` by node."""
    first, samples = seen[0][1].use, [each for _, each in seen]
    hours = [(sample.step / 3600, each.use) for sample, each in seen]
    gpus = [gpu for each in samples for gpu in each.use.gpus]
    cpu = [each.cpu for each in samples if each.cpu is not None]
    early = _idle(each for each in seen if each[0].at <= start + HALF_HOUR)
    late = _idle(each for each in seen if each[0].at > start + HALF_HOUR)
    held = is_placeholder(first.pod)  # idle on purpose
    return HourUse(
        hour=start,
        namespace=first.namespace,
        pod=first.pod,
        node=first.node,
        owner=first.owner,
        team=first.team,
        sweep=first.sweep,
        model=gpus[-1].model if gpus else models.get(first.node, ""),
        allocated=sum(time * use.allocated for time, use in hours),
        observed=sum(time * min(len(use.gpus), use.allocated) for time, use in hours),
        used=sum(time * (gpu.peak or 0.0) for time, use in hours for gpu in use.gpus),
        idle=0.0 if held else sum(early.values()) + sum(late.values()),
        gpus=len({gpu.device for gpu in gpus}),
        unused=0 if held else len(early.keys() & late.keys()),
        cpu_requested=samples[-1].cpu_requested,
        cpu_mean=sum(cpu) / len(cpu) if cpu else None,
        ram_requested=samples[-1].ram_requested,
        ram_peak=max((each.ram for each in samples if each.ram is not None), default=None),
    )


def _idle(half: Iterable[tuple[Sample, PodSample]]) -> dict[str, float]:
    """Return the hours of each GPU that was idle for a half-hour with enough samples."""
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for sample, pod in half:
        for gpu in pod.use.gpus:
            seen[gpu.device].append((gpu.peak or 0.0, sample.step))
    return {
        device: sum(step for _, step in shares) / 3600
        for device, shares in seen.items()
        if sum(step for _, step in shares) >= MIN_COVERAGE * HALF_HOUR.total_seconds()
        and max(share for share, _ in shares) < BUSY
    }


def _capacity(within: Sequence[Sample], start: datetime) -> HourCapacity:
    nodes = [(sample.step / 3600, node) for sample in within for node in sample.nodes]
    shut = [(hours, node) for hours, node in nodes if node.cordoned or not node.ready]
    closed = sum(hours * max(0, node.allocatable - node.allocated) for hours, node in shut)
    return HourCapacity(
        hour=start,
        capacity=sum(hours * node.allocatable for hours, node in nodes),
        allocated=sum(s.step / 3600 * pod.use.allocated for s in within for pod in s.pods),
        unhealthy=sum(hours * node.unavailable for hours, node in nodes) + closed,
        coverage=min(1.0, sum(sample.step for sample in within) / 3600),
        closed=closed,
        waited=sum(sample.step / 3600 * sample.wanted for sample in within),
        waiting=max((sample.waiting for sample in within), default=0),
        wanted=max((sample.wanted for sample in within), default=0),
        longest=max((sample.longest for sample in within), default=0.0),
    )
