"""Measure in Prometheus how often each exporter is scraped: node pools differ, settings change."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise, product
from statistics import median, median_high

from bot.measure.sources import promql
from bot.measure.sources.prometheus import Prometheus, Row
from k8s.nodes.dcgm import ENGINE, UTIL

STANDARD_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)  # seconds; each divides 30 min
JITTER = 1.02  # a scrape may be that much later than its interval
RUN_LENGTH = 10  # gaps that are compared with one another
OUTAGE = 1.5  # times the median gap of a run; a longer gap is an outage

DEFAULT_INTERVAL = 30  # seconds between two scrapes, as long as there are no samples to measure it by
HOSTS_PER_QUERY = 500
HOLDER = ("namespace", "pod", "container", "pod_uid")
# They change with the GPU's pod, and the metrics of one scrape have the same time.
HOLDER_LABELS = {"__name__", *(f"{prefix}{each}" for prefix in ("", "exported_") for each in HOLDER)}

Scrapes = dict[frozenset[tuple[str, str]], set[float]]


@dataclass(frozen=True)
class ScrapeIntervals:
    """Seconds between two samples of each GPU."""

    by_gpu: Mapping[str, int]  # by UUID
    default: int  # of a GPU without measurements

    def of(self, device: str) -> int:
        """Return the interval of a GPU or of one of its MIG slices, named as by `Row.device`."""
        return self.by_gpu.get(device.partition("/")[0], self.default)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the distinct intervals in use, the shortest first."""
        return tuple(sorted({self.default, *self.by_gpu.values()}))


def scrape_interval(*scrapers: Iterable[float]) -> int | None:
    """Return the longest interval that an exporter's scrapes had, in seconds; None for fewer than two.

    Args:
        scrapers: the times of each one's scrapes. Two jobs or two replicas of Prometheus can scrape an
            exporter at different seconds of the same interval.

    An interval that is too long loses nothing; one that is too short leaves most of the time unmeasured.
    Rounded up to one of a few, because each distinct interval takes its own queries.
    """
    gaps = [later - earlier for times in scrapers for earlier, later in pairwise(sorted(times))]
    runs = [gaps[at : at + RUN_LENGTH] for at in range(0, len(gaps), RUN_LENGTH)]
    full = [run for run in runs if len(run) == RUN_LENGTH] or runs
    return _rounded_up(max(map(_typical, full))) if full else None


def _typical(gaps: list[float]) -> float:
    typical = sorted(gap for gap in gaps if gap <= OUTAGE * median(gaps))
    return typical[round(0.9 * (len(typical) - 1))]


def _rounded_up(seconds: float) -> int:
    standard = (each for each in STANDARD_INTERVALS if seconds <= each * JITTER)
    return next(standard, STANDARD_INTERVALS[-1])


Host = tuple[str, ...]  # by its labels


@dataclass(frozen=True)
class Exporters:
    hosts: frozenset[Host]
    metric: str  # GR_ENGINE_ACTIVE, or else GPU_UTIL
    engine_only: bool  # GR_ENGINE_ACTIVE has as many samples as GPU_UTIL, of every host and model

    @classmethod
    def of(cls, util: Iterable[Row], engine: Iterable[Row]) -> "Exporters":
        """Compare the samples of GPU_UTIL and GR_ENGINE_ACTIVE, by `promql.samples_of_host`."""
        counted, found = ({frozenset(row.labels.items()): row for row in rows} for rows in (util, engine))
        return cls(
            hosts=frozenset(_host(row) for row in (counted | found).values()),
            metric=ENGINE if found else UTIL,
            engine_only=all(key in found and found[key].value == row.value for key, row in counted.items()),
        )


def _host(row: Row) -> Host:
    return tuple(row.labels.get(each, "") for each in ("Hostname", "hostname", "instance"))


class IntervalProbe:
    """`interval`: seconds between two scrapes; 0 measures it."""

    def __init__(self, prometheus: Prometheus, interval: int = 0) -> None:
        self._prometheus, self._fixed = prometheus, interval
        self._default = interval or DEFAULT_INTERVAL

    async def exporters(self, at: datetime, window: int) -> Exporters:
        """Find the exporters with samples in `window` seconds."""
        util, engine = [
            await self._prometheus.query(promql.samples_of_host(metric, window), at)
            for metric in (UTIL, ENGINE)
        ]
        return Exporters.of(util, engine)

    async def intervals(self, at: datetime, window: int, exporters: Exporters) -> ScrapeIntervals:
        """Measure over `window` seconds; one scrape reads all GPUs of a host. Raises NoGpuDataError.

        Only of hosts that aren't scraped like most are the times of samples read, of the GPU with the most.
        """
        if self._fixed:
            return ScrapeIntervals({}, self._fixed)
        usual = self._default
        query = promql.evenly_scraped(exporters.metric, window, usual)
        even = {_host(row) for row in await self._prometheus.query(query, at)}
        if not (others := exporters.hosts - even):
            return ScrapeIntervals({}, usual)
        hosts: dict[str, list[Row]] = defaultdict(list)
        instances = {instance for _, _, instance in others} if len(others) <= HOSTS_PER_QUERY else None
        counts = partial(promql.samples_by_host, window)
        for row in await self._prometheus.query_each(counts, instances, at):
            if _host(row) in others:
                hosts[row.host].append(row)
        fullest = [max(rows, key=lambda row: row.value) for rows in hosts.values()]
        times = await self._times(sorted({row.labels.get("UUID", "") for row in fullest}), at, window)
        found = await asyncio.to_thread(_by_host, times)  # with 10,000 GPUs, a fifth of a second
        if len(found) > len(even):
            self._default = median_high(found.values())
        by_gpu = {row.gpu: found[host] for host in found for row in hosts[host]}
        return ScrapeIntervals(by_gpu, usual if even else self._default)

    async def _times(self, devices: list[str], at: datetime, window: int) -> dict[str, Scrapes]:
        """Return the times of scrapes by host and scraper, in Unix seconds."""
        found: dict[str, Scrapes] = defaultdict(lambda: defaultdict(set))
        ask = partial(self._prometheus.sample_times, at=at)
        for metric, first in product((UTIL, ENGINE), range(0, len(devices), HOSTS_PER_QUERY)):
            query, some = (
                partial(promql.raw_samples, metric, window),
                devices[first : first + HOSTS_PER_QUERY],
            )
            for series, times in await self._prometheus.in_parts(ask, query, some):
                found[series.host][_scraper(series)].update(times)
        return found


def _by_host(times: Mapping[str, Scrapes]) -> dict[str, int]:
    measured = {host: scrape_interval(*scrapers.values()) for host, scrapers in times.items()}
    return {host: interval for host, interval in measured.items() if interval}


def _scraper(series: Row) -> frozenset[tuple[str, str]]:
    """Return what the samples of one scraper and GPU have in common, whichever pod has the GPU."""
    return frozenset(each for each in series.labels.items() if each[0] not in HOLDER_LABELS)
