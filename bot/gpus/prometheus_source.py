"""Measure GPU use with Prometheus: current and past; each query covers all pods."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from bot.gpus import promql
from bot.gpus.device_stats import DeviceQueries
from bot.gpus.interval_probe import IntervalProbe
from bot.gpus.models import HALF_HOUR, HOUR, HourCapacity, HourUse, NodeUse, PodUse, Snapshot, Xid
from bot.gpus.pod_owners import UNOWNED, Ownership, OwnerStore, PodKey, merged
from bot.gpus.prometheus import Prometheus, Row
from bot.gpus.prometheus_hour import HourResults, assemble_hour, sums
from bot.gpus.recent import Recent
from bot.gpus.scrape_interval import ScrapeIntervals
from bot.gpus.series_kinds import SeriesKinds

AN_HOUR, LATELY = 3600, 600  # seconds
CAPACITY_QUERIES = {
    "capacity": promql.CAPACITY_HOURS,
    "lost": promql.LOST_HOURS,
    "coverage": promql.COVERAGE,
}
CLOSED = {"closed": promql.CLOSED_HOURS}
PENDING_QUERIES = {
    "waited": promql.PENDING_HOURS,
    "waiting": promql.PENDING_PODS,
    "wanted": promql.PENDING_PEAK,
    "longest": promql.LONGEST_WAIT,
}


class PrometheusSource:
    """`step`: scrape interval of dcgm-exporter in seconds; 0 measures it. Methods raise NoGpuDataError."""

    def __init__(
        self, prometheus: Prometheus, owners: OwnerStore, now: Callable[[], datetime], step: int = 0
    ) -> None:
        self._query, self._owners, self._now = prometheus.query, owners, now
        self._devices, self._probe = DeviceQueries(prometheus), IntervalProbe(prometheus, step)
        self._intervals, self._models = Recent[ScrapeIntervals](), Recent[dict[str, str]]()

    async def snapshot(self, window: timedelta) -> Snapshot:
        at = self._now()
        allocated = await self._query(promql.ALLOCATED, at)
        nodes, pods = await asyncio.gather(
            self._nodes(at, allocated), self._pods(at, allocated, window, history=False)
        )
        return Snapshot(at=at, nodes=nodes, pods=pods)

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        at = self._now()
        return await self._pods(at, await self._query(promql.ALLOCATED, at), window, history=True)

    async def nodes(self) -> tuple[NodeUse, ...]:
        at = self._now()
        return await self._nodes(at, await self._query(promql.ALLOCATED, at))

    async def _pods(
        self, at: datetime, allocated: list[Row], window: timedelta, *, history: bool
    ) -> tuple[PodUse, ...]:
        """`history`: with `p95` and `busy_ever`, which take most of the time."""
        seconds = round(window.total_seconds())
        intervals = await self._intervals.get(at, lambda: self._probe.intervals(at, LATELY))
        rows = {row.pod: row for row in allocated if row.value}
        stats, started, owners = await asyncio.gather(
            self._devices.stats(at, seconds, intervals, rows, p95=history),
            self._by_pod(promql.POD_STARTED, at),
            self._owners_of(promql.OWNER_LABELS, at, list(rows), day=at),
        )
        stats = {pod: stats.get(pod, []) for pod in rows}
        ages = {pod: at.timestamp() - since for pod, since in started.items()}
        busy = await self._devices.ever_busy(at, stats, ages, intervals) if history else {}

        def pod_use(pod: PodKey, row: Row) -> PodUse:
            age = min(seconds, ages.get(pod, seconds))
            return PodUse(
                namespace=pod[0],
                pod=pod[1],
                node=row.labels.get("node", ""),
                **vars(owners[pod]),
                started=datetime.fromtimestamp(started[pod], UTC) if pod in started else None,
                allocated=round(row.value),
                gpus=tuple(gpu.gpu(age / intervals.of(gpu.device[2])) for gpu in stats[pod]),
                busy_ever=busy.get(pod),
            )

        return await asyncio.to_thread(lambda: tuple(pod_use(pod, row) for pod, row in sorted(rows.items())))

    async def _nodes(self, at: datetime, allocated: list[Row]) -> tuple[NodeUse, ...]:
        physical, allocatable, cordoned, not_ready = await asyncio.gather(
            self._by_node(promql.PHYSICAL, at),
            self._by_node(promql.ALLOCATABLE, at),
            self._by_node(promql.CORDONED, at),
            self._by_node(promql.NOT_READY, at),
        )
        used = _sums_by_node(allocated)
        wanted = [node for node in physical if physical[node]]
        models = await self._models.get(at, lambda: self._query_models(promql.MODELS, at, wanted))
        return tuple(
            NodeUse(
                node=node,
                model=models.get(node, ""),
                physical=round(physical[node]),
                allocatable=round(allocatable.get(node, 0)),
                allocated=round(used.get(node, 0)),
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
        return await asyncio.to_thread(assemble_hour, start, await self._query_hour(start))

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
            cluster=await self._cluster_totals(end),
            models=await self._query_models(
                promql.HOUR_MODELS, end, {row.labels.get("node", "") for row in allocated}
            ),
            owners=await self._owners_of(promql.HOUR_OWNER_LABELS, end, pods, day=start),
        )

    async def _cluster_totals(self, end: datetime) -> dict[str, float]:
        """Return an hour's totals by name; query only what the hour had."""
        queries = dict(CAPACITY_QUERIES)
        queries |= CLOSED if await self._query(promql.ANY_CLOSED, end) else {}
        queries |= PENDING_QUERIES if await self._query(promql.ANY_PENDING, end) else {}
        none = dict.fromkeys(CLOSED | PENDING_QUERIES, 0.0)
        return none | {name: await self._total(query, end) for name, query in queries.items()}

    async def _total(self, query: str, at: datetime) -> float:
        return sum(row.value for row in await self._query(query, at))

    async def _measured(self, start: datetime, intervals: ScrapeIntervals) -> list[list[Row]]:
        """Return GPU-hours observed, used, idle in the second half hour, and idle in the first, by GPU.

        Each GPU is queried at its own scrape interval.
        """
        end, found = start + HOUR, list[list[Row]]([[], [], [], []])
        kinds = SeriesKinds(engine_only=not await self._query(promql.HOUR_UTIL_ONLY, end))
        for step in intervals.steps:
            answers = await asyncio.gather(
                self._query(promql.observed_hours(step, kinds), end),
                self._query(promql.used_hours(step, kinds), end),
                self._query(promql.idle_half(step, kinds), end),
                self._query(promql.idle_half(step, kinds), start + HALF_HOUR),
            )
            for rows, answer in zip(found, answers, strict=True):
                rows.extend(await asyncio.to_thread(_of_interval, answer, intervals, step))
        return found

    async def _owners_of(
        self, query: str, at: datetime, pods: list[PodKey], *, day: datetime
    ) -> dict[PodKey, Ownership]:
        """Return owners by the pod labels that kube-state-metrics is set up to export, else as stored."""
        rows = await self._query(query, at)
        return await self._owners.owners(day, pods, await asyncio.to_thread(_labeled, rows))

    async def _query_models(self, query: str, at: datetime, nodes: Iterable[str]) -> dict[str, str]:
        """Return GPU models by node, which dcgm-exporter calls the host name."""
        known = _models(await self._query(query, at))
        if missing := {*nodes} - known.keys() - {""}:
            known |= _models(await self._query(promql.last_models(missing), at))
        return known

    async def _by_pod(self, query: str, at: datetime) -> dict[PodKey, float]:
        return {row.pod: row.value for row in await self._query(query, at)}

    async def _by_node(self, query: str, at: datetime) -> dict[str, float]:
        return _sums_by_node(await self._query(query, at))


def _of_interval(rows: Iterable[Row], intervals: ScrapeIntervals, step: int) -> list[Row]:
    return [row for row in rows if intervals.of(row.device[2]) == step]


def _sums_by_node(rows: Iterable[Row]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row.labels.get("node", "")] += row.value
    return sums


def _labeled(rows: Iterable[Row]) -> dict[PodKey, Ownership]:
    """Return the owners of pods by their labels; of several series of a pod, the first value counts."""
    labeled: dict[PodKey, Ownership] = {}
    for row in rows:
        owner = Ownership(
            owner=row.labels.get("label_sweepbot_owner", ""),
            team=row.labels.get("label_sweepbot_team", ""),
            sweep=row.labels.get("label_sweepbot_sweep", ""),
            trial=row.labels.get("label_katib_kubeflow_org_trial", ""),
        )
        labeled[row.pod] = merged(labeled.get(row.pod, UNOWNED), owner)
    return labeled


def _models(rows: Iterable[Row]) -> dict[str, str]:
    """Return each host's most frequent model."""
    return {row.host: row.model for row in sorted(rows, key=lambda row: row.value)}
