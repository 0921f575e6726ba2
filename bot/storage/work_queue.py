"""Which sweep gets a turn next: a small work queue in Redis, after client-go's workqueue.

An item (a sweep, or a job of another kind) is absent, ready, delayed, running, or running and asked for
again. It is in the queue once however often it is added, is run by one worker at a time, and what is added
while it runs runs once more afterwards. A worker holds an item by a lease it renews; the item of a dead
worker becomes ready again.
Every step is one Lua script on Redis' own clock, so workers' clocks don't matter. No crash loses an item; a
worker that was paused may act late, so `bot.storage.sweeps` checks the lease in the script that saves.

Waiting without polling: a `get` that finds nothing sleeps in BLPOP on the list `wake`. The list holds at most
one baton. Whoever makes an item ready, or delays one to before all others, puts it there; whoever takes an
item and leaves others behind puts it back. A baton lost with a dying worker costs the others at most 2 s.
BZPOPMIN on the ready items themselves would lose an item between the pop and the lease.

Quarantine: a turn that takes its worker along (out of memory, a loop without end) must not go from worker to
worker for ever. Starts are counted until one comes to an end; after MOST_STARTS the item gets one more lease,
`quarantined`, to tell people so, and then none until `retry`. From the third start on such items run one at a
time, so that what only ran beside the culprit comes to an end. A Redis that lost its data has to count anew.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.record import Quarantine
from bot.core.work_item import WorkItem

FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0  # seconds an item waits after its first, and after its n-th failure
MOST_STARTS = 5  # of an item in a row without an end
MOST_REASON = 500  # characters of an error that are kept
LONGEST_TURN = 900.0  # seconds; a worker that is longer at one is started anew
LONGEST_BLOCK = 2.0  # seconds in BLPOP; redis-py gives up on a silent socket after 5

_COMMON = """
local P, item = KEYS[1], ARGV[1]
local ready, delayed, running, again = P .. ':ready', P .. ':delayed', P .. ':running', P .. ':again'
local failures, wake, hurried = P .. ':failures', P .. ':wake', P .. ':hurried'
local starts, quarantine, reasons = P .. ':starts', P .. ':quarantine', P .. ':reasons'
local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000 -- milliseconds

local function lease_key(name) return P .. ':lease:' .. name end
local function holds(token) return call('GET', lease_key(item)) == token end
local function ring() if call('EXISTS', wake) == 0 then call('RPUSH', wake, 1) end end

-- Its people were told, so it gets no turn at all.
local function out(name)
  return call('HEXISTS', quarantine, name) == 1 and call('HEXISTS', starts, name) == 0
end

local function forget_starts(name)
  call('HDEL', starts, name)
  call('HDEL', reasons, name)
end

local function make_ready(name, since)
  call('ZREM', delayed, name)
  call('ZADD', ready, since, name)
  ring()
end

local function schedule(due)
  if out(item) then return end
  if due <= now then return make_ready(item, due) end
  call('ZADD', delayed, 'LT', due, item)
  if call('ZRANGE', delayed, 0, 0)[1] == item then ring() end
end

-- The running item goes where it was asked to go, if anywhere: the earliest of `due` and what was added.
local function finish(due)
  local asked = call('ZSCORE', again, item)
  if asked then due = math.min(asked, due or math.huge) end
  call('DEL', lease_key(item))
  call('ZREM', running, item)
  call('ZREM', again, item)
  if due then schedule(due) end
  return due
end
"""

_ADDING = """
local function add(due)
  if call('ZSCORE', running, item) then call('ZADD', again, 'LT', due, item)
  elseif not call('ZSCORE', ready, item) then schedule(due) end
end
"""

_ADD = f"{_ADDING} add(now + ARGV[2] * 1000)"

# For scripts that store something and queue its item in one step: a block for which KEYS[1] is the queue's
# prefix, and ARGV[1] and ARGV[2] are the item and the seconds until it is ready.
ADD = _COMMON + _ADD

_RETRY = f"""
{_ADDING}
if call('HDEL', quarantine, item) == 0 then return 0 end
forget_starts(item)
call('HDEL', failures, item)
if tonumber(ARGV[2]) > 0 then call('HSET', starts, item, ARGV[2]) end
add(now)
return 1
"""

_TAKE = """
local token, lease, most = ARGV[1], tonumber(ARGV[2]) * 1000, tonumber(ARGV[3])
local function unended(name) return tonumber(call('HGET', starts, name) or 0) end
local function suspect_runs()
  for _, name in ipairs(call('ZRANGE', running, 0, -1)) do
    if unended(name) > 2 then return true end
  end
end
for _, name in ipairs(call('ZRANGEBYSCORE', running, '-inf', now, 'LIMIT', 0, 100)) do
  call('ZREM', running, name)
  call('ZREM', again, name)
  call('DEL', lease_key(name))
  make_ready(name, now)
