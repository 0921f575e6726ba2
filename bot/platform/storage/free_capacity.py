"""Store what `parallel=auto` sweeps need, and the free GPUs that the leader measured for them.

capacity:<cluster>:requests  hash: sweep -> CapacityRequest; expires after ten minutes
capacity:<cluster>:free      hash: sweep -> FreeCapacity; expires after ten minutes
capacity:<cluster>:growth:<what>    the sweep that took free GPUs last, so that two don't take the same ones
capacity:<cluster>:starts-lock      the sweep with several nodes per trial that decides whether it can start
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockNotOwnedError

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.core.stored_format import cached, late_adapter
from bot.platform.storage.work_queue import text as as_text

RETENTION = timedelta(minutes=10)  # of what isn't renewed
GROWTH_LOCK = timedelta(seconds=75)  # two measurements: the second one shows the new trials' pods
STARTS, START_LOCK = "starts-lock", timedelta(minutes=1)  # much longer than a decision takes

_REQUEST, _FREE = late_adapter(CapacityRequest), late_adapter(FreeCapacity)


class CapacityStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._prefix = redis, f"capacity:{cluster}"
        self._requests, self._free = f"{self._prefix}:requests", f"{self._prefix}:free"

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
        return await _taken(self._lock(f"growth:{what}", sweep, GROWTH_LOCK))

    async def lock_starts(self, sweep: str) -> bool:
        """Return whether this sweep decides whether it can start; until it unlocks, no other one does."""
        return await _taken(self._lock(STARTS, sweep, START_LOCK))

    async def has_start_lock(self, sweep: str) -> bool:
        """Return whether the sweep still has the lock: it expires, as after the death of a worker."""
        return await self._lock(STARTS, sweep, START_LOCK).owned()

    async def unlock_starts(self, sweep: str) -> None:
        """Release the lock, unless another sweep has it by now."""
        with suppress(LockNotOwnedError):
            await self._lock(STARTS, sweep, START_LOCK).release()

    def _lock(self, name: str, sweep: str, ttl: timedelta) -> Lock:
        """Lock for a sweep, not for a worker: the next worker of the sweep continues after a crash."""
        lock = Lock(self._redis, f"{self._prefix}:{name}", timeout=ttl.total_seconds(), blocking=False)
        lock.local.token = sweep.encode()
        return lock

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


async def _taken(lock: Lock) -> bool:
    return await lock.acquire(token=lock.local.token) or await lock.owned()
