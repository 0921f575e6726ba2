"""Query statistics of each GPU from Prometheus, over a window or over a pod's life: utilization, SM activity,
memory, and power, without impossible values.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bot.measure.gpus.models import BUSY, MIN_COVERAGE, Gpu
from bot.measure.gpus.pod_owners import PodKey
from bot.measure.sources import promql
from bot.measure.sources.prometheus import Device, Prometheus, Recent, Row
from bot.measure.sources.scrape_interval import ScrapeIntervals
from bot.measure.sources.series_kinds import LOADS_IN_USE, NAMINGS_IN_USE, SeriesKinds, namings_in_use
from k8s.nodes.dcgm import LOAD, MOST, Load

SECONDS_PER_DAY = 86400  # seconds


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Statistics of a GPU's samples in a window; shares are 0 to 1."""

    device: Device
    samples: float
    peak: float
    total: float
    p95: float | None
    load: Load

    def gpu(self, expected: float) -> Gpu:
        """Return the GPU, without statistics if much fewer samples than expected are there."""
        _, _, name, model = self.device
        if self.samples < MIN_COVERAGE * expected:
            return Gpu(device=name, model=model)
        mean = self.total / self.samples
        return Gpu(device=name, model=model, peak=self.peak, mean=mean, p95=self.p95, load=self.load)


Stats = Mapping[PodKey, list[DeviceStats]]


class DeviceQueries:
    """Methods raise NoGpuDataError."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus, self._kinds = prometheus, Recent[SeriesKinds]()

    async def stats(
        self, at: datetime, seconds: int, intervals: ScrapeIntervals, pods: Collection[PodKey], *, p95: bool
    ) -> Stats:
        """Return the statistics of each pod's GPUs over the last `seconds`.

        Args:
            pods: those with allocated GPUs. If one has no statistics, its series can be of a new kind: those
                of free GPUs don't show by which labels a pod will be known.
        """
        kinds = await self._kinds.get(at, lambda: self._query_kinds(at))
        found = await self._stats(at, seconds, intervals, kinds, p95=p95)
        if all(pod in found for pod in pods):
            return found
        current = await self._kinds.renew(at, lambda: self._query_kinds(at))
        return found if current == kinds else await self._stats(at, seconds, intervals, current, p95=p95)

    async def _stats(
        self, at: datetime, seconds: int, intervals: ScrapeIntervals, kinds: SeriesKinds, *, p95: bool
    ) -> Stats:
        queries = [
            promql.samples(seconds, kinds=kinds),
            promql.peak(seconds, kinds=kinds),
            promql.total(seconds, kinds),
            *([promql.p95(seconds, kinds)] if p95 else []),
        ]
        loads, (samples, peak, total, *rest) = await asyncio.gather(
            self._loads(at, seconds, kinds, counted=p95),
            asyncio.gather(*(self._by_device(query, at) for query in queries)),
        )
        wrong = {device for device, share in peak.items() if share > MOST}
        if broken := wrong | (samples.keys() - total.keys()):
            functions = *("count_over_time(", "max_over_time(", "sum_over_time("), promql.P95
            for values, over in zip((samples, peak, total, *rest), functions, strict=False):
                true = await self._true(over, at, seconds, intervals, broken)
                for device in broken:
                    values.pop(device, None)
                values.update(true)
        return await asyncio.to_thread(_by_pod, samples, peak, total, rest[0] if rest else None, loads)

    async def _query_kinds(self, at: datetime) -> SeriesKinds:
        engine_only = not await self._prometheus.query(promql.UTIL_ONLY, at)
        rows = await self._prometheus.query(NAMINGS_IN_USE, at)
        namings = namings_in_use({row.labels.get("naming", "") for row in rows})
        loads = await self._prometheus.query(LOADS_IN_USE, at)
        names = frozenset(row.labels.get("metric", "") for row in loads)
        return SeriesKinds(engine_only, namings, names & LOAD.keys())

    async def _true(
        self, over: str, at: datetime, seconds: int, intervals: ScrapeIntervals, broken: set[Device]
    ) -> dict[Device, float]:
        """Query GPUs with NaN or wrong samples, which make every sum NaN or too large, without those."""
        found: dict[Device, float] = {}
        for step in {intervals.of(device[2]) for device in broken}:
            which = {uuid(device[2]) for device in broken if intervals.of(device[2]) == step}
            query = partial(promql.true_samples, over, seconds, step)
            answer = await self._by_names(query, which, at)
            found |= {device: value for device, value in answer.items() if device in broken}
        return found

    async def ever_busy(
        self, at: datetime, stats: Stats, ages: Mapping[PodKey, float], intervals: ScrapeIntervals
    ) -> dict[PodKey, bool | None]:
        """Return whether each pod was ever busy; query pods idle in the window over their whole life."""
        quiet = {pod for pod, gpus in stats.items() if gpus and all(gpu.peak < BUSY for gpu in gpus)}
        # At least 0: the clock of a pod's node can be ahead.
        oldest = max([0, *(round(ages[pod]) for pod in quiet & ages.keys())])
        life = min(SECONDS_PER_DAY, oldest + intervals.steps[-1])
        which = {uuid(gpu.device[2]) for pod in quiet for gpu in stats[pod]}
        peak, samples = {}, {}
        if quiet:
            kinds = SeriesKinds(namings=(await self._kinds.get(at, lambda: self._query_kinds(at))).namings)
            peak = await self._by_names(partial(promql.peak, life, kinds=kinds), which, at)
            samples = await self._by_names(partial(promql.samples, life, kinds=kinds), which, at)

        def ever(pod: PodKey) -> bool | None:
            devices = [gpu.device for gpu in stats[pod]]
            if pod not in quiet:
                return True if devices else None
            if any(peak.get(device, 0) >= BUSY for device in devices):
                return True
            if (age := ages.get(pod, math.inf)) > life:
                return None  # older than the query reaches back
            enough = (samples.get(each, 0) >= MIN_COVERAGE * age / intervals.of(each[2]) for each in devices)
            return False if all(enough) else None

        return {pod: ever(pod) for pod in stats}

    async def _loads(
        self, at: datetime, seconds: int, kinds: SeriesKinds, *, counted: bool
    ) -> dict[Device, dict[str, float]]:
        """Return each GPU's measures by their names in `promql.loads`."""
        query = promql.loads(seconds, kinds, counted=counted)
        return await asyncio.to_thread(_measures, await self._prometheus.query(query, at)) if query else {}

    async def _by_device(self, query: str, at: datetime) -> dict[Device, float]:
        return await asyncio.to_thread(_values, await self._prometheus.query(query, at))

    async def _by_names(
        self, query: Callable[..., str], names: Collection[str], at: datetime
    ) -> dict[Device, float]:
        return await asyncio.to_thread(_values, await self._prometheus.query_each(query, names, at))


