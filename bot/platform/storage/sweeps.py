"""Store sweep records in Redis, beside the requests to sweeps (`requests`).

A save is rejected if the record was saved by another worker since, or if the lease of the saving worker is
lost. The script that writes checks both, so a worker that was paused can't overwrite newer state.

    sweep:<id>       hash: version, record, by lease, live     ended: 14 days after its last save
    compared         how often `serve` has compared what is unconfirmed with Redis, since that was empty
    active           set: ids of unfinished sweeps
    recent           sorted set: ids by last save              14 days
    entries          hash: summaries for lists (bot.core.sweep_summary)
    delivery:<id>    request id -> sweep id                    a day
    checked:<group>  the sweep that was last checked against a limit of GPUs, or a budget   a day
    busy:<trial>     a first trial that has used a GPU         a day
    build:<name>     set: ids that wait for a build            a day after the last one was added
    left:<name>      set: ids that stopped waiting             a day after the last one was added
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any

from redis.asyncio import Redis

from bot.core.commands import Command
from bot.core.record import LimitCheck, SweepRecord, dump, load
from bot.core.sweep_summary import SweepSummary, summary_of
from bot.core.sweep_summary import dump as dump_entry
from bot.platform.storage.requests import DAY, ENQUEUE, RequestStore, prefix_of, seconds
from bot.platform.storage.script_batches import ScriptBatches
from bot.platform.storage.summaries import Summaries
from bot.platform.storage.work_queue import Lease, Queue, text
from k8s.api.errors import SweepbotError

COUNT_AGE = 2.0  # seconds
KEEP = timedelta(days=14)  # a sweep after its end, and its entry in lists
KEEP_SECONDS = int(KEEP.total_seconds())
RECORDS_PER_READ = 50  # a thousand at once would stop the event loop for half a second

_COMMON = f"""
local sweep, active, recent, entries, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], redis.call
local id, entry = ARGV[1], ARGV[5]
local function clean(now)
  for _, old in ipairs(call('ZRANGEBYSCORE', recent, '-inf', now - {KEEP_SECONDS})) do
    if call('SISMEMBER', active, old) == 0 then call('HDEL', entries, old) end
  end
  call('ZREMRANGEBYSCORE', recent, '-inf', now - {KEEP_SECONDS})
end
-- `live`: the version of the last save, and whether the sweep had ended. If that is the one before, and no
-- end or start follows, the sweep is known to be active and not to expire, or the reverse; then all but every
-- 16th save leave the rest as it is, unless that has expired. A record expires no earlier than its entry.
local function write(version, record, expires, by, live)
  local now, ended = tonumber(call('TIME')[1]), expires == '' and '' or ' ended'
  local is_known = live == version - 1 .. ended
  local is_listed = call('ZADD', recent, now, id) == 0
  local is_brief = is_known and is_listed and version % 16 ~= 0
  if not is_brief then clean(now) end
  call('HSET', entries, id, entry)
  if not is_brief then
    call('EXPIRE', recent, {KEEP_SECONDS})
    call('EXPIRE', entries, {KEEP_SECONDS})
  end
  call('HSET', sweep, 'version', version, 'record', record, 'by', by or '', 'live', version .. ended)
  if ended ~= '' then call('EXPIRE', sweep, expires) end
  if is_known then return end
  if ended ~= '' then call('SREM', active, id)
  else
    call('PERSIST', sweep)
    call('SADD', active, id)
  end
end
"""

_CREATE = f"""
local delivery, queue, beside, prefix = KEYS[5], KEYS[6], KEYS[7], ARGV[7]
local known = call('GET', delivery)
local answer = known and call('HGET', prefix .. known, 'record')
if answer then id = known
elseif call('EXISTS', sweep) == 1 then return 0
else
  write(ARGV[2], ARGV[3], ARGV[4])
  call('SET', delivery, id, 'EX', ARGV[6])
  answer = 1
end
if beside ~= '' then call('SET', beside, ARGV[8], 'EX', ARGV[9]) end
{ENQUEUE}
return answer
"""

# A client that lost the reply sends the script again: the same record by the same lease is no conflict. Two
# workers can compute the same record; the second one must be rejected, or both would post. Two sweeps can be
# checked against the same limit at once; the second one must be rejected, or both would get the rest of it.
_SAVE = """
local version, record, by, live = unpack(call('HMGET', sweep, 'version', 'record', 'by', 'live'))
if record == ARGV[3] and by == ARGV[6] then return 'saved' end
if ARGV[6] ~= '' and call('GET', KEYS[5]) ~= ARGV[6] then return 'the lease is lost' end
if not version then return 'its record was deleted' end
if tonumber(version) ~= ARGV[2] - 1 then return 'another worker saved version ' .. version end
for n = 6, #KEYS do
  if (call('GET', KEYS[n]) or '') ~= ARGV[n + 1] then return 'checked' end
