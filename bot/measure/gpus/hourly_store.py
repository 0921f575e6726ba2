"""Store each hour's GPU use in Redis: digests and bills sum these hours in place of day-long queries.

    usage:<cluster>:hour:<2026-11-20T08>  hash: version, capacity, pods, sums, ram, prices; kept for 40 days
    usage:clusters                        sorted set: cluster -> start of its latest hour; expires with it

`hour_format` has the format. Uncompressed, 3,000 short trials an hour would fill Redis in two
weeks, and a full Redis stops sweeps. An hour is replaced as a whole when it is measured better: samples can
arrive late (Thanos, Mimir).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.measure.gpus.hour_format import (
    CAPACITY,
    VERSION,
    Stored,
    add_sums,
    decode,
    encode,
    raise_peaks,
    read_prices,
)
from bot.measure.gpus.models import HOUR, Hour, HourCapacity, HourUse
from bot.measure.gpus.sums import Totals, current_prices
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.config.teams import Price

RETENTION = timedelta(days=40)  # a month's bill, and some days to request it
CLUSTERS_KEY = "usage:clusters"
HOURS_PER_READ = 24  # bounds memory; a month at once would be hundreds of megabytes


class HourlyStore:
    """Encodes and decodes in threads. Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._cluster, self._prefix = redis, cluster, f"usage:{cluster}:hour:"

    def at(self, cluster: str) -> "HourlyStore":
        """Return the store of another cluster."""
        return HourlyStore(self._redis, cluster)

    async def save(
        self,
        uses: Iterable[HourUse],
        capacity: HourCapacity,
        elastic: Collection[ElasticDeployment] = (),
        prices: tuple[Price, ...] = (),
    ) -> None:
        """Store an hour with its prices, unless a better measurement of it is stored.

        Args:
            elastic: the Deployments whose replicas the bill shows on their own line.
            prices: the current ones, for what the hour wasn't stored with yet.
        """
        found: list[Any] = await self._redis.hmget(self._key(capacity.hour), ("capacity", "prices"))
        before, paid = found
        if before and capacity.worse_than(CAPACITY.validate_json(before)):
            return
        known = tuple(uses)
        charged = current_prices(((use.team, use.model) for use in known), prices) | read_prices(paid)
        await self.put(capacity.hour, await asyncio.to_thread(encode, known, capacity, elastic, charged))

    async def put(self, hour: datetime, stored: Mapping[str, bytes]) -> None:
        """Replace an hour by fields that are encoded already."""
        fields: dict[Any, Any] = dict(stored)
        async with self._redis.pipeline(transaction=True) as steps:
            steps.delete(self._key(hour))
            steps.hset(self._key(hour), mapping=fields)
            steps.expireat(self._key(hour), hour + RETENTION)
            steps.zadd(CLUSTERS_KEY, {self._cluster: hour.timestamp()}, gt=True)
            steps.expire(CLUSTERS_KEY, RETENTION)
            await steps.execute()

    async def clusters(self, start: datetime) -> tuple[str, ...]:
        """Return the clusters with hours since `start`; the configuration can have removed some."""
        found: list[Any] = await self._redis.zrangebyscore(CLUSTERS_KEY, start.timestamp(), "+inf")
        return tuple(each.decode() for each in found)

    async def between(self, start: datetime, end: datetime) -> tuple[Hour, ...]:
        """Return the stored hours that begin from `start` until before `end`, in order, with every pod."""
        found: list[Hour] = []
        await self._read(start, end, ("pods",), lambda stored: found.append(decode(stored, self._cluster)))
        return tuple(found)

    async def of_sweep(self, sweep_id: str, start: datetime, end: datetime) -> tuple[HourUse, ...]:
        """Return a sweep's pods in the stored hours from that of `start` until before `end`.

        Each hour is reduced to these pods before the next is read.
        """
        found: list[HourUse] = []

        def select(stored: Stored) -> None:
            pods = decode(stored, self._cluster).columns
            found.extend(pods.where([sweep == sweep_id for sweep in pods.sweep]).rows())

        await self._read(full_hour(start), end, ("pods",), select)
        return tuple(found)

    async def totals(self, start: datetime, end: datetime) -> Totals:
        """Sum the stored hours that begin from `start` until before `end`."""
        totals = Totals()
        await self._read(start, end, ("sums",), lambda stored: add_sums(totals, stored))
        return totals

    async def ram_peaks(self, start: datetime, end: datetime, groups: Collection[str]) -> dict[str, float]:
        """Return the memory peaks of these groups in the stored hours, in bytes; 0 if unknown."""
        peaks = dict.fromkeys(groups, 0.0)
        if peaks:
            await self._read(start, end, ("ram",), lambda stored: raise_peaks(peaks, stored))
        return peaks

    async def incomplete(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return hours that aren't stored or not fully measured, the latest first."""
        found = await self.capacities(start, end)
        return tuple(hour for hour, known in found.items() if not (known and known.complete))[::-1]

    async def capacities(self, start: datetime, end: datetime) -> dict[datetime, HourCapacity | None]:
        """Return the capacity of each hour, in order; None if it isn't stored."""
        hours = _hours(start, end)
        async with self._redis.pipeline(transaction=False) as steps:
            for hour in hours:
                steps.hget(self._key(hour), "capacity")
            stored = await steps.execute()
        known = (CAPACITY.validate_json(each) if each else None for each in stored)
        return dict(zip(hours, known, strict=True))

    async def _read(
        self, start: datetime, end: datetime, names: tuple[str, ...], use: Callable[[Stored], None]
    ) -> None:
        """Call `use` in a thread with the named fields of each stored hour, in order."""
        hours, names = _hours(start, end), ("version", "capacity", "prices", *names)
        for first in range(0, len(hours), HOURS_PER_READ):
            stored = await self._fields(hours[first : first + HOURS_PER_READ], names)
            await asyncio.to_thread(_each, use, stored)

    async def _fields(self, hours: list[datetime], names: tuple[str, ...]) -> list[Stored]:
        """Return the named fields of the stored hours, without those in another version's format."""
        async with self._redis.pipeline(transaction=False) as steps:
            for hour in hours:
                steps.hmget(self._key(hour), names)
            answers = await steps.execute()
        found = (
            {n.encode(): v for n, v in zip(names, each, strict=True) if v is not None} for each in answers
        )
        return [stored for stored in found if stored.get(b"version") == b"%d" % VERSION]

    def _key(self, hour: datetime) -> str:
        return f"{self._prefix}{hour.astimezone(UTC):%Y-%m-%dT%H}"


def _each(use: Callable[[Stored], None], hours: Iterable[Stored]) -> None:
    for stored in hours:
        use(stored)


def full_hour(time: datetime) -> datetime:
    """Return the start of the hour, UTC, that contains `time`."""
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _hours(start: datetime, end: datetime) -> list[datetime]:
    # The next full hour: where a day begins at half past, no hour belongs to two days.
    first = full_hour(start + HOUR - timedelta.resolution)
    return [first + number * HOUR for number in range(max(0, -((first - end) // HOUR)))]
