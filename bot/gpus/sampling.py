"""Looks at all GPUs of a cluster without Prometheus, and what a row of such looks comes to."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from bot.gpus.models import BUSY, ENOUGH, HALF_HOUR, HOUR, Gpu, HourCapacity, HourUse, NodeUse, PodUse, Xid


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One pod at one moment."""

    use: PodUse  # with what its GPUs do just then as their peaks
    busy: bool = False  # at this look or an earlier one
    looks: int = 0  # so many in its life, with every GPU seen
    cpu_requested: float | None = None  # cores
    cpu: float | None = None  # cores, used just then
    ram_requested: float | None = None  # bytes
    ram: float | None = None  # bytes, used just then


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The cluster at one moment, which stands for the `step` seconds before it."""

    at: datetime
    step: int
    looks: tuple[Look, ...]
    nodes: tuple[NodeUse, ...]
    xids: tuple[Xid, ...] = ()
    wanted: int = 0  # GPUs of pods that no node has room for
    waiting: int = 0  # so many such pods
    longest: float = 0.0  # hours since the oldest of them was made


_SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)


def dump(sample: Sample) -> bytes:
    return _SAMPLE.dump_json(sample, exclude_defaults=True)


def load(text: bytes) -> Sample:
    return _SAMPLE.validate_json(text)


def following(before: Sample | None, now: Sample) -> Sample:
    """The look with what it goes on from: a pod's work and looks so far, the models of silent nodes."""
    known = {_key(look.use): look for look in before.looks} if before else {}
    models = {node.node: node.model for node in before.nodes} if before else {}
    return replace(
        now,
        looks=tuple(_after(known.get(_key(look.use)), look) for look in now.looks),
        nodes=tuple(replace(node, model=node.model or models.get(node.node, "")) for node in now.nodes),
    )


def _key(use: PodUse) -> tuple[str, str, str]:
    return use.namespace, use.pod, use.node


def _after(before: Look | None, now: Look) -> Look:
    busy = any((gpu.peak or 0) >= BUSY for gpu in now.use.gpus)
    whole = len(now.use.gpus) >= now.use.allocated
    return replace(
        now,
        busy=busy or (before is not None and before.busy),
        looks=whole + (before.looks if before else 0),
    )


def pods(samples: Sequence[Sample], window: timedelta) -> tuple[PodUse, ...]:
    """Those of the last look, with what the looks of the window before it come to."""
    last = samples[-1]
    recent: dict[tuple[str, str, str], list[PodUse]] = defaultdict(list)
    for sample in samples:
        if sample.at > last.at - window:
            for look in sample.looks:
                recent[_key(look.use)].append(look.use)
    return tuple(_pod(look, recent[_key(look.use)], last, window) for look in last.looks)


def _pod(look: Look, recent: Sequence[PodUse], last: Sample, window: timedelta) -> PodUse:
    started = look.use.started
    age = max(last.at - started, timedelta(seconds=last.step)) if started else window
    expected = ENOUGH * min(age, window).total_seconds() / last.step
    return replace(
        look.use,
        gpus=tuple(_gpu(device, shares, expected) for device, shares in sorted(_shares(recent).items())),
        busy_ever=True if look.busy else False if _known(look, last) else None,
    )


def _known(look: Look, last: Sample) -> bool:
    if not look.use.started or not look.looks:
        return False
    return look.looks >= ENOUGH * ((last.at - look.use.started).total_seconds() // last.step)


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
    """The sums of an hour, each look for the time it stands for."""
    within = [sample for sample in samples if start < sample.at <= start + HOUR]
    seen: dict[tuple[str, str], list[tuple[Sample, Look]]] = defaultdict(list)
    for sample in within:
        for look in sample.looks:
            seen[look.use.namespace, look.use.pod].append((sample, look))
    models = {node.node: node.model for sample in within for node in sample.nodes if node.model}
    uses = tuple(_use(start, seen[place], models) for place in sorted(seen))
    return uses, replace(_capacity(within, start), observed=sum(use.observed for use in uses))


def _use(start: datetime, seen: Sequence[tuple[Sample, Look]], models: Mapping[str, str]) -> HourUse:
    """Of one pod; `models` by node."""
    first, looks = seen[0][1].use, [look for _, look in seen]
    hours = [(sample.step / 3600, look.use) for sample, look in seen]
    gpus = [gpu for look in looks for gpu in look.use.gpus]
    cpu = [look.cpu for look in looks if look.cpu is not None]
    early = _idle(each for each in seen if each[0].at <= start + HALF_HOUR)
    late = _idle(each for each in seen if each[0].at > start + HALF_HOUR)
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
        idle=sum(early.values()) + sum(late.values()),
        gpus=len({gpu.device for gpu in gpus}),
        unused=len(early.keys() & late.keys()),
        cpu_requested=looks[-1].cpu_requested,
        cpu_mean=sum(cpu) / len(cpu) if cpu else None,
        ram_requested=looks[-1].ram_requested,
        ram_peak=max((look.ram for look in looks if look.ram is not None), default=None),
    )


def _idle(half: Iterable[tuple[Sample, Look]]) -> dict[str, float]:
    """Hours of each GPU that did nothing in a half hour, and was looked at often enough to say so."""
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for sample, look in half:
        for gpu in look.use.gpus:
            seen[gpu.device].append((gpu.peak or 0.0, sample.step))
    return {
        device: sum(step for _, step in shares) / 3600
        for device, shares in seen.items()
        if sum(step for _, step in shares) >= ENOUGH * HALF_HOUR.total_seconds()
        and max(share for share, _ in shares) < BUSY
    }


def _capacity(within: Sequence[Sample], start: datetime) -> HourCapacity:
    nodes = [(sample.step / 3600, node) for sample in within for node in sample.nodes]
    shut = [(hours, node) for hours, node in nodes if node.cordoned or not node.ready]
    closed = sum(hours * max(0, node.allocatable - node.allocated) for hours, node in shut)
    return HourCapacity(
        hour=start,
        capacity=sum(hours * node.allocatable for hours, node in nodes),
        allocated=sum(s.step / 3600 * look.use.allocated for s in within for look in s.looks),
        unhealthy=sum(hours * node.lost for hours, node in nodes) + closed,
        coverage=min(1.0, sum(sample.step for sample in within) / 3600),
        closed=closed,
        waited=sum(sample.step / 3600 * sample.wanted for sample in within),
        waiting=max((sample.waiting for sample in within), default=0),
        wanted=max((sample.wanted for sample in within), default=0),
        longest=max((sample.longest for sample in within), default=0.0),
    )
