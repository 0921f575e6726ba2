"""Measure GPU use with Prometheus: current and past; each query covers all pods."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.measure.gpus.models import (
    HOUR,
    HourCapacity,
    HourUse,
    NodeUse,
    NoGpuDataError,
    PodUse,
    Snapshot,
)
from bot.measure.gpus.pod_owners import UNOWNED, Ownership, OwnerStore, PodKey, merged
from bot.measure.sources import promql
from bot.measure.sources.cpu_use import CpuQueries
from bot.measure.sources.device_stats import DeviceQueries
from bot.measure.sources.hour_queries import HourQueries
from bot.measure.sources.prometheus import Prometheus, Recent, Row
from bot.measure.sources.prometheus_hour import HourResults, Offered, Place, assemble_hour, place_of, sums
from bot.measure.sources.scrape_interval import IntervalProbe, ScrapeIntervals
from bot.measure.sources.shared_use import assignable
from k8s.nodes.dcgm import Xid
from k8s.nodes.gpus import NodeDevices, with_share

Devices = Mapping[str, NodeDevices]  # by node

AN_HOUR, LATELY = 3600, 600  # seconds
CAPACITY_QUERIES = {"capacity": promql.CAPACITY_HOURS, "coverage": promql.COVERAGE}
LOST, CLOSED = {"lost": promql.LOST_HOURS}, {"closed": promql.CLOSED_HOURS}
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
        self._each = prometheus.query_each
        self._devices, self._probe = DeviceQueries(prometheus), IntervalProbe(prometheus, step)
        self._hour = HourQueries(prometheus)
        self.cpus = CpuQueries(prometheus, now)
        self._intervals, self._models = Recent[ScrapeIntervals](), Recent[Devices]()

    async def snapshot(self, window: timedelta) -> Snapshot:
        at = self._now()
        allocated, offered = await self._allocated(at), await self._offered(at)
        nodes, pods = await asyncio.gather(
            self._nodes(at, allocated, offered), self._pods(at, allocated, offered, window, history=False)
        )
        return Snapshot(at=at, nodes=nodes, pods=pods)

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        at = self._now()
        allocated, offered = await self._allocated(at), await self._offered(at)
        return await self._pods(at, allocated, offered, window, history=True)

    async def nodes(self) -> tuple[NodeUse, ...]:
        at = self._now()
        return await self._nodes(at, await self._allocated(at), await self._offered(at))

    async def _allocated(self, at: datetime) -> list[Row]:
        rows = await self._query(promql.ALLOCATED, at)
        # Without kube-state-metrics, a full cluster looks like one without any allocation.
        if not rows and not await self._query(promql.ANY_NODE, at):
            raise NoGpuDataError("Prometheus knows no nodes; check that it scrapes kube-state-metrics")
        return rows

    async def _offered(self, at: datetime) -> Offered:
        physical = await self._query(promql.PHYSICAL_BY_RESOURCE, at)
        nodes = {place_of(row)[0] for row in physical if row.value}
        devices = await self._models.get(at, lambda: self._query_models(at, nodes))
        return _offered(physical, devices)

    async def _pods(
        self, at: datetime, allocated: list[Row], offered: Offered, window: timedelta, *, history: bool
    ) -> tuple[PodUse, ...]:
        """`history`: with `p95` and `busy_ever`, which take most of the time."""
        seconds = round(window.total_seconds())
        intervals = await self._intervals.get(at, lambda: self._query_intervals(at))
        rows: dict[PodKey, list[Row]] = defaultdict(list)
        for row in allocated:
            if row.value:
                rows[row.pod].append(row)
        stats, started, restarted, owners = await asyncio.gather(
            self._devices.stats(at, seconds, intervals, rows, p95=history),
            self._by_pod(promql.POD_STARTED, at),
            self._by_pod(promql.RESTARTED_POD_STARTED, at),
            self._owners_of(promql.OWNER_LABELS, at, list(rows), day=at),
        )
        stats = {pod: stats.get(pod, []) for pod in rows}
        ages = {pod: at.timestamp() - since for pod, since in started.items()}
        lives = ages | {pod: at.timestamp() - since for pod, since in restarted.items()}
        busy = await self._devices.ever_busy(at, stats, lives, intervals) if history else {}

        def pod_use(pod: PodKey, mine: list[Row]) -> PodUse:
            model = offered.get(place_of(mine[0]), (0, ""))[1]
            age = min(seconds, ages.get(pod, seconds))
            gpus = (gpu.gpu(age / intervals.of(gpu.device[2])) for gpu in stats[pod])
            return PodUse(
                namespace=pod[0],
                pod=pod[1],
                node=place_of(mine[0])[0],
                **vars(owners[pod]),
                started=datetime.fromtimestamp(started[pod], UTC) if pod in started else None,
                pod_started=datetime.fromtimestamp(restarted[pod], UTC) if pod in restarted else None,
                allocated=round(sum(row.value for row in mine)),
                gpus=tuple(replace(gpu, model=with_share(gpu.model, model)) for gpu in gpus),
                busy_ever=busy.get(pod),
            )

        return await asyncio.to_thread(
            lambda: assignable(pod_use(pod, mine) for pod, mine in sorted(rows.items()))
        )

    async def _nodes(self, at: datetime, allocated: list[Row], offered: Offered) -> tuple[NodeUse, ...]:
        allocatable, cordoned, not_ready = await asyncio.gather(
            self._query(promql.ALLOCATABLE_BY_RESOURCE, at),
            self._query(promql.CORDONED, at),
            self._query(promql.NOT_READY, at),
        )
        left, used = _by_place(allocatable), _by_place(allocated)
        closed, away = ({place_of(row)[0] for row in rows} for rows in (cordoned, not_ready))
        return tuple(
            NodeUse(
                node=place[0],
                model=model,
                physical=physical,
                allocatable=round(left[place]),
                allocated=round(used[place]),
                ready=place[0] not in away,
                cordoned=place[0] in closed,
            )
            for place, (physical, model) in sorted(offered.items())
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
        allocated = await self._hour.allocated(end)
        exporters = await self._probe.exporters(end, AN_HOUR)
        intervals = await self._probe.intervals(end, AN_HOUR, exporters)
        gpus, series = await self._hour.gpus(start, intervals, engine_only=exporters.engine_only)
        models = _each_once(series) if exporters.engine_only else await self._query(promql.HOUR_MODELS, end)
        pods = {pod for pod, hours in sums(allocated).items() if hours}
        namespaces = {namespace for namespace, _ in pods}
        requested, cpu_mean, ram_peak = await asyncio.gather(
            self._each(promql.requested, namespaces, end),
            self._hour.cpu_mean(end, pods),
            self._each(promql.ram_peak, namespaces, end),
        )
        return HourResults(
            allocated=allocated,
            gpus=gpus,
            cpu_requested=_of_resource("cpu", requested),
            cpu_mean=cpu_mean,
            ram_requested=_of_resource("memory", requested),
            ram_peak={row.pod: row.value for row in ram_peak},
            cluster=await self._cluster_totals(end),
            offered=_offered(
                await self._query(promql.HOUR_PHYSICAL, end),
                await self._devices_of(models, end, {place_of(row)[0] for row in allocated}),
            ),
            owners=await self._owners_of(promql.HOUR_OWNER_LABELS, end, pods, day=start),
        )

    async def _cluster_totals(self, end: datetime) -> dict[str, float]:
        """Return an hour's totals by name; query only what the hour had."""
        queries = dict(CAPACITY_QUERIES)
        queries |= LOST if await self._query(promql.ANY_LOST, end) else {}
        queries |= CLOSED if await self._query(promql.ANY_CLOSED, end) else {}
        queries |= PENDING_QUERIES if await self._query(promql.ANY_PENDING, end) else {}
        none = dict.fromkeys(LOST | CLOSED | PENDING_QUERIES, 0.0)
        return none | {name: await self._total(query, end) for name, query in queries.items()}

    async def _total(self, query: str, at: datetime) -> float:
        return sum(row.value for row in await self._query(query, at))

    async def _owners_of(
        self, query: str, at: datetime, pods: Collection[PodKey], *, day: datetime
    ) -> dict[PodKey, Ownership]:
        """Return owners by the pod labels that kube-state-metrics is set up to export, else as stored."""
        rows = await self._query(query, at)
        return await self._owners.owners(day, pods, await asyncio.to_thread(_labeled, rows))

    async def _query_intervals(self, at: datetime) -> ScrapeIntervals:
        return await self._probe.intervals(at, LATELY, await self._probe.exporters(at, LATELY))

    async def _query_models(self, at: datetime, nodes: set[str]) -> Devices:
        return await self._devices_of(await self._query(promql.MODELS, at), at, nodes)

    async def _devices_of(self, rows: list[Row], at: datetime, nodes: set[str]) -> Devices:
        """Return the devices of series by node, which most exporters call the host name."""
        known = await asyncio.to_thread(_devices, rows)
        if nodes - known.keys() - {""} and (others := known.keys() - nodes - {""}):
            places = await self._nodes_of(others, at)
            if unplaced := others - places.keys():
                scraped = _devices(await self._each(promql.scraped_models, unplaced, at))
                places |= await self._nodes_of(scraped.keys(), at)
                known |= scraped
            known |= {places[host]: known[host] for host in places.keys() & known.keys()}
        if missing := nodes - known.keys() - {""}:
            known |= _devices(await self._each(promql.last_models, missing, at))
        return known

    async def _nodes_of(self, hosts: Collection[str], at: datetime) -> dict[str, str]:
        rows = await self._each(promql.nodes_of, hosts, at)
        return {row.labels.get("host", ""): row.labels.get("node", "") for row in rows}

    async def _by_pod(self, query: str, at: datetime) -> dict[PodKey, float]:
        return {row.pod: row.value for row in await self._query(query, at)}


