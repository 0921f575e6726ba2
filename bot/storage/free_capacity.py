"""Store what `parallel=auto` sweeps need, and the free GPUs that the leader measured for them.

capacity:<cluster>:requests  hash: sweep -> CapacityRequest; expires after ten minutes
capacity:<cluster>:free      hash: sweep -> FreeCapacity; expires after ten minutes
capacity:<cluster>:growth:<what>    the sweep that took free GPUs last, so that two don't take the same ones
capacity:<cluster>:starts-lock      the sweep with several nodes per trial that decides whether it can start
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis
from redis.asyncio.lock import Lock

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.core.stored_format import cached
from bot.storage.work_queue import text as as_text

RETENTION = timedelta(minutes=10)  # of what isn't renewed
GROWTH_LOCK = timedelta(seconds=75)  # two measurements: the second one shows the new trials' pods
START_LOCK = timedelta(minutes=1)  # much longer than a decision takes

_REQUEST, _FREE = TypeAdapter(CapacityRequest), TypeAdapter(FreeCapacity)


class CapacityStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._prefix = redis, f"capacity:{cluster}"
        self._requests, self._free = f"{self._prefix}:requests", f"{self._prefix}:free"
        self._starts_lock = f"{self._prefix}:starts-lock"
        self._unlock = redis.register_script(Lock.LUA_RELEASE_SCRIPT)

    def at(self, cluster: str) -> "CapacityStore":
        """Return the store of another cluster."""
        return CapacityStore(self._redis, cluster)

    async def register(self, request: CapacityRequest) -> FreeCapacity | None:
        """Register what a sweep needs, and return its last measurement; None if it isn't measured yet."""
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._requests, request.sweep, _REQUEST.dump_json(request).decode())
            steps.expire(self._requests, RETENTION)
            steps.hget(self._free, request.sweep)
            found = await steps.execute()
        last = cached(_FREE, found[-1])
        return last if last and request.at - last.at < RETENTION else None

    async def forget(self, sweep: str) -> None:
        """Drop what was stored for a sweep that starts no more trials."""
        async with self._redis.pipeline(transaction=True) as steps:
            for key in (self._requests, self._free):
                steps.hdel(key, sweep)
            await steps.execute()

    async def lock_growth(self, sweep: str, what: str) -> bool:
        """Return whether this sweep can take free GPUs now; then others can't for GROWTH_LOCK.

        Args:
            what: a queue or resource that others use, too.
        """
        return await self._lock(f"{self._prefix}:growth:{what}", sweep, GROWTH_LOCK)

    async def lock_starts(self, sweep: str) -> bool:
        """Return whether this sweep decides whether it can start; until it unlocks, no other one does."""
        return await self._lock(self._starts_lock, sweep, START_LOCK)

    async def has_start_lock(self, sweep: str) -> bool:
        """Return whether the sweep still has the lock: it expires, as after the death of a worker."""
        return await self._holds(self._starts_lock, sweep)

    async def unlock_starts(self, sweep: str) -> None:
        """Release the lock, unless another sweep has it by now."""
        await self._unlock([self._starts_lock], [sweep])

    async def _lock(self, key: str, sweep: str, ttl: timedelta) -> bool:
        """Lock for a sweep, not for a worker: the next worker of the sweep continues after a crash."""
        return bool(await self._redis.set(key, sweep, nx=True, ex=ttl)) or await self._holds(key, sweep)

    async def _holds(self, key: str, sweep: str) -> bool:
        holder: Any = await self._redis.get(key)
        return holder is not None and as_text(holder) == sweep

    async def requests(self, now: datetime) -> list[CapacityRequest]:
        """Return the current requests, and forget those of sweeps that have ended."""
        found: Mapping[Any, Any] = await self._redis.hgetall(self._requests)
        known = {as_text(sweep): cached(_REQUEST, text) for sweep, text in found.items()}
        current = {sweep: one for sweep, one in known.items() if one and now - one.at < RETENTION}
        if gone := known.keys() - current.keys():
            await self._redis.hdel(self._requests, *gone)
        return list(current.values())

    async def measured(self) -> dict[str, FreeCapacity]:
        found: Mapping[Any, Any] = await self._redis.hgetall(self._free)
        known = {as_text(sweep): cached(_FREE, text) for sweep, text in found.items()}
        return {sweep: free for sweep, free in known.items() if free}

    async def save(self, measured: Mapping[str, FreeCapacity]) -> None:
        """Replace all measurements."""
        async with self._redis.pipeline(transaction=True) as steps:
            steps.delete(self._free)
            if measured:
                texts: dict[Any, Any] = {
                    sweep: _FREE.dump_json(free).decode() for sweep, free in measured.items()
                }
                steps.hset(self._free, mapping=texts)
                steps.expire(self._free, RETENTION)
            await steps.execute()
