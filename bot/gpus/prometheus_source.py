"""Measure GPU use with Prometheus: current and past; each query covers all pods."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.gpus import promql
from bot.gpus.interval_probe import IntervalProbe
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
from bot.gpus.pod_owners import UNOWNED, Ownership, OwnerStore, PodKey, merged
from bot.gpus.prometheus import Device, Prometheus, Row
from bot.gpus.prometheus_hour import HourResults, assemble_hour, sums
from bot.gpus.scrape_interval import ScrapeIntervals

A_DAY, AN_HOUR, LATELY = 86400, 3600, 600  # seconds
CLUSTER_QUERIES = {
    "capacity": promql.CAPACITY_HOURS,
    "lost": promql.LOST_HOURS,
    "closed": promql.CLOSED_HOURS,
    "coverage": promql.COVERAGE,
    "waited": promql.PENDING_HOURS,
    "waiting": promql.PENDING_PODS,
    "wanted": promql.PENDING_PEAK,
    "longest": promql.LONGEST_WAIT,
}


@dataclass(frozen=True)
class Seen:
    """Statistics of a GPU's samples in a window; shares are 0 to 1."""

    device: Device
    samples: float
    peak: float
    total: float
    p95: float

    def judged(self, expected: float) -> Gpu:
        _, _, name, model = self.device
        if self.samples < MIN_COVERAGE * expected:
            return Gpu(device=name, model=model)
        return Gpu(device=name, model=model, peak=self.peak, mean=self.total / self.samples, p95=self.p95)


