"""Pass results from a worker, which can read the cluster, to `serve`, which can't: through Redis."""

from typing import Any

from redis.asyncio import Redis

from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage.work_queue import Queue

TTL = 10  # seconds; results of a running sweep are at most this old


class RequestedResults:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, queue: Queue) -> None:
        self._redis, self._queue = redis, queue

    async def request(self, sweep_id: str) -> None:
        """Let a worker read the results; `get` has them soon."""
        await self._queue.add(WorkItem(ItemKind.RESULTS, sweep_id))

    async def put(self, sweep_id: str, stored: bytes) -> None:
        """Keep results as `bot.sweep.results.models.dump` returns them; b"" for none."""
        await self._redis.set(_key(sweep_id), stored, ex=TTL)

    async def get(self, sweep_id: str) -> bytes | None:
        """Return what `put` kept; None if no worker has read them yet."""
        found: Any = await self._redis.get(_key(sweep_id))
        return None if found is None else bytes(found)


def _key(sweep_id: str) -> str:
    return f"sweepbot:results:{sweep_id}"
