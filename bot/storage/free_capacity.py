"""Store what `parallel=auto` sweeps need, and the free GPUs that the leader measured for them.

capacity:<cluster>:requests  hash: sweep -> CapacityRequest; expires after ten minutes
capacity:<cluster>:free      hash: sweep -> FreeCapacity; expires after ten minutes
capacity:<cluster>:starts    hash: sweep with several nodes per trial -> since when measurements include it
capacity:<cluster>:turn:<what>  the sweep that grows or starts now, so that two don't take the same free GPUs
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.core.stored_format import cached
from bot.storage.work_queue import text as as_text

RETENTION = timedelta(minutes=10)  # of what isn't renewed
TURN = timedelta(seconds=75)  # two measurements: the second one shows the new trials' pods

_REQUEST, _FREE = TypeAdapter(CapacityRequest), TypeAdapter(FreeCapacity)


class CapacityStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._prefix = redis, f"capacity:{cluster}"
        self._requests, self._free = f"{self._prefix}:requests", f"{self._prefix}:free"
        self._starts = f"{self._prefix}:starts"

    def at(self, cluster: str) -> "CapacityStore":
        """Return the store of another cluster."""
        return CapacityStore(self._redis, cluster)

    async def register(self, request: CapacityRequest) -> FreeCapacity | None:
        """Register what a sweep needs, and return its last measurement; None if it isn't measured yet."""
        renews = request.started and await self._renews(request)
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._requests, request.sweep, _REQUEST.dump_json(request).decode())
            steps.expire(self._requests, RETENTION)
            if not request.started:
                steps.hdel(self._starts, request.sweep)
            elif not renews:
                steps.hset(self._starts, request.sweep, request.at.isoformat())
            steps.hget(self._free, request.sweep)
            found = await steps.execute()
        last = cached(_FREE, found[-1])
        return last if last and request.at - last.at < RETENTION else None

    async def _renews(self, request: CapacityRequest) -> bool:
        """Return whether measurements included the sweep until now, as a started one."""
        last = cached(_REQUEST, await self._redis.hget(self._requests, request.sweep))
        return last is not None and last.started and request.at - last.at < RETENTION

    async def forget(self, sweep: str) -> None:
        """Drop what was stored for a sweep that starts no more trials."""
        async with self._redis.pipeline(transaction=True) as steps:
            for key in (self._requests, self._free, self._starts):
                steps.hdel(key, sweep)
            await steps.execute()

    async def starts(self) -> dict[str, datetime]:
        """Return the sweeps with several nodes per trial that have started, also those not seen for long."""
        found: Mapping[Any, Any] = await self._redis.hgetall(self._starts)
        return {as_text(sweep): datetime.fromisoformat(as_text(at)) for sweep, at in found.items()}

    async def take_turn(self, sweep: str, what: str) -> bool:
        """Return whether this sweep can grow now; `what`: a queue or resource that others use, too."""
        key = f"{self._prefix}:turn:{what}"
        if await self._redis.set(key, sweep, nx=True, ex=TURN):
            return True
        holder: Any = await self._redis.get(key)
        return holder is not None and as_text(holder) == sweep

    async def end_turn(self, what: str) -> None:
        await self._redis.delete(f"{self._prefix}:turn:{what}")

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