class PrometheusSource:
    """`step`: scrape interval of dcgm-exporter in seconds; 0 measures it. Methods raise NoGpuDataError."""

    def __init__(
        self, prometheus: Prometheus, owners: OwnerStore, now: Callable[[], datetime], step: int = 0
    ) -> None:
        self._query, self._owners, self._now = prometheus.query, owners, now
        self._probe = IntervalProbe(prometheus, step)

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        at, seconds = self._now(), round(window.total_seconds())
        intervals = await self._probe.intervals(at, LATELY)
        allocated, seen, started = await asyncio.gather(
            self._query(promql.ALLOCATED, at),
            self._seen(at, seconds, intervals),
            self._by_pod(promql.STARTED, at),
        )
        holders = {row.pod: row for row in allocated if row.value}
        ages = {pod: at.timestamp() - since for pod, since in started.items()}
        owners = await self._owners_of(at, list(holders), day=at)
        used = await self._used(at, {pod: seen[pod] for pod in holders}, ages, intervals)
        return tuple(
            PodUse(
                namespace=pod[0],
                pod=pod[1],
                node=row.labels.get("node", ""),
                **vars(owners[pod]),
                started=datetime.fromtimestamp(started[pod], UTC) if pod in started else None,
                allocated=round(row.value),
                gpus=tuple(
                    gpu.judged(min(seconds, ages.get(pod, seconds)) / intervals.of(gpu.device[2]))
                    for gpu in seen[pod]
                ),
                busy_ever=used[pod],
            )
            for pod, row in sorted(holders.items())
        )

    async def nodes(self) -> tuple[NodeUse, ...]:
        at = self._now()
        physical, allocatable, allocated, cordoned, not_ready = await asyncio.gather(
            self._by_node(promql.PHYSICAL, at),
            self._by_node(promql.ALLOCATABLE, at),
            self._by_node(promql.ALLOCATED, at),
            self._by_node(promql.CORDONED, at),
            self._by_node(promql.NOT_READY, at),
        )
        models = await self._models(at, (node for node in physical if physical[node]))
        return tuple(
            NodeUse(
                node=node,
                model=models.get(node, ""),
                physical=round(physical[node]),
                allocatable=round(allocatable.get(node, 0)),
                allocated=round(allocated.get(node, 0)),
                ready=node not in not_ready,
                cordoned=node in cordoned,
            )
            for node in sorted(physical)
            if physical[node]
        )

    async def xids(self) -> tuple[Xid, ...]:
        return tuple(
            Xid(
                device=row.gpu,
                model=row.labels.get("modelName", ""),
                node=row.host,
                namespace=row.pod[0],
                pod=row.pod[1],
                code=round(row.value),
            )
            for row in await self._query(promql.ERRORS, self._now())
        )

    async def hour(self, start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
        """Measure the hour that begins at `start`. Raises NoGpuDataError."""
        return assemble_hour(start, await self._query_hour(start))

    async def _query_hour(self, start: datetime) -> HourResults:
        end = start + HOUR
        allocated = await self._query(promql.ALLOCATED_HOURS, end)
        observed, used, late, early = await self._measured(start, await self._probe.intervals(end, AN_HOUR))
        cpu_requested, cpu_mean, ram_requested, ram_peak = await asyncio.gather(
            self._by_pod(promql.requested("cpu"), end),
            self._by_pod(promql.CPU_MEAN, end),
            self._by_pod(promql.requested("memory"), end),
            self._by_pod(promql.RAM_PEAK, end),
        )
        pods = [pod for pod, hours in sums(allocated).items() if hours]
        return HourResults(
            allocated=allocated,
            observed=observed,
            used=used,
            idle_early=early,
            idle_late=late,
            cpu_requested=cpu_requested,
            cpu_mean=cpu_mean,
            ram_requested=ram_requested,
            ram_peak=ram_peak,
            cluster={name: await self._total(query, end) for name, query in CLUSTER_QUERIES.items()},
            models=await self._models(end, {row.labels.get("node", "") for row in allocated}),
            owners=await self._owners_of(end, pods, day=start),
        )

    async def _total(self, query: str, at: datetime) -> float:
        return sum(row.value for row in await self._query(query, at))

    async def _measured(self, start: datetime, intervals: ScrapeIntervals) -> list[list[Row]]:
        """Return GPU-hours observed, used, idle in the second half hour, and idle in the first, by GPU.

        Each GPU is queried at its own scrape interval.
        """
        end, found = start + HOUR, list[list[Row]]([[], [], [], []])
        for step in intervals.steps:
            answers = await asyncio.gather(
                self._query(promql.observed_hours(step), end),
                self._query(promql.used_hours(step), end),
                self._query(promql.idle_half(step), end),
                self._query(promql.idle_half(step), start + HALF_HOUR),
            )
            for rows, answer in zip(found, answers, strict=True):
                rows += [row for row in answer if intervals.of(row.device[2]) == step]
        return found

    async def _seen(self, at: datetime, seconds: int, intervals: ScrapeIntervals) -> dict[PodKey, list[Seen]]:
        samples, peak, total, p95 = await asyncio.gather(
            *(
                self._by_device(query(seconds), at)
                for query in (promql.samples, promql.peak, promql.total, promql.p95)
            )
        )
        if broken := samples.keys() - total.keys():
            samples |= await self._numbers("count", at, seconds, intervals, broken)
            total |= await self._numbers("sum", at, seconds, intervals, broken)
        found: dict[PodKey, list[Seen]] = defaultdict(list)
        for device in sorted(samples):
            if (
                device in peak and device in total and device in p95
            ):  # absent from one answer: scraped between two queries
                seen = Seen(device, samples[device], peak[device], total[device], p95[device])
                found[device[0], device[1]].append(seen)
        return found

    async def _numbers(
        self, function: str, at: datetime, seconds: int, intervals: ScrapeIntervals, broken: set[Device]
    ) -> dict[Device, float]:
        """Query GPUs with a NaN sample, which turns every sum into NaN, without those samples."""
        found: dict[Device, float] = {}
        for step in {intervals.of(device[2]) for device in broken}:
            which = {_uuid(device[2]) for device in broken if intervals.of(device[2]) == step}
            answer = await self._by_device(promql.finite_samples(function, seconds, step, which), at)
            found |= {device: value for device, value in answer.items() if device in broken}
        return found

    async def _used(
        self,
        at: datetime,
        seen: dict[PodKey, list[Seen]],
        ages: dict[PodKey, float],
        intervals: ScrapeIntervals,
    ) -> dict[PodKey, bool | None]:
        """Return whether each pod was ever busy; query pods idle in the window over their whole life."""
        quiet = {pod for pod, gpus in seen.items() if gpus and all(gpu.peak < BUSY for gpu in gpus)}
        life = min(
            A_DAY, max((round(ages[pod]) for pod in quiet & ages.keys()), default=0) + intervals.steps[-1]
        )
        which = {_uuid(gpu.device[2]) for pod in quiet for gpu in seen[pod]}
        peak, samples = {}, {}
        if quiet:
            peak = await self._by_device(promql.peak(life, which), at)
            samples = await self._by_device(promql.samples(life, which), at)

        def ever(pod: PodKey) -> bool | None:
            devices = [gpu.device for gpu in seen[pod]]
            if pod not in quiet:
                return True if devices else None
            if any(peak.get(device, 0) >= BUSY for device in devices):
                return True
            if (age := ages.get(pod, math.inf)) > life:
                return None  # older than the query reaches back
            enough = (samples.get(each, 0) >= MIN_COVERAGE * age / intervals.of(each[2]) for each in devices)
            return False if all(enough) else None

        return {pod: ever(pod) for pod in seen}

    async def _owners_of(self, at: datetime, pods: list[PodKey], *, day: datetime) -> dict[PodKey, Ownership]:
        """Return owners by the pod labels that kube-state-metrics is set up to export, else as stored."""
        labeled: dict[PodKey, Ownership] = {}
        for row in await self._query(promql.OWNER_LABELS, at):
            owner = Ownership(
                owner=row.labels.get("label_sweepbot_owner", ""),
                team=row.labels.get("label_sweepbot_team", ""),
                sweep=row.labels.get("label_sweepbot_sweep", ""),
                trial=row.labels.get("label_katib_kubeflow_org_trial", ""),
            )
            labeled[row.pod] = merged(labeled.get(row.pod, UNOWNED), owner)
        return await self._owners.owners(day, pods, labeled)

    async def _models(self, at: datetime, nodes: Iterable[str]) -> dict[str, str]:
        """Return GPU models by node, which dcgm-exporter calls the host name."""
        known = _models(await self._query(promql.MODELS, at))
        if missing := {*nodes} - known.keys() - {""}:
            known |= _models(await self._query(promql.last_models(missing), at))
        return known

    async def _by_pod(self, query: str, at: datetime) -> dict[PodKey, float]:
        return {row.pod: row.value for row in await self._query(query, at)}

    async def _by_node(self, query: str, at: datetime) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for row in await self._query(query, at):
            sums[row.labels.get("node", "")] += row.value
        return sums

    async def _by_device(self, query: str, at: datetime) -> dict[Device, float]:
        return {row.device: row.value for row in await self._query(query, at)}


def _models(rows: Iterable[Row]) -> dict[str, str]:
    """Return each host's most frequent model."""
    return {row.host: row.model for row in sorted(rows, key=lambda row: row.value)}


def _uuid(device: str) -> str:
    """Return the UUID; empty for a GPU known by host:index only."""
    uuid = device.partition("/")[0]
    return "" if ":" in uuid else uuid
