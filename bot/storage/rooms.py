"""Store what `parallel=auto` sweeps need, and the room that the leader measured for them.

room:<cluster>:wants       hash: sweep -> Want; expires after ten minutes
room:<cluster>:rooms       hash: sweep -> Room; expires after ten minutes
room:<cluster>:turn:<what>  the sweep that grows now, so that two don't take the same free GPUs
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.core.pace import Room, Want
from bot.core.stored_format import cached
from bot.storage.work_queue import text as as_text

RETENTION = timedelta(minutes=10)  # of what nobody renews
TURN = timedelta(seconds=75)  # two measurements: the second one shows the new trials' pods

_WANT, _ROOM = TypeAdapter(Want), TypeAdapter(Room)


class RoomStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._prefix = redis, f"room:{cluster}"
        self._wants, self._rooms = f"{self._prefix}:wants", f"{self._prefix}:rooms"

    def at(self, cluster: str) -> "RoomStore":
        """Return the store of another cluster."""
        return RoomStore(self._redis, cluster)

    async def room(self, want: Want) -> Room | None:
        """Register what a sweep needs, and return its last room; None if it isn't measured yet."""
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._wants, want.sweep, _WANT.dump_json(want).decode())
            steps.expire(self._wants, RETENTION)
            steps.hget(self._rooms, want.sweep)
            found = await steps.execute()
        room = cached(_ROOM, found[-1])
        return room if room and want.at - room.at < RETENTION else None

    async def take_turn(self, sweep: str, what: str) -> bool:
        """Return whether this sweep can grow now; `what`: a queue or resource that others use, too."""
        key = f"{self._prefix}:turn:{what}"
        if await self._redis.set(key, sweep, nx=True, ex=TURN):
            return True
        holder: Any = await self._redis.get(key)
        return holder is not None and as_text(holder) == sweep

    async def wants(self, now: datetime) -> list[Want]:
        """Return the current wants, and forget those of sweeps that have ended."""
        found: Mapping[Any, Any] = await self._redis.hgetall(self._wants)
        known = {as_text(sweep): cached(_WANT, text) for sweep, text in found.items()}
        current = {sweep: want for sweep, want in known.items() if want and now - want.at < RETENTION}
        if gone := known.keys() - current.keys():
            await self._redis.hdel(self._wants, *gone)
        return list(current.values())

    async def rooms(self) -> dict[str, Room]:
        found: Mapping[Any, Any] = await self._redis.hgetall(self._rooms)
        known = {as_text(sweep): cached(_ROOM, text) for sweep, text in found.items()}
        return {sweep: room for sweep, room in known.items() if room}

    async def save(self, rooms: Mapping[str, Room]) -> None:
        """Replace all rooms."""
        async with self._redis.pipeline(transaction=True) as steps:
            steps.delete(self._rooms)
            if rooms:
                texts: dict[Any, Any] = {
                    sweep: _ROOM.dump_json(room).decode() for sweep, room in rooms.items()
                }
                steps.hset(self._rooms, mapping=texts)
                steps.expire(self._rooms, RETENTION)
            await steps.execute()
