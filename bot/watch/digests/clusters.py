"""A digest's figures over all clusters, and by cluster, where the configuration has several."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.billing import by_cluster
from bot.measure.gpus.command import ParsedCommand
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import MAX_UNMEASURED, Hour, HourCapacity, UseColumns
from bot.measure.gpus.sums import Sums, Totals, summed
from bot.platform.config.clusters import remote
from bot.platform.config.policy import Config
from bot.watch.digests.figures import Figures

Stored = Mapping[datetime, HourCapacity | None]  # by hour; None: not stored
SUMMED = ("capacity", "allocated", "unhealthy", "closed", "waited", "waiting", "wanted")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How much of a day was measured, over all clusters."""

    hours: float  # with metrics
    gpu_hours: float  # allocated, with metrics
    final: bool  # nothing more can come

    @classmethod
    def of(cls, clusters: Iterable[Stored]) -> "Measured":
        stored = [each for hours in clusters for each in hours.values()]
        known = [each for each in stored if each]
        return cls(
            hours=sum(each.coverage for each in known),
            gpu_hours=sum(each.observed or 0.0 for each in known),
            final=len(known) == len(stored) and all(each.complete for each in known),
        )

    def more_than(self, before: "Measured") -> bool:
        """Return whether late metrics have come: more hours, or more of the same hours.

        Fewer are no correction: Redis lost its data.
        """
        if abs(self.hours - before.hours) > MAX_UNMEASURED:
            return self.hours > before.hours
        return self.gpu_hours > before.gpu_hours + MAX_UNMEASURED


class AllHours:
    """The stored hours of all clusters together. Methods raise redis.exceptions.RedisError."""

    def __init__(self, home: HourlyStore, config: Config) -> None:
        others = [each.name for each in remote(config.clusters)]
        self._stores = {name: home.at(name) for name in (HOME_CLUSTER, *others)}

    async def missing(self, start: datetime, end: datetime) -> bool:
        """Return whether an hour of any cluster isn't stored."""
        found = [await each.capacities(start, end) for each in self._stores.values()]
        return any(None in each.values() for each in found)

    async def measured(self, start: datetime, end: datetime) -> Measured:
        return Measured.of([await each.capacities(start, end) for each in self._stores.values()])

    async def between(self, start: datetime, end: datetime) -> tuple[Hour, ...]:
        stored = [await each.between(start, end) for each in self._stores.values()]
        return merged([each for each in stored if each])

    async def totals(self, start: datetime, end: datetime) -> Totals:
        found = await self._by_cluster(start, end)
        return Totals.all(found.values()) if len(found) > 1 else found[HOME_CLUSTER]

    async def ram_peaks(self, start: datetime, end: datetime, groups: Collection[str]) -> dict[str, float]:
        found = [await each.ram_peaks(start, end, groups) for each in self._stores.values()]
        return {group: max(peaks[group] for peaks in found) for group in groups}

    async def with_clusters(self, found: Figures, config: Config) -> Figures:
        """Return the figures with the sums by cluster; unchanged without other clusters."""
        if len(self._stores) == 1:
            return found
        totals = await self._by_cluster(*found.schedule.window(found.day))
        return replace(found, clusters={name: _sum(each, found, config) for name, each in totals.items()})

    async def lines(self, found: Figures, config: Config) -> str:
        """Return lines for the digest's thread; "" without other clusters."""
        if len(self._stores) == 1:
            return ""
        asked = ParsedCommand(view="digest", team=found.schedule.team)
        totals = await self._by_cluster(*found.schedule.window(found.day))
        return f"\n{by_cluster(asked, totals, config.prices, config.currency)}"

    async def _by_cluster(self, start: datetime, end: datetime) -> Mapping[str, Totals]:
        """Return the sums by cluster, without GPUs that were only reserved."""
        return {name: (await each.totals(start, end)).in_use for name, each in self._stores.items()}


def merged(clusters: Collection[tuple[Hour, ...]]) -> tuple[Hour, ...]:
    """Return the hours of several clusters as those of one.

    The coverage is the mean: an hour in which one of two clusters was away is half measured.
    """
    if len(clusters) == 1:
        [only] = clusters
        return only
    by_hour: dict[datetime, list[Hour]] = {}
    for each in (hour for hours in clusters for hour in hours):
        by_hour.setdefault(each.capacity.hour, []).append(each)
    return tuple(_together(start, by_hour[start], len(clusters)) for start in sorted(by_hour))


def _together(start: datetime, hours: Collection[Hour], clusters: int) -> Hour:
    capacities = [each.capacity for each in hours]
    capacity = HourCapacity(
        hour=start,
        **{name: sum(getattr(each, name) for each in capacities) for name in SUMMED},
        coverage=sum(each.coverage for each in capacities) / clusters,
        longest=max(each.longest for each in capacities),
    )
    return Hour(columns=UseColumns.joined(each.columns for each in hours), capacity=capacity)


def _sum(totals: Totals, found: Figures, config: Config) -> Sums | None:
    """Return None for a cluster without measurements."""
    if not totals.coverage:
        return None
    uses = [use for use in totals.uses if found.schedule.team in ("", use.team)]
    return summed(uses, config.prices)
