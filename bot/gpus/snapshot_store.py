"""Store the latest snapshot of GPU use, and the queries that wait for the next one.

    usage:<cluster>:now       the latest snapshot; expires after a day
    usage:<cluster>:queries   list: queries for the next one; expires after an hour

Handlers read the snapshot and add queries; the worker's item `gpus: now` measures and answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.core.work_item import ItemKind, WorkItem
from bot.gpus.models import Snapshot

ITEM = WorkItem(ItemKind.GPU_QUESTIONS, "now")
HOME = "home"  # not a /gpus view: refreshes an open home tab


@dataclass(frozen=True, kw_only=True)
class GpuQuery:
    user: str
    channel: str
    text: str  # after /gpus, or HOME
    response_url: str = ""
    at: datetime


_SNAPSHOT: TypeAdapter[Snapshot] = TypeAdapter(Snapshot)
_QUERY: TypeAdapter[GpuQuery] = TypeAdapter(GpuQuery)


class SnapshotStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._now, self._queries = redis, f"usage:{cluster}:now", f"usage:{cluster}:queries"

    async def latest(self) -> Snapshot | None:
        found = await self._redis.get(self._now)
        return _SNAPSHOT.validate_json(found) if found else None

    async def save(self, snapshot: Snapshot) -> None:
        await self._redis.set(self._now, _SNAPSHOT.dump_json(snapshot), ex=timedelta(days=1))

    async def add_query(self, query: GpuQuery) -> None:
        async with self._redis.pipeline(transaction=True) as steps:
            steps.rpush(self._queries, _QUERY.dump_json(query))
            steps.expire(self._queries, timedelta(hours=1))
            await steps.execute()

    async def queries(self) -> list[GpuQuery]:
        found: list[Any] = await self._redis.lrange(self._queries, 0, -1)
        return [_QUERY.validate_json(each) for each in found]

    async def remove_queries(self, queries: Sequence[GpuQuery]) -> None:
        async with self._redis.pipeline(transaction=True) as steps:
            for each in queries:
                steps.lrem(self._queries, 1, _QUERY.dump_json(each).decode())
            await steps.execute()
