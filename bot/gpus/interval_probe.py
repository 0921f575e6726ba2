"""Measure in Prometheus how often each dcgm-exporter is scraped."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from statistics import median_high

from bot.gpus import promql
from bot.gpus.prometheus import Prometheus, Row
from bot.gpus.scrape_interval import ScrapeIntervals, scrape_interval

DEFAULT_INTERVAL = 30  # seconds between two scrapes, as long as there are no samples to measure it by
HOSTS_PER_QUERY = 500
HOLDER = ("namespace", "pod", "container", "pod_uid")
# They change with the GPU's pod, and the metrics of one scrape have the same time.
HOLDER_LABELS = {"__name__", *(f"{prefix}{each}" for prefix in ("", "exported_") for each in HOLDER)}

Scrapes = dict[frozenset[tuple[str, str]], set[float]]


class IntervalProbe:
    """`interval`: seconds between two scrapes; 0 measures it."""

    def __init__(self, prometheus: Prometheus, interval: int = 0) -> None:
        self._prometheus, self._fixed = prometheus, interval
        self._default = interval or DEFAULT_INTERVAL

    async def intervals(self, at: datetime, window: int) -> ScrapeIntervals:
        """Measure over `window` seconds, by the GPU of each host with the most samples.

        One scrape reads all GPUs of a host. Raises NoGpuDataError.
        """
        if self._fixed:
            return ScrapeIntervals({}, self._fixed)
        hosts: dict[str, list[Row]] = defaultdict(list)
        for row in await self._prometheus.query(promql.samples_by_host(window), at):
            hosts[row.host].append(row)
        fullest = [max(rows, key=lambda row: row.value) for rows in hosts.values()]
        times = await self._times(sorted({row.labels.get("UUID", "") for row in fullest}), at, window)
        found = await asyncio.to_thread(_by_host, times)  # with 10,000 GPUs, a fifth of a second
        self._default = median_high(found.values()) if found else self._default
        by_gpu = {row.gpu: found[host] for host in found for row in hosts[host]}
        return ScrapeIntervals(by_gpu, self._default)

    async def _times(self, devices: list[str], at: datetime, window: int) -> dict[str, Scrapes]:
        """Return the times of scrapes by host and scraper, in Unix seconds."""
        found: dict[str, Scrapes] = defaultdict(lambda: defaultdict(set))
        for some in (
            devices[first : first + HOSTS_PER_QUERY] for first in range(0, len(devices), HOSTS_PER_QUERY)
        ):
            for series, times in await self._prometheus.sample_times(promql.raw_samples(some, window), at):
                found[series.host][_scraper(series)].update(times)
        return found


def _by_host(times: Mapping[str, Scrapes]) -> dict[str, int]:
    measured = {host: scrape_interval(*scrapers.values()) for host, scrapers in times.items()}
    return {host: interval for host, interval in measured.items() if interval}


def _scraper(series: Row) -> frozenset[tuple[str, str]]:
    """Return what the samples of one scraper and GPU have in common, whichever pod has the GPU."""
    return frozenset(each for each in series.labels.items() if each[0] not in HOLDER_LABELS)
