"""Query an hour's use of GPUs: each series by itself; of GPUs and pods with several, together."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bot.measure.gpus.models import HALF_HOUR, HOUR
from bot.measure.gpus.pod_owners import PodKey
from bot.measure.sources import promql, promql_hour
from bot.measure.sources.device_stats import uuid
from bot.measure.sources.prometheus import Device, Prometheus, Row
from bot.measure.sources.scrape_interval import ScrapeIntervals

Series = frozenset[tuple[str, str]]  # its labels

MAX_NAMED = 500  # in a query; of more, it is for all


@dataclass(frozen=True)
class GpuHours:
    """GPU-hours by GPU."""

    observed: list[Row] = field(default_factory=list)
    used: list[Row] = field(default_factory=list)
    idle_late: list[Row] = field(default_factory=list)  # idle for all of the second half hour
    idle_early: list[Row] = field(default_factory=list)

    def extend(self, more: "GpuHours") -> None:
        for name, rows in vars(more).items():
            vars(self)[name].extend(rows)

    def of(self, devices: Collection[Device]) -> "GpuHours":
        return GpuHours(*([row for row in rows if row.device in devices] for rows in vars(self).values()))


class HourQueries:
    """Methods raise NoGpuDataError."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._query = prometheus.query

    async def allocated(self, end: datetime) -> list[Row]:
        """Return GPU-hours by pod, node, and resource."""
        several = await self._query(promql_hour.SEVERAL_REQUESTS, end)
        rows, pods = await self._query(promql_hour.ALLOCATED_HOURS, end), {row.pod for row in several}
        rows = [row for row in rows if row.pod not in pods]
        return rows + await self._of_pods(promql.allocated_hours, several, end)

    async def cpu_mean(self, end: datetime) -> dict[PodKey, float]:
        """Return the mean cores of each pod."""
        rows = await self._query(promql_hour.CPU_MEAN, end)
        number = Counter(row.pod for row in rows)
        several = [row for row in rows if number[row.pod] > 1]
        rows += await self._of_pods(promql.cpu_mean, several, end)
        return {row.pod: row.value for row in rows}

    async def _of_pods(self, query: Callable[[str], str], pods: Sequence[Row], end: datetime) -> list[Row]:
        """Query these pods."""
        wanted = {row.pod for row in pods}
        if not wanted:
            return []
        which = promql_hour.these(pods) if len(wanted) <= MAX_NAMED else ""
        return [row for row in await self._query(query(which), end) if row.pod in wanted]

    async def gpus(self, start: datetime, intervals: ScrapeIntervals) -> GpuHours:
        """Return the hours of the GPUs of pods, each GPU queried at its own scrape interval."""
        end, found = start + HOUR, GpuHours()
        engine_only = not await self._query(promql.HOUR_UTIL_ONLY, end)
        partly = [] if engine_only else await self._query(promql.HOUR_UTIL_PARTLY, end)
        uneven = {row.device for row in partly}
        for step in intervals.steps:
            samples = promql_hour.samples_of_half(step, engine_only=engine_only)
            idle = promql_hour.idle_in_half(step, engine_only=engine_only)
            answers = await asyncio.gather(
                self._query(samples, end),
                self._query(samples, start + HALF_HOUR),
                self._query(promql_hour.sum_of_hour(step, engine_only=engine_only), end),
                self._query(idle, end),
                self._query(idle, start + HALF_HOUR),
            )
            alone, several = await asyncio.to_thread(_alone, step, intervals, uneven, *answers)
            found.extend(alone)
            if several:
                together = await self._together(start, step, several)
                found.extend(together.of(several))
        return found

    async def _together(self, start: datetime, step: int, devices: Collection[Device]) -> GpuHours:
        end, names = start + HOUR, {uuid(name) for _, _, name, _ in devices}
        which = names if len(names) <= MAX_NAMED else None
        answers = await asyncio.gather(
            self._query(promql.observed_hours(step, which), end),
            self._query(promql.used_hours(step, which), end),
            self._query(promql.idle_half(step, which), end),
            self._query(promql.idle_half(step, which), start + HALF_HOUR),
        )
        return GpuHours(*answers)


def _alone(
    step: int,
    intervals: ScrapeIntervals,
    uneven: Collection[Device],
    late: list[Row],
    early: list[Row],
    total: list[Row],
    idle_late: list[Row],
    idle_early: list[Row],
) -> tuple[GpuHours, set[Device]]:
    """Return the hours of pods' GPUs with one series, and the other GPUs: several, or NaN in the total.

    Args:
        step: GPUs with other intervals are left out.
        uneven: GPUs that also have others.
        late: each series' samples in the second half hour; `early`: in the first.
    """
    hours = step / 3600
    halves = [{_series(row): row.value * hours for row in rows} for rows in (late, early)]
    counted = {_series(row): row for row in (*late, *early)}
    devices = {each: row.device for each, row in counted.items()}
    devices = {each: d for each, d in devices.items() if d[1] and intervals.of(d[2]) == step}
    series, finite = Counter(devices.values()), set(map(_series, total))
    several = {
        device
        for each, device in devices.items()
        if series[device] > 1 or device in uneven or each not in finite
    }
    alone = {each for each, device in devices.items() if device not in several}

    def idle(rows: list[Row], half: Mapping[Series, float]) -> list[Row]:
        enough = promql.enough_samples(step) * hours
        found = (Row(row.labels, half.get(each, 0.0)) for row in rows if (each := _series(row)) in alone)
        return [row for row in found if row.value >= enough]

    found = GpuHours(
        observed=[Row(counted[each].labels, sum(half.get(each, 0.0) for half in halves)) for each in alone],
        used=[Row(row.labels, row.value * hours) for row in total if _series(row) in alone],
        idle_late=idle(idle_late, halves[0]),
        idle_early=idle(idle_early, halves[1]),
    )
    return found, several


def _series(row: Row) -> Series:
    return frozenset(row.labels.items())