def _values(rows: Collection[Row]) -> dict[Device, float]:
    return {row.device: row.value for row in rows}


def _measures(rows: Collection[Row]) -> dict[Device, dict[str, float]]:
    found: dict[Device, dict[str, float]] = defaultdict(dict)
    for row in rows:
        found[row.device][row.labels["measure"]] = row.value
    return found


def _by_pod(
    samples: Mapping[Device, float],
    peak: Mapping[Device, float],
    total: Mapping[Device, float],
    p95: Mapping[Device, float] | None,
    loads: Mapping[Device, Mapping[str, float]],
) -> Stats:
    """A GPU that is absent from one answer was first scraped between two queries: it is left out."""
    found: dict[PodKey, list[DeviceStats]] = defaultdict(list)
    for device in sorted(samples):
        if device in peak and device in total and (p95 is None or device in p95):
            high = p95[device] if p95 is not None else None
            load = _load(loads.get(device, {}), samples[device], is_slice="/" in device[2])
            stats = DeviceStats(device, samples[device], peak[device], total[device], high, load)
            found[device[0], device[1]].append(stats)
    return found


def _load(measures: Mapping[str, float], samples: float, *, is_slice: bool) -> Load:
    """Return a mean only if it has about as many samples as utilization, as far as they were counted."""
    found: dict[str, float] = {}
    for name, divisor, most in LOAD.values():
        value = measures.get(name, math.inf) / divisor
        if value <= most and measures.get(f"{name}_samples", samples) >= MIN_COVERAGE * samples:
            found[name] = value
    return Load(
        sm=found.get("sm"), watts=None if is_slice else found.get("watts"), memory=found.get("memory")
    )


def uuid(device: str) -> str:
    """Return the UUID; empty for a GPU known by host:index only."""
    uuid = device.partition("/")[0]
    return "" if ":" in uuid else uuid