end
for n = 6, #KEYS do call('SET', KEYS[n], id .. ':' .. ARGV[2], 'EX', 86400) end
write(ARGV[2], ARGV[3], ARGV[4], ARGV[6], live)
return 'saved'
"""

_RESTORE = """
if call('EXISTS', sweep) == 1 then return 0 end
write(ARGV[2], ARGV[3], ARGV[4])
return 1
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

# A pipeline of both takes the client twice the CPU time.
_WITH_COMMANDS = "return {redis.call('HGET', KEYS[1], 'record'), redis.call('LRANGE', KEYS[2], 0, -1)}"


class StaleRecordError(SweepbotError):
    """The save was rejected; the message says why. Load the sweep again."""


class OutdatedCheckError(StaleRecordError):
    """Another sweep was checked against the same limit since. Read the sweeps that count for it again."""


class NoFreeIdError(SweepbotError):
    """Every candidate ID is taken."""


@dataclass(frozen=True)
class ExpiringValue:
    """A value to store under a key of its own; "" stores none."""

    key: str
    value: bytes = b""
    ttl: timedelta = DAY


NO_VALUE = ExpiringValue("")


class Store(RequestStore):
    """Methods raise redis.exceptions.RedisError when Redis can't be reached."""

    def __init__(self, redis: Redis, *, prefix: str = "sweepbot") -> None:
        super().__init__(redis, prefix)
        self._count, self._counted_at = 0, float("-inf")
        self._batches = ScriptBatches(redis)
        self._create = redis.register_script(_COMMON + _CREATE)
        self._save = redis.register_script(_COMMON + _SAVE)
        self._restore = redis.register_script(_COMMON + _RESTORE)
        keys = {name: self._key(name) for name in ("active", "recent", "entries")}
        self._summaries = Summaries(redis, **keys, records=self.records)
        self._stop_waiting = redis.register_script(_STOP_WAITING)
        self._concerned = redis.register_script(_CONCERNED)
        self._with_commands = redis.register_script(_WITH_COMMANDS)

    async def create(
        self,
        record: SweepRecord,
        candidates: Iterable[str],
        request_id: str,
        *,
        queue: Queue | None = None,
        beside: ExpiringValue = NO_VALUE,
    ) -> tuple[SweepRecord, bool]:
        """Store the record under the first free id, in one round trip per candidate.

        In the same step, add the sweep to `queue`, and store `beside`. Returns the record and True; for a
        repeated request, the existing record and False. Raises NoFreeIdError.
        """
        taken = []
        for candidate in candidates:
            record = replace(record, id=candidate)
            keys = [*self._keys(record), self._key("delivery", request_id), prefix_of(queue), beside.key]
            args = [*self._args(record), seconds(DAY), self._key("sweep", ""), beside.value]
            answer = await self._batches.call(self._create, keys, [*args, seconds(beside.ttl)])
            if isinstance(answer, bytes | str):
                return load(answer), False
            if answer:
                return record, True
            found = await self.get(candidate)
            if found and found.request_id == request_id:  # restored from its ConfigMap, without its delivery
                return found, False
            taken.append(candidate)
        raise NoFreeIdError(f"all of {', '.join(taken)} are taken")

    async def get(self, sweep_id: str) -> SweepRecord | None:
        """Return the record; None if there is none. Raises ValueError for one of a newer Sweepbot."""
        found = await self._redis.hget(self._key("sweep", sweep_id), "record")
        return None if found is None else load(found)

    async def with_commands(self, sweep_id: str) -> tuple[SweepRecord | None, list[Command]]:
        """Return the record and `commands`, in one round trip. Raises ValueError, as `get` and `commands`."""
        keys = [self._key("sweep", sweep_id), self._key("commands", sweep_id)]
        record, requests = await self._with_commands(keys)
        if record is None:
            return None, []
        return load(record), await self._readable(sweep_id, requests)

    async def save(
        self, record: SweepRecord, lease: Lease | None = None, checks: Sequence[LimitCheck] = ()
    ) -> SweepRecord:
        """Store the record as its next version, and return that.

        Raises StaleRecordError if it isn't the next version, or if `lease` is lost, and OutdatedCheckError if
        one of the `checks` is outdated.
        """
        record = replace(record, version=record.version + 1)
        keys = [*self._keys(record), lease.key if lease else ""]
        keys += [self._key("checked", each.group) for each in checks]
        token, last = lease.token if lease else "", [each.last for each in checks]
        answer = text(await self._save(keys, [*self._args(record), token, *last]))
        if answer == "checked":
            raise OutdatedCheckError(f"sweep {record.id} was not saved: another one was checked meanwhile")
        if answer != "saved":
            raise StaleRecordError(f"sweep {record.id} was not saved: {answer}")
        return record

    async def limit_check(self, group: str) -> LimitCheck:
        """Start a check against a limit of this group: call this before its sweeps are read."""
        last: Any = await self._redis.get(self._key("checked", group))
        return LimitCheck(group, text(last or ""))

    async def restore(self, record: SweepRecord) -> bool:
        """Store a record that Redis lost. Returns False, and changes nothing, if Redis has the sweep."""
        return bool(await self._restore(self._keys(record), self._args(record)))

    async def created_by(self, request_id: str) -> SweepRecord | None:
        """Return the sweep that this request created within a day. Raises ValueError, as `get`."""
        sweep_id: Any = await self._redis.get(self._key("delivery", request_id))
        return await self.get(text(sweep_id)) if sweep_id else None

    async def count_comparison(self) -> None:
        """Count that `serve` has stored again whatever Redis had lost when the comparison began."""
        await self._redis.incr(self._key("compared"))

    async def is_unknown(self, sweep_id: str, lease: Lease) -> bool:
        """Return whether no sweep has this id, nor will `serve` restore one.

        The second comparison after a loss began after it, and the lease shows that none has followed.
        """
        async with self._redis.pipeline(transaction=True) as all_:
            all_.exists(self._key("sweep", sweep_id))
            all_.get(self._key("compared"))
            all_.get(lease.key)
            exists, compared, holder = await all_.execute()
        return not exists and int(compared or 0) > 1 and text(holder or "") == lease.token

    async def add_busy_trial(self, trial: str) -> None:
        """Remember for a day that the trial has used a GPU."""
        await self._redis.set(self._key("busy", trial), "1", ex=DAY)

    async def is_busy_trial(self, trial: str) -> bool:
        return bool(await self._redis.exists(self._key("busy", trial)))

    async def active(self) -> set[str]:
        """Return the ids of all unfinished sweeps."""
        return {text(one) for one in await self._redis.smembers(self._key("active"))}

    async def active_count(self) -> int:
        """Return the number of unfinished sweeps, at most COUNT_AGE old."""
        if monotonic() - self._counted_at > COUNT_AGE:
            self._count, self._counted_at = int(await self._redis.scard(self._key("active"))), monotonic()
        return self._count

    async def listed(self) -> list[SweepSummary]:
        """Return all unfinished sweeps and the latest finished ones, most recently saved first."""
        return await self._summaries.listed()

    async def records(self, ids: Sequence[str]) -> list[SweepRecord]:
        """Return the records of these sweeps, without missing and unreadable ones."""
        found = list[SweepRecord]()
        for start in range(0, len(ids), RECORDS_PER_READ):
            async with self._redis.pipeline(transaction=False) as some:
                for sweep_id in ids[start : start + RECORDS_PER_READ]:
                    some.hget(self._key("sweep", sweep_id), "record")
                records = await some.execute()
            found += [record for one in records if one and (record := _readable(one))]
        return found

    async def versions(self, ids: Sequence[str]) -> list[int | None]:
        """Return the version of each sweep's record, None if there is none, in one round trip."""
        async with self._redis.pipeline(transaction=False) as all_:
            for sweep_id in ids:
                all_.hget(self._key("sweep", sweep_id), "version")
            return [None if one is None else int(one) for one in await all_.execute()]

    async def is_active(self, sweep_id: str) -> bool:
        return bool(await self._redis.sismember(self._key("active"), sweep_id))

    async def active_of(self, ids: Sequence[str]) -> set[str]:
        """Return which of these sweeps are unfinished. `ids` must not be empty."""
        found = await self._redis.smismember(self._key("active"), list(ids))
        return {each for each, active in zip(ids, found, strict=True) if active}

    async def wait_for_builds(self, builds: Iterable[str], sweep_id: str) -> None:
        async with self._redis.pipeline(transaction=True) as all_:
            for build in builds:
                all_.sadd(self._key("build", build), sweep_id)
                all_.expire(self._key("build", build), DAY)
            await all_.execute()

    async def stop_waiting(self, build: str, sweep_id: str) -> int:
        """Return how many other sweeps wait for this build. This sweep is still woken when the build ends."""
        keys = [self._key("build", build), self._key("left", build)]
        return int(await self._stop_waiting(keys, [sweep_id, int(DAY.total_seconds())]))

    async def concerned_by(self, build: str) -> set[str]:
        """Return the unfinished sweeps to wake when this build changes: they wait for it, or for its end."""
        keys = [self._key("build", build), self._key("left", build), self._key("active")]
        return {text(one) for one in await self._concerned(keys)}

    def _keys(self, record: SweepRecord) -> list[str]:
        return [self._key("sweep", record.id), *map(self._key, ("active", "recent", "entries"))]

    def _args(self, record: SweepRecord) -> list[Any]:
        expires = KEEP_SECONDS if record.phase.final else ""
        return [record.id, record.version, dump(record), expires, dump_entry(summary_of(record))]


def _readable(found: bytes | str) -> SweepRecord | None:
    """Return None for a record of a newer version, so that an older one can still list the others."""
    with contextlib.suppress(ValueError):
        return load(found)
    return None
