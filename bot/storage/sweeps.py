"""Sweep records in Redis: what we remember between two turns.

A save is refused when someone else saved first, or when the worker no longer holds the sweep's turn. Both are
looked at in the script that writes, so a worker that was paused can't overwrite what happened meanwhile.

    sweep:<id>       hash: version, record, by lease  expires 14 days after the sweep ended
    commands:<id>        list: clicks for the next turn   as long
    active           set: ids of sweeps not ended
    recent           sorted set: ids of sweeps by their last save; those of the last 14 days
    entries          hash: what lists show of each of them (bot.core.sweep_summary)
    heard:<id>       Slack's id of a mention           a day
    delivery:<id>    Slack's delivery -> sweep id     a day
    build:<name>     set: ids waiting for a build     a day after the last one began to wait
    left:<name>      set: ids of those that stopped   a day after the last one stopped
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from bot.core.commands import Command, dump_command, load_command
from bot.core.record import SweepRecord, dump, load
from bot.core.sweep_summary import Entry, entry_of
from bot.core.sweep_summary import dump as dump_entry
from bot.core.sweep_summary import load as load_entries
from bot.storage.work_queue import Lease, text

DAY = timedelta(days=1)

_COMMON = """
local sweep, active, recent, entries, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], redis.call
local id, entry = ARGV[1], ARGV[5]
local function write(version, record, expires, by)
  local now = tonumber(call('TIME')[1])
  for _, old in ipairs(call('ZRANGEBYSCORE', recent, '-inf', now - 1209600)) do
    if call('SISMEMBER', active, old) == 0 then call('HDEL', entries, old) end
  end
  call('ZADD', recent, now, id)
  call('ZREMRANGEBYSCORE', recent, '-inf', now - 1209600)
  call('HSET', entries, id, entry)
  call('EXPIRE', recent, 1209600)
  call('EXPIRE', entries, 1209600)
  call('HSET', sweep, 'version', version, 'record', record, 'by', by or '')
  if expires == '' then
    call('PERSIST', sweep)
    call('SADD', active, id)
  else
    call('EXPIRE', sweep, expires)
    call('SREM', active, id)
  end
end
"""

_CREATE = """
local delivery, prefix = KEYS[5], ARGV[7]
local known = call('GET', delivery)
local record = known and call('HGET', prefix .. known, 'record')
if record then return record end
if call('EXISTS', sweep) == 1 then return 0 end
write(ARGV[2], ARGV[3], ARGV[4])
call('SET', delivery, id, 'EX', ARGV[6])
return 1
"""

# A client that lost the answer sends the script again: the same record by the same lease is no conflict. Two
# workers may well come to the same record; the second has to hear that it is too late, or both would speak.
_SAVE = """
local version, record, by = unpack(call('HMGET', sweep, 'version', 'record', 'by'))
if record == ARGV[3] and by == ARGV[6] then return 'saved' end
if ARGV[6] ~= '' and call('GET', KEYS[5]) ~= ARGV[6] then return 'its lease is lost' end
if not version then return 'it is gone' end
if tonumber(version) ~= ARGV[2] - 1 then return 'someone else saved version ' .. version end
write(ARGV[2], ARGV[3], ARGV[4], ARGV[6])
return 'saved'
"""

_RESTORE = """
if call('EXISTS', sweep) == 1 then return 0 end
write(ARGV[2], ARGV[3], ARGV[4])
return 1
"""

_ASK_ONCE = """
if not redis.call('SET', KEYS[1], '1', 'NX', 'EX', ARGV[2]) then return end
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[3])
"""

_STOP_WAITING = """
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return redis.call('SCARD', KEYS[1])
"""

_CONCERNED = """
local found = {}
for _, id in ipairs(redis.call('SUNION', KEYS[1], KEYS[2])) do
  if redis.call('SISMEMBER', KEYS[3], id) == 1 then table.insert(found, id) end
