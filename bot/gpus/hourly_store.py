"""Store each hour's GPU use in Redis: digests and bills sum these hours in place of day-long queries.

    usage:<cluster>:hour:<2026-11-20T08>   hash: capacity, and uses, compressed; expires after 40 days

Uncompressed, 3,000 short trials an hour would fill Redis in two weeks, and a full Redis stops sweeps. An hour
is replaced as a whole when it is measured better: samples can arrive late (Thanos, Mimir).
"""

import asyncio
import zlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.gpus.models import HOUR, Hour, HourCapacity, HourUse

RETENTION = timedelta(days=40)  # a month's bill, and some days to request it

_USES: TypeAdapter[tuple[HourUse, ...]] = TypeAdapter(tuple[HourUse, ...])
_CAPACITY: TypeAdapter[HourCapacity] = TypeAdapter(HourCapacity)


class HourlyStore:
    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._prefix = redis, f"usage:{cluster}:hour:"

    async def save(self, uses: Iterable[HourUse], capacity: HourCapacity) -> None:
        """Store an hour, unless a better measurement of it is stored."""
        key = self._key(capacity.hour)
        before: Any = await self._redis.hget(key, "capacity")
        if before and capacity.worse_than(_CAPACITY.validate_json(before)):
            return
        fields: dict[Any, Any] = {"uses": zlib.compress(_USES.dump_json(tuple(uses)))}
        async with self._redis.pipeline(transaction=True) as steps:
            steps.delete(key)
            steps.hset(key, mapping=fields | {"capacity": _CAPACITY.dump_json(capacity)})
            steps.expireat(key, capacity.hour + RETENTION)
            await steps.execute()

    async def between(self, start: datetime, end: datetime, *, by_sweep: bool = False) -> tuple[Hour, ...]:
        """Return the stored hours that begin from `start` until before `end`, in order.

        `by_sweep` sums the pods of each sweep: a month of many short trials would take gigabytes.
        """
        async with self._redis.pipeline(transaction=False) as steps:
            for hour in _hours(start, end):
                steps.hgetall(self._key(hour))
            kept = await steps.execute()
        found = []
        for fields in filter(None, kept):
            found.append(_by_sweep(_read(fields)) if by_sweep else _read(fields))
            await asyncio.sleep(0)  # a month takes seconds
        return tuple(found)

    async def missing(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return hours that aren't stored, the latest first."""
        hours = _hours(start, end)
        async with self._redis.pipeline(transaction=False) as steps:
            for hour in hours:
                steps.exists(self._key(hour))
            there = await steps.execute()
        return tuple(hour for hour, known in zip(hours, there, strict=True) if not known)[::-1]

    async def incomplete(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return hours that aren't stored or not fully measured, the latest first."""
        hours = _hours(start, end)
        async with self._redis.pipeline(transaction=False) as steps:
            for hour in hours:
                steps.hget(self._key(hour), "capacity")
            there = await steps.execute()
        known = [bool(each) and _CAPACITY.validate_json(each).complete for each in there]
        return tuple(hour for hour, whole in zip(hours, known, strict=True) if not whole)[::-1]

    def _key(self, hour: datetime) -> str:
        return f"{self._prefix}{hour.astimezone(UTC):%Y-%m-%dT%H}"


def full_hour(time: datetime) -> datetime:
    """Return the start of the hour, UTC, that contains `time`."""
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _hours(start: datetime, end: datetime) -> list[datetime]:
    # The next full hour: where a day begins at half past, no hour belongs to two days.
    first = full_hour(start + HOUR - timedelta.resolution)
    return [first + number * HOUR for number in range(max(0, -((first - end) // HOUR)))]


def _read(fields: dict[bytes, bytes]) -> Hour:
    uses = _USES.validate_json(zlib.decompress(fields[b"uses"]))
    return Hour(uses=uses, capacity=_CAPACITY.validate_json(fields[b"capacity"]))


def _by_sweep(hour: Hour) -> Hour:
    sums: dict[tuple[str, ...], HourUse] = {}
    for use in hour.uses:
        key = (use.namespace, use.sweep or f"/{use.pod}", use.owner, use.team, use.model)
        one = sums.get(key)
        sums[key] = _sum(one, use) if one else use
    return Hour(uses=tuple(sums.values()), capacity=hour.capacity)


def _sum(one: HourUse, other: HourUse) -> HourUse:
    return replace(
        one,
        pod="",
        node="",
        allocated=one.allocated + other.allocated,
        observed=one.observed + other.observed,
        used=one.used + other.used,
        idle=one.idle + other.idle,
        ram_peak=max((use.ram_peak for use in (one, other) if use.ram_peak is not None), default=None),
    )
