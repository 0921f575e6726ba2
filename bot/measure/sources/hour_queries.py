"""Query an hour's use of GPUs, and match the answers of one GPU: each series by itself; of GPUs and pods with
several, together.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from bot.measure.gpus.models import BUSY, HALF_HOUR, HOUR
from bot.measure.gpus.pod_owners import PodKey
from bot.measure.sources import promql, promql_hour
from bot.measure.sources.device_stats import uuid
from bot.measure.sources.prometheus import Device, Prometheus, Row, Values
from bot.measure.sources.scrape_interval import ScrapeIntervals
from bot.measure.sources.series_kinds import Naming, namings_of

Series = frozenset[tuple[str, str]]  # its labels
Half = tuple[Row, Values]  # of a series, by the half hour's end

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
        self._query, self._at_both = prometheus.query, prometheus.at_both
        self._each, self._in_parts = prometheus.query_each, prometheus.in_parts

    async def allocated(self, end: datetime) -> list[Row]:
        """Return GPU-hours by pod, node, and resource."""
        several = await self._query(promql_hour.SEVERAL_REQUESTS, end)
        rows, pods = await self._query(promql_hour.ALLOCATED_HOURS, end), {row.pod for row in several}
        rows = [row for row in rows if row.pod not in pods]
        return rows + await self._of_pods(promql.allocated_hours, several, end)

    async def cpu_mean(self, end: datetime, pods: Collection[PodKey]) -> dict[PodKey, float]:
        """Return the mean cores of each of these pods."""
        namespaces = {namespace for namespace, _ in pods}
        rows = [row for row in await self._each(promql_hour.cpu_mean, namespaces, end) if row.pod in pods]
        number = Counter(row.pod for row in rows)
        several = [row for row in rows if number[row.pod] > 1]
        rows += await self._of_pods(promql.cpu_mean, several, end)
        return {row.pod: row.value for row in rows}

    async def _of_pods(self, query: Callable[[str], str], pods: Sequence[Row], end: datetime) -> list[Row]:
        """Query these pods."""
        wanted = {row.pod for row in pods}
        if not wanted:
            return []
        # By name alone: two pods of one name are in the same part. No selector finds either of two labels.
        has_one_label = len({"exported_pod" in row.labels for row in pods}) == 1
        names = {name for _, name in wanted} if has_one_label and len(wanted) <= MAX_NAMED else None

        def of(some: Collection[str] | None) -> str:
            which = "" if some is None else promql_hour.these([row for row in pods if row.pod[1] in some])
            return query(which)

        return [row for row in await self._each(of, names, end) if row.pod in wanted]

    async def gpus(
        self, start: datetime, intervals: ScrapeIntervals, *, engine_only: bool
    ) -> tuple[GpuHours, list[Row]]:
        """Return the hours of the GPUs of pods, each queried at its own scrape interval, and all series."""
        end, found, series = start + HOUR, GpuHours(), list[Row]()
        partly = [] if engine_only else await self._query(promql.HOUR_UTIL_PARTLY, end)
        uneven = {row.device for row in partly + await self._query(promql.HOUR_WRONG, end)}
        for step in intervals.steps:
            halves = start + HALF_HOUR, end
            sums, few = await asyncio.gather(
                self._at_both(promql_hour.sum_of_half(step, engine_only=engine_only), *halves),
                self._at_both(promql_hour.few_in_half(step, engine_only=engine_only), *halves),
            )
            series += [row for row, _ in sums]
            mine = [each for each in sums if each[0].pod[1] and intervals.of(each[0].device[2]) == step]
            idle = []
            if unclear := {uuid(row.device[2]) for row, values in mine if _is_unclear(values, step)}:
                which = unclear if len(unclear) <= MAX_NAMED else None
                query = partial(promql_hour.idle_in_half, step, engine_only=engine_only)
                ask = partial(self._at_both, first=start + HALF_HOUR, second=end)
                idle = await self._in_parts(ask, query, which)
            several = await asyncio.to_thread(_alone, found, start, step, uneven, mine, few, idle)
            if several:
                namings = namings_of(row for row, _ in mine if row.device in several)
                together = await self._together(start, step, namings, several)
                found.extend(together.of(several))
        return found, series

    async def _together(
        self, start: datetime, step: int, namings: tuple[Naming, ...], devices: Collection[Device]
    ) -> GpuHours:
        end, names = start + HOUR, {uuid(name) for _, _, name, _ in devices}
        which = names if len(names) <= MAX_NAMED else None
        answers = await asyncio.gather(
            self._each(partial(promql.observed_hours, step, namings), which, end),
            self._each(partial(promql.used_hours, step, namings), which, end),
            self._each(partial(promql.idle_half, step, namings), which, end),
            self._each(partial(promql.idle_half, step, namings), which, start + HALF_HOUR),
        )
        return GpuHours(*answers)


def _alone(
    found: GpuHours,
    start: datetime,
    step: int,
    uneven: Collection[Device],
    sums: Collection[Half],
    few: Iterable[Half],
    idle: Iterable[Half],
) -> set[Device]:
    """Add the hours of pods' GPUs with one series; return the others: several, or NaN or less in the sum.

    Args:
        uneven: GPUs that also have samples at other intervals, or wrong ones.
        few: those with less than all samples in a half hour.
        idle: those of which the sum doesn't show it.
    """
    hours, late = step / 3600, (start + HOUR).timestamp()
    most, enough = promql_hour.most_samples(step), promql.enough_samples(step)
    counted, low = ({_series(row): values for row, values in rows} for rows in (few, idle))
    known = [(row, row.device, values) for row, values in sums]
    number, several = Counter(device for _, device, _ in known), set[Device]()
    for row, device, values in known:
        if number[device] > 1 or device in uneven or not 0 <= sum(values.values()) < math.inf:
            several.add(device)
            continue
        series = _series(row)
        samples = {half: counted.get(series, {}).get(half, most) for half in values}
        found.observed.append(Row(row.labels, sum(samples.values()) * hours))
        found.used.append(Row(row.labels, sum(values.values()) * hours))
        for half, total in values.items():
            if samples[half] >= enough and (total == 0 or half in low.get(series, ())):
                idle_half = found.idle_late if half == late else found.idle_early
                idle_half.append(Row(row.labels, samples[half] * hours))
    return several


def _is_unclear(sums: Values, step: int) -> bool:
    """Return whether a half hour's sum shows neither that a GPU was busy nor that it was idle."""
    return any(total != 0 and total < BUSY * promql_hour.most_samples(step) for total in sums.values())


def _series(row: Row) -> Series:
    """Leave out the name: a maximum over time keeps it in VictoriaMetrics."""
    return frozenset((name, value) for name, value in row.labels.items() if name != "__name__")