end
for _, name in ipairs(call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, 100)) do
  make_ready(name, call('ZSCORE', delayed, name))
end
local taken, pass
repeat
  taken, pass = call('ZPOPMIN', ready)[1], false
  if taken and (out(taken) or unended(taken) > most + 2) then
    pass = true
  elseif taken and unended(taken) >= 2 and suspect_runs() then
    call('ZADD', delayed, now + 1000, taken)
    pass = true
  end
until not pass
if call('EXISTS', ready) == 1 then ring() else call('DEL', wake) end
if taken then
  call('ZADD', running, now + lease, taken)
  call('SET', lease_key(taken), token, 'PX', math.ceil(lease))
  if call('HINCRBY', starts, taken, 1) > most then
    call('HSETNX', quarantine, taken, string.format('%.0f ', now) .. (call('HGET', reasons, taken) or ''))
  end
  local why = call('HGET', quarantine, taken) or ''
  return {taken, tonumber(call('HGET', failures, taken) or 0), why, string.format('%.3f', now)}
end
local soonest = math.huge
for _, key in ipairs({running, delayed}) do
  soonest = math.min(soonest, call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end
return tostring(math.max(soonest - now, 0) / 1000)
"""

_HEARTBEAT = """
if not holds(ARGV[2]) then return 0 end
call('SET', lease_key(item), ARGV[2], 'PX', math.ceil(ARGV[3] * 1000))
call('ZADD', running, now + ARGV[3] * 1000, item)
return 1
"""

_DONE = """
if not holds(ARGV[2]) then return end
call('HDEL', failures, item)
forget_starts(item)
finish(ARGV[3] ~= '' and now + ARGV[3] * 1000)
"""

_RELEASE = """
if holds(ARGV[2]) then finish(now) end
"""

_FAIL = """
if not holds(ARGV[2]) then return '0' end
if ARGV[6] ~= '' then call('HSET', reasons, item, ARGV[6])
elseif call('HEXISTS', quarantine, item) == 1 then call('HINCRBY', starts, item, -1)
else forget_starts(item) end
local count = call('HINCRBY', failures, item, 1)
local delay = math.min(ARGV[3] * 2 ^ (count - 1), ARGV[4]) * ARGV[5] * 1000
if tonumber(ARGV[7]) < tonumber(call('GET', hurried) or 0) then delay = 0 end
local due = finish(now + delay)
return tostring(math.max(due - now, 0) / 1000)
"""

_HURRY = """
for _, name in ipairs(call('HKEYS', failures)) do
  if call('ZSCORE', delayed, name) then make_ready(name, now) end
end
call('SET', hurried, now, 'PX', ARGV[1] * 1000)
"""


class LeaseLostError(Exception):
    """Someone else may hold by now what this task held; it has to stop."""


@dataclass(frozen=True)
class Lease:
    """The right to run one item, until it expires. `failures`: how often in a row the item has failed.

    `quarantined`: only to tell people so; "" else.
    """

    item: WorkItem
    token: str
    failures: int
    quarantined: str = ""  # why, or "the worker died"
    key: str = ""  # where Redis keeps the token as long as the lease lasts
    since: float = 0  # milliseconds, by Redis' clock


class Queue:
    """Items are kept as text. `lease`: seconds a worker may be silent before its item goes to another.

    Methods raise redis.exceptions.RedisError when Redis can't be reached.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "sweepbot:queue",
        lease: float = 30.0,
        most_starts: int = MOST_STARTS,
    ) -> None:
        self._redis = redis
        self.prefix = prefix
        self._lease, self._most_starts = lease, most_starts
        self._scripts = {
            body: redis.register_script(_COMMON + body)
            for body in (_ADD, _TAKE, _HEARTBEAT, _DONE, _RELEASE, _FAIL, _HURRY, _RETRY)
        }

    async def add(self, item: WorkItem) -> None:
        """Ready now: a delay it had is over. While the item runs: once more afterwards."""
        await self._run(_ADD, str(item), 0)

    async def add_after(self, item: WorkItem, seconds: float) -> None:
        """Ready in `seconds`, unless it is ready earlier anyhow."""
        await self._run(_ADD, str(item), max(seconds, 0))

    async def get(self, *, wait: float = LONGEST_BLOCK) -> Lease | None:
        """Lease the item that has been ready longest; None when there is none within `wait` seconds.

        Items which are due and items of dead workers become ready here. Cancelled in the moment of taking, it
        leaves an item leased to nobody, which comes back when that lease is over.
        """
        until = monotonic() + wait
        while True:
            token = uuid.uuid4().hex
            found = await self._run(_TAKE, token, self._lease, self._most_starts)
            if isinstance(found, list):
                item, why = WorkItem.parse(text(found[0])), text(found[2])
                quarantined, key = _read(why).why if why else "", self.lease_key(item)
                return Lease(item, token, int(found[1]), quarantined, key=key, since=float(found[3]))
            left = until - monotonic()
            if left <= 0:
                return None
            await self._sleep(min(left, float(found) + 0.001, LONGEST_BLOCK, self._lease / 4))

    async def heartbeat(self, lease: Lease) -> bool:
        """Start the lease's time anew. False: it is lost."""
        return bool(await self._run(_HEARTBEAT, str(lease.item), lease.token, self._lease))

    async def done(self, lease: Lease, *, again_after: float | None = None) -> None:
        """The turn went well: earlier failures are forgotten. Ignored for a lost lease.

        `again_after`: in how many seconds the item wants another turn, should nothing wake it earlier.
        """
        await self._run(
            _DONE, str(lease.item), lease.token, "" if again_after is None else max(again_after, 0)
        )

    async def release(self, lease: Lease) -> None:
        """Given back, not failed: ready for another worker at once. Ignored for a lost lease."""
        await self._run(_RELEASE, str(lease.item), lease.token)

    async def fail(self, lease: Lease, *, permanent: str = "") -> float:
        """Try again later: after 1 s, 2 s, 4 s ... 5 min, up to a fifth less. Returns the seconds until then.

        What was added during the turn is not held up by its failure, nor what was hurried. For a lost lease:
        nothing, 0.
        `permanent`: the error, when a repetition is not expected to help. MOST_STARTS of those in a row, or
        of turns that died with their worker, quarantine the item.
        """
        jitter = random.uniform(0.8, 1.0)  # noqa: S311 - spreads load, guards nothing
        args = (FIRST_DELAY, LONGEST_DELAY, jitter, permanent[:MOST_REASON], lease.since)
        return float(await self._run(_FAIL, str(lease.item), lease.token, *args))

    async def retry(self, item: WorkItem, *, starts: int = MOST_STARTS) -> bool:
        """Take an item out of quarantine for so many starts. False: it is not there."""
        return bool(await self._run(_RETRY, str(item), self._most_starts - starts))

    async def quarantined(self) -> dict[str, Quarantine]:
        """Return what is quarantined, by the item's text: so people read and type it."""
        found: Any = await self._redis.hgetall(f"{self.prefix}:quarantine")
        return {text(item): _read(text(why)) for item, why in found.items()}

    async def hurry(self) -> None:
        """Make ready whatever waits because it failed: the cause is over.

        Turns under way may still fail of it; then they are repeated at once.
        """
        await self._run(_HURRY, LONGEST_TURN)

    def lease_key(self, item: WorkItem) -> str:
        """The key that holds the token of the item's present lease, and is gone with it."""
        return f"{self.prefix}:lease:{item}"

    @asynccontextmanager
    async def held(self, lease: Lease) -> AsyncIterator[None]:
        """Keep the lease while the body runs. Lost: the body is cancelled, and LeaseLost raised."""
        async with kept(self._lease, lambda: self.heartbeat(lease)):
            yield

    async def _sleep(self, seconds: float) -> None:
        await self._redis.blpop([f"{self.prefix}:wake"], timeout=max(seconds, 0.01))  # 0 is for ever

    async def _run(self, script: str, *args: str | float) -> Any:
        return await self._scripts[script]([self.prefix], args)


