"""Pass results from a worker, which can read the cluster, to `serve`, which can't: through Redis."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage.work_queue import Queue

TTL = 10  # seconds; results of a running sweep are at most this old
NO_RESULTS = {"json": b"", "csv": b""}  # by format


class RequestedResults:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, queue: Queue) -> None:
        self._redis, self._queue = redis, queue

    async def request(self, sweep_id: str) -> None:
        """Let a worker read the results; `get` has them soon."""
        await self._queue.add(WorkItem(ItemKind.RESULTS, sweep_id))

    async def put(self, sweep_id: str, texts: Mapping[str, bytes]) -> None:
        """Keep the results by format: `serve` only passes them on, whatever their size."""
        stored: dict[Any, Any] = dict(texts)
        async with self._redis.pipeline(transaction=True) as both:
            both.hset(_key(sweep_id), mapping=stored)
            both.expire(_key(sweep_id), TTL)
            await both.execute()

    async def get(self, sweep_id: str, kind: str) -> bytes | None:
        """Return what `put` kept in this format; None if no worker has read them yet."""
        found: Any = await self._redis.hget(_key(sweep_id), kind)
        return None if found is None else bytes(found)


def _key(sweep_id: str) -> str:
    return f"sweepbot:results:{sweep_id}"
