"""List sweeps from memory, and read from Redis only the summaries that changed.

Reading and parsing a thousand summaries takes longer than the rest of a command. Each save sets its sweep's
time in `recent` (`sweeps`), so only sweeps with the last known time or a later one can have
changed. Everything is read again once a minute, and when the number of sweeps isn't the expected one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from redis.asyncio import Redis

from bot.core.record import SweepRecord
from bot.core.sweep_summary import SweepSummary, dump, load, summary_of
from bot.platform.storage.work_queue import text

MAX_RECENT = 1000  # sweeps by last save; unfinished ones are always listed
RELOAD_INTERVAL = 60.0  # seconds
CLOCK_SKEW = 5  # seconds that the clock of a new Redis primary can be behind

_CHANGED = """
local found = redis.call('ZRANGE', KEYS[1], ARGV[1], '+inf', 'BYSCORE', 'WITHSCORES')
local answer = {redis.call('ZCARD', KEYS[1])}
for n = 1, #found, 2 do
  table.insert(answer, {found[n], found[n + 1], redis.call('HGET', KEYS[2], found[n]) or ''})
end
return answer
"""

ReadRecords = Callable[[Sequence[str]], Awaitable[list[SweepRecord]]]


class Summaries:
    """Methods raise redis.exceptions.RedisError.

    Args:
        active, recent, entries: keys in Redis.
        records: reads the records of sweeps without a readable summary.
    """

    def __init__(self, redis: Redis, *, active: str, recent: str, entries: str, records: ReadRecords) -> None:
        self._redis, self._records = redis, records
        self._active, self._recent, self._entries = active, recent, entries
        self._changed = redis.register_script(_CHANGED)
        self._loaded = float("-inf")
        self._times: dict[str, float] = {}  # of the last save, by Redis' clock; only of those in `recent`
        self._known: dict[str, tuple[bytes | str, SweepSummary]] = {}
        self._listed: list[SweepSummary] = []

    async def listed(self) -> list[SweepSummary]:
        """Return all unfinished sweeps and the latest finished ones, most recently saved first."""
        if monotonic() - self._loaded > RELOAD_INTERVAL or not await self._refresh():
            await self._reload()
        return list(self._listed)

    async def _refresh(self) -> bool:
        """Read what was saved since the last call. Return False if more has changed than that."""
        since = max(self._times.values(), default=0) - CLOCK_SKEW
        count, *found = await self._changed([self._recent, self._entries], [since])
        self._times |= {text(sweep_id): float(at) for sweep_id, at, _ in found}
        if await self._read({text(sweep_id): raw for sweep_id, _, raw in found}):
            self._order()
        return min(len(self._times), MAX_RECENT) == min(int(count), MAX_RECENT)

    async def _reload(self) -> None:
        now = monotonic()
        newest: Any = await self._redis.zrange(self._recent, 0, MAX_RECENT - 1, desc=True, withscores=True)
        times = {text(sweep_id): float(at) for sweep_id, at in newest}
        ids = [*times, *{text(each) for each in await self._redis.smembers(self._active)} - times.keys()]
        raw = await self._redis.hmget(self._entries, ids) if ids else []
        self._times = times
        self._known = {sweep_id: self._known[sweep_id] for sweep_id in ids if sweep_id in self._known}
        await self._read({sweep_id: found or "" for sweep_id, found in zip(ids, raw, strict=True)})
        self._order()
        self._loaded = now

    async def _read(self, summaries: Mapping[str, bytes | str]) -> bool:
        """Parse the summaries that are new. Return whether there were any."""
        new = {each: raw for each, raw in summaries.items() if self._known.get(each, ("", None))[0] != raw}
        parsed = {entry.id: entry for entry in load(raw for raw in new.values() if raw)}
        missing = [each for each in summaries if each not in parsed and each not in self._known]
        parsed |= await self._from_records(missing)
        self._known |= {each: (summaries[each], entry) for each, entry in parsed.items()}
        return bool(parsed)

    async def _from_records(self, ids: Iterable[str]) -> dict[str, SweepSummary]:
        """Store summaries of sweeps saved by an older version, unless a save has just stored them."""
        entries = {record.id: summary_of(record) for record in await self._records(list(ids))}
        async with self._redis.pipeline(transaction=False) as all_:
            for sweep_id, entry in entries.items():
                all_.hsetnx(self._entries, sweep_id, dump(entry))
            await all_.execute()
        return entries

    def _order(self) -> None:
        newest = sorted(self._times, key=lambda each: (self._times[each], each), reverse=True)[:MAX_RECENT]
        others = sorted(each for each in self._known.keys() - set(newest) if self._known[each][1].live)
        self._listed = [self._known[each][1] for each in [*newest, *others] if each in self._known]