@asynccontextmanager
async def kept(ttl: float, renew: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
    """Renew a right that lasts `ttl` seconds every third of that while the body runs.

    When `renew` says False or nothing for `ttl` seconds, the body is cancelled and LeaseLost raised.
    """
    try:
        async with asyncio.timeout(ttl) as limit:
            renewing = asyncio.create_task(_renew(ttl, renew, limit))
            try:
                yield
            finally:
                renewing.cancel()
                await asyncio.wait([renewing])
    except TimeoutError:
        if not limit.expired():
            raise
    if limit.expired():
        raise LeaseLostError("the lease is lost")


async def _renew(ttl: float, renew: Callable[[], Awaitable[bool]], limit: asyncio.Timeout) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(ttl / 3)
        asked = clock()
        try:
            async with asyncio.timeout(ttl / 3):  # redis-py itself would try for longer than the lease lasts
                ours = await renew()
        except (RedisError, TimeoutError):
            continue  # the limit runs on; the next answer may still come in time
        if limit.expired():
            return
        limit.reschedule(asked + ttl if ours else asked)


def _read(kept: str) -> Quarantine:
    since, _, why = kept.partition(" ")
    return Quarantine(datetime.fromtimestamp(float(since) / 1000, UTC), why or "the worker died")


def text(value: bytes | str) -> str:
    """Redis answers bytes or text, as its client was made."""
    return value.decode() if isinstance(value, bytes) else value