def _of_resource(resource: str, rows: Iterable[Row]) -> dict[PodKey, float]:
    return {row.pod: row.value for row in rows if row.labels.get("resource") == resource}


def _by_place(rows: Iterable[Row]) -> Mapping[Place, float]:
    found: dict[Place, float] = defaultdict(float)
    for row in rows:
        found[place_of(row)] += row.value
    return found


def _offered(physical: Iterable[Row], devices: Devices) -> Offered:
    sizes = {place_of(row): round(row.value) for row in physical if row.value}
    return {
        (node, resource): (size, devices.get(node, NodeDevices()).model(resource, size))
        for (node, resource), size in sizes.items()
    }


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


def _each_once(series: Iterable[Row]) -> list[Row]:
    """Count devices as `promql.HOUR_MODELS` does."""
    names = "gpu", "UUID", "GPU_I_ID"
    found = {(row.host, row.model, *map(row.labels.get, names)): row.labels for row in series}
    return [Row(labels, 1.0) for labels in found.values()]


def _devices(rows: Iterable[Row]) -> dict[str, NodeDevices]:
    """Return each host's devices."""
    hosts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        hosts[row.host][row.model, row.labels.get("gpu", "")] += round(row.value)
    return {host: NodeDevices.of(counted) for host, counted in hosts.items()}
