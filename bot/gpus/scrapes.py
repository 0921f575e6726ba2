"""Asks Prometheus how often it has scraped each dcgm-exporter."""

from collections import defaultdict
from datetime import datetime
from statistics import median_high

from bot.gpus import promql
from bot.gpus.prometheus import Prometheus, Row
from bot.gpus.scrape_interval import Rhythm, step_of

USUAL_STEP = 30  # seconds between two scrapes, until there are samples to tell
HOSTS = 500  # whose samples are asked for at a time


class Scrapes:
    """`step`: seconds between two scrapes; measured when 0."""

    def __init__(self, prometheus: Prometheus, step: int = 0) -> None:
        self._prometheus, self._fixed, self.usual = prometheus, step, step or USUAL_STEP

    async def rhythm(self, at: datetime, window: int) -> Rhythm:
        """In so many seconds, by the fullest GPU of each host: one exporter is asked for all of them.

        Raises NoGpuDataError.
        """
        if self._fixed:
            return Rhythm({}, self._fixed)
        hosts: dict[str, list[Row]] = defaultdict(list)
        for row in await self._prometheus.ask(promql.hosts(window), at):
            hosts[row.host].append(row)
        fullest = [max(rows, key=lambda row: row.value) for rows in hosts.values()]
        moments = await self._moments(sorted({row.labels.get("UUID", "") for row in fullest}), at, window)
        steps = {host: step for host in hosts if (step := step_of(moments[host]))}
        self.usual = median_high(steps.values()) if steps else self.usual
        return Rhythm({row.gpu: steps[host] for host in steps for row in hosts[host]}, self.usual)

    async def _moments(self, devices: list[str], at: datetime, window: int) -> dict[str, set[float]]:
        """Of scrapes, by host."""
        found: dict[str, set[float]] = defaultdict(set)
        for some in (devices[first : first + HOSTS] for first in range(0, len(devices), HOSTS)):
            for series, when in await self._prometheus.moments(promql.moments(some, window), at):
                found[series.host].update(when)
        return found
