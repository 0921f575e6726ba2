"""Looks at all GPUs of a cluster without Prometheus, and what a row of such looks comes to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from bot.usage import BUSY, ENOUGH, HALF_HOUR, HOUR, Gpu, HourCapacity, HourUse, NodeUse, PodUse, Xid


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One pod at one moment."""

    use: PodUse  # with what its GPUs do just then as their peaks; cpu and ram as used just then
    busy: bool = False  # at this look or an earlier one
    looks: int = 0  # so many in its life, with every GPU seen


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The cluster at one moment, which stands for the `step` seconds before it."""

    at: datetime
    step: int
    looks: tuple[Look, ...]
    nodes: tuple[NodeUse, ...]
    xids: tuple[Xid, ...] = ()
    wanted: int = 0  # GPUs of pods that no node has room for


_SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)


def dump(sample: Sample) -> bytes:
    return _SAMPLE.dump_json(sample, exclude_defaults=True)


def load(text: bytes) -> Sample:
    return _SAMPLE.validate_json(text)


def following(before: Sample | None, now: Sample) -> Sample:
    """The look with what it goes on from: whether a pod was ever busy, and how often it was looked at."""
    known = {_key(look.use): look for look in before.looks} if before else {}
    return replace(now, looks=tuple(_after(known.get(_key(look.use)), look) for look in now.looks))


def _key(use: PodUse) -> tuple[str, str, str]:
    return use.namespace, use.pod, use.node


def _after(before: Look | None, now: Look) -> Look:
    busy = any((gpu.peak or 0) >= BUSY for gpu in now.use.gpus)
    whole = len(now.use.gpus) >= now.use.allocated
    return Look(
        use=now.use,
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
    cpu = [use.cpu_mean for use in recent if use.cpu_mean is not None]
    return replace(
        look.use,
        gpus=tuple(_gpu(device, shares, expected) for device, shares in sorted(_shares(recent).items())),
        busy_ever=True if look.busy else False if _known(look, last) else None,
        cpu_mean=sum(cpu) / len(cpu) if cpu else None,
        ram_peak=max((use.ram_peak for use in recent if use.ram_peak is not None), default=None),
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
    rows: dict[tuple[str, str], HourUse] = {}
    for hours, look in ((s.step / 3600, look) for s in within for look in s.looks):
        use, shares = look.use, [gpu.peak or 0.0 for gpu in look.use.gpus]
        row = rows.get((use.namespace, use.pod)) or _empty(start, use)
        rows[use.namespace, use.pod] = replace(
            row,
            allocated=row.allocated + hours * use.allocated,
            observed=row.observed + hours * min(len(shares), use.allocated),
            used=row.used + hours * sum(shares),
            model=next((gpu.model for gpu in use.gpus), row.model),
        )
    for half in (start, start + HALF_HOUR):
        for place, hours in _idle([s for s in within if half < s.at <= half + HALF_HOUR]):
            rows[place] = replace(rows[place], idle=rows[place].idle + hours)
    return tuple(rows[place] for place in sorted(rows)), _capacity(within, start)


def _empty(start: datetime, use: PodUse) -> HourUse:
    who = {"owner": use.owner, "team": use.team, "sweep": use.sweep, "node": use.node}
    place = {"namespace": use.namespace, "pod": use.pod}
    return HourUse(hour=start, **place, **who, allocated=0.0, observed=0.0, used=0.0, idle=0.0)


def _idle(half: Sequence[Sample]) -> Iterator[tuple[tuple[str, str], float]]:
    """Of each GPU that did nothing in a half hour, and was looked at often enough to say so."""
    shares: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    for sample in half:
        for look in sample.looks:
            for gpu in look.use.gpus:
                shares[look.use.namespace, look.use.pod, gpu.device].append((gpu.peak or 0.0, sample.step))
    for (namespace, pod, _), seen in shares.items():
        seconds = sum(step for _, step in seen)
        if seconds >= ENOUGH * HALF_HOUR.total_seconds() and max(share for share, _ in seen) < BUSY:
            yield (namespace, pod), seconds / 3600


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
    )