end
return found
"""


class StaleRecordError(Exception):
    """This save came too late; the sentence says why. Load the sweep again."""


class NoFreeIdError(Exception):
    """Every candidate is taken."""


class Store:
    """Methods raise redis.exceptions.RedisError when Redis can't be reached."""

    def __init__(
        self, redis: Redis, *, prefix: str = "sweepbot", keep_final: timedelta = timedelta(days=14)
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._keep_final = keep_final
        self._create = redis.register_script(_COMMON + _CREATE)
        self._save = redis.register_script(_COMMON + _SAVE)
        self._restore = redis.register_script(_COMMON + _RESTORE)
        self._ask_once = redis.register_script(_ASK_ONCE)
        self._stop_waiting = redis.register_script(_STOP_WAITING)
        self._concerned = redis.register_script(_CONCERNED)

    async def create(
        self, record_for: Callable[[str], SweepRecord], candidates: Sequence[str], request_id: str
    ) -> tuple[SweepRecord, bool]:
        """Store the record for the first free id. A known delivery: the sweep it made, and False.

        Raises NoFreeIdError.
        """
        for candidate in candidates:
            record = record_for(candidate)
            keys = [*self._keys(record), self._key("delivery", request_id)]
            args = [*self._args(record), int(DAY.total_seconds()), self._key("sweep", "")]
            answer = await self._create(keys, args)
            if isinstance(answer, bytes | str):
                return load(answer), False
            if answer:
                return record, True
        raise NoFreeIdError(f"all of {', '.join(candidates)} are taken")

    async def get(self, sweep_id: str) -> SweepRecord | None:
        """Raises ValueError for a record of a newer Sweepbot."""
        found = await self._redis.hget(self._key("sweep", sweep_id), "record")
        return None if found is None else load(found)

    async def save(self, record: SweepRecord, lease: Lease | None = None) -> SweepRecord:
        """Write it as the next version, which is returned. Raises StaleRecordError.

        With a lease: only while that is still held.
        """
        record = replace(record, version=record.version + 1)
        keys = [*self._keys(record), lease.key if lease else ""]
        answer = text(await self._save(keys, [*self._args(record), lease.token if lease else ""]))
        if answer != "saved":
            raise StaleRecordError(f"sweep {record.id} was not saved: {answer}")
        return record

    async def restore(self, record: SweepRecord) -> bool:
        """Put back what only the cluster still knew. False: it is here, perhaps newer, and is left alone."""
        return bool(await self._restore(self._keys(record), self._args(record)))

    async def add_command(self, sweep_id: str, command: Command) -> None:
        """Leave a word for the sweep's next turn."""
        async with self._redis.pipeline(transaction=True) as both:
            both.rpush(self._key("commands", sweep_id), dump_command(command))
            both.expire(self._key("commands", sweep_id), self._keep_final)
            await both.execute()

    async def commands(self, sweep_id: str) -> list[Command]:
        """What was asked and is not yet answered, oldest first."""
        return [load_command(one) for one in await self._redis.lrange(self._key("commands", sweep_id), 0, -1)]

    async def add_command_once(self, sweep_id: str, command: Command, request_id: str) -> None:
        """As `command`, but a delivery that Slack repeats is heard once."""
        keys = [self._key("heard", request_id), self._key("commands", sweep_id)]
        ages = [int(DAY.total_seconds()), int(self._keep_final.total_seconds())]
        await self._ask_once(keys, [dump_command(command), *ages])

    async def is_new(self, request_id: str, age: timedelta = DAY) -> bool:
        """Whether this delivery comes for the first time within its `age`."""
        return bool(await self._redis.set(self._key("heard", request_id), "1", nx=True, ex=age))

    async def remove_commands(self, sweep_id: str, commands: Sequence[Command]) -> None:
        """Forget these asks: by what they say, not by number, or a late or repeated call took newer ones."""
        async with self._redis.pipeline(transaction=True) as all_:
            for command in commands:
                all_.lrem(self._key("commands", sweep_id), 1, dump_command(command))
            await all_.execute()

    async def active(self) -> set[str]:
        """The ids of all sweeps that have not ended."""
        return await self._members(self._key("active"))

    async def listed(self, most: int = 1000) -> list[Entry]:
        """All that have not ended and the last that did, the latest change first."""
        changed = await self._redis.zrange(self._key("recent"), 0, most - 1, desc=True)
        ids = [text(one) for one in changed if isinstance(one, bytes | str)]
        ids += sorted(await self.active() - set(ids))
        found = await self._redis.hmget(self._key("entries"), ids) if ids else []
        known = {entry.id: entry for entry in load_entries(one for one in found if one)}
        known |= await self._entered([each for each in ids if each not in known])
        return [known[each] for each in ids if each in known]

    async def _entered(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Enter those that an older Sweepbot saved, unless they are saved in this moment."""
        entries = {record.id: entry_of(record) for record in await self.records(ids)}
        async with self._redis.pipeline(transaction=False) as all_:
            for sweep_id, entry in entries.items():
                all_.hsetnx(self._key("entries"), sweep_id, dump_entry(entry))
            await all_.execute()
        return entries

    async def records(self, ids: Sequence[str]) -> list[SweepRecord]:
        """Those of these sweeps that are there and can be read."""
        async with self._redis.pipeline(transaction=False) as all_:
            for sweep_id in ids:
                all_.hget(self._key("sweep", sweep_id), "record")
            records = await all_.execute()
        return [record for one in records if one and (record := _readable(one))]

    async def is_active(self, sweep_id: str) -> bool:
        return bool(await self._redis.sismember(self._key("active"), sweep_id))

    async def wait_for_build(self, build: str, sweep_id: str) -> None:
        async with self._redis.pipeline(transaction=True) as both:
            both.sadd(self._key("build", build), sweep_id)
            both.expire(self._key("build", build), DAY)
            await both.execute()

    async def stop_waiting(self, build: str, sweep_id: str) -> int:
        """Return how many others still wait for this build. Its end still concerns this sweep."""
        keys = [self._key("build", build), self._key("left", build)]
        return int(await self._stop_waiting(keys, [sweep_id, int(DAY.total_seconds())]))

    async def concerned_by(self, build: str) -> set[str]:
        """Return the unfinished sweeps that wait for this build, or that stopped and wait for its end."""
        keys = [self._key("build", build), self._key("left", build), self._key("active")]
        return {text(one) for one in await self._concerned(keys)}

    async def _members(self, key: str) -> set[str]:
        return {text(one) for one in await self._redis.smembers(key)}

    def _key(self, *parts: str) -> str:
        return ":".join((self._prefix, *parts))

    def _keys(self, record: SweepRecord) -> list[str]:
        return [self._key("sweep", record.id), *map(self._key, ("active", "recent", "entries"))]

    def _args(self, record: SweepRecord) -> list[Any]:
        expires = int(self._keep_final.total_seconds()) if record.phase.final else ""
        return [record.id, record.version, dump(record), expires, dump_entry(entry_of(record))]


def _readable(found: bytes | str) -> SweepRecord | None:
    """A newer Sweepbot's record hides no other from an older one beside it."""
    with contextlib.suppress(ValueError):
        return load(found)
    return None
