"""Measure in Prometheus how often each dcgm-exporter is scraped."""

from collections import defaultdict
from datetime import datetime
from statistics import median_high

from bot.gpus import promql
from bot.gpus.prometheus import Prometheus, Row
from bot.gpus.scrape_interval import ScrapeIntervals, scrape_interval

DEFAULT_INTERVAL = 30  # seconds between two scrapes, as long as there are no samples to measure it by
HOSTS_PER_QUERY = 500


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
        found = {host: interval for host in hosts if (interval := scrape_interval(times[host]))}
        self._default = median_high(found.values()) if found else self._default
        by_gpu = {row.gpu: found[host] for host in found for row in hosts[host]}
        return ScrapeIntervals(by_gpu, self._default)

    async def _times(self, devices: list[str], at: datetime, window: int) -> dict[str, set[float]]:
        """Return the times of scrapes by host, in Unix seconds."""
        found: dict[str, set[float]] = defaultdict(set)
        for some in (
            devices[first : first + HOSTS_PER_QUERY] for first in range(0, len(devices), HOSTS_PER_QUERY)
        ):
            for series, times in await self._prometheus.sample_times(promql.raw_samples(some, window), at):
                found[series.host].update(times)
        return found
