"""Store requests to sweeps and to jobs in Redis, until they are handled; `sweeps` has the sweeps' records.

commands:<id>    list: requests to a sweep or a job        14 days, or as long as they are of use
handled:<hash>   a request that was handled                8 days
held:<id>        requests to it have to wait               as long as they have to
request:<id>     a request that Slack can repeat           a day
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum, auto
from hashlib import blake2b

from redis.asyncio import Redis

from bot.core.commands import Command, dump_command, load_command
from bot.core.stored_format import NewerFormatError
from bot.platform.storage.queue_scripts import ADD
from bot.platform.storage.work_queue import Lease, Queue

log = logging.getLogger(__name__)

DAY = timedelta(days=1)
HANDLED_TTL = timedelta(days=8)  # more than `serve` keeps what is unconfirmed

# Queue item `id` in the queue with prefix `queue`, unless that is empty.
ENQUEUE = f"""
if queue ~= '' then
  local KEYS, ARGV = {{queue}}, {{id, 0}}
  {ADD}
end
"""

# Returns whether Redis had the request before. A restored one is older than those that wait.
_ADD_REQUEST = f"""
local once, requests, handled, queue = unpack(KEYS)
local id, request, push, call = ARGV[1], ARGV[2], ARGV[5], redis.call
local known = call('LPOS', requests, request) or call('EXISTS', handled) == 1
local is_added = once == '' or call('SET', once, '1', 'NX', 'EX', ARGV[3])
if push == 'LPUSH' then is_added = not known end
if is_added then
  call(push, requests, request)
  if call('TTL', requests) < tonumber(ARGV[4]) then call('EXPIRE', requests, ARGV[4]) end
  call('DEL', handled)
end
{ENQUEUE}
return (is_added and 1 or 0) + (known and 2 or 0)
"""

# A lease that is lost shows that Redis has lost its data since, perhaps with the effect of the request, or
# that another worker has handled it, and an equal one can wait.
_REMOVE_REQUESTS = """
local requests, lease, call = KEYS[1], KEYS[2], redis.call
if lease ~= '' and call('GET', lease) ~= ARGV[1] then return end
for n = 3, #KEYS do
  call('LREM', requests, 1, ARGV[n])
  call('SET', KEYS[n], '1', 'EX', ARGV[2])
end
"""


class RequestState(Enum):
    WAITING = auto()
    HANDLED = auto()
    LOST = auto()  # or never stored


class RequestStore:
    """Methods raise redis.exceptions.RedisError when Redis can't be reached."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix
        self._add_request = redis.register_script(_ADD_REQUEST)
        self._remove_requests = redis.register_script(_REMOVE_REQUESTS)

    async def add_command(
        self,
        sweep_id: str,
        command: Command,
        *,
        once: str = "",
        within: timedelta = DAY,
        queue: Queue | None = None,
    ) -> bool:
        """As `add_request`, for the next reconcile."""
        return await self.add_request(sweep_id, dump_command(command), once=once, within=within, queue=queue)

    async def add_request(
        self,
        to: str,
        request: str,
        *,
        once: str = "",
        within: timedelta = DAY,
        queue: Queue | None = None,
        ttl: timedelta = timedelta(days=14),
    ) -> bool:
        """Store a request to the work item `to`, and add that to `queue` in the same step.

        `once`: a request id; for the time `within`, other requests with the same one are dropped. Returns
        False for such a request, unless it is a repetition of the one that was stored.
        """
        keys = [self._key("request", once) if once else "", *self._places(to, request, queue)]
        args: list[str | int] = [to, request, seconds(within), seconds(ttl), "RPUSH"]
        return int(await self._add_request(keys, args)) > 0

    async def restore_request(self, to: str, request: str, queue: Queue | None, ttl: timedelta) -> bool:
        """Store a request that Redis lost, before those since. Returns False if Redis has it, or knows that
        it was handled.
        """
        args: list[str | int] = [to, request, seconds(DAY), seconds(ttl), "LPUSH"]
        return int(await self._add_request(["", *self._places(to, request, queue)], args)) == 1

    def _places(self, to: str, request: str, queue: Queue | None) -> list[str]:
        return [self._key("commands", to), self._handled(to, request), prefix_of(queue)]

    async def commands(self, sweep_id: str) -> list[Command]:
        """Return the commands that were not applied yet, oldest first, and remove damaged ones.

        Raises NewerFormatError for one of a newer Sweepbot.
        """
        return await self._readable(sweep_id, await self.requests(sweep_id))

    async def _readable(self, sweep_id: str, requests: Sequence[str | bytes]) -> list[Command]:
        found = list[Command]()
        for stored in requests:
            try:
                found.append(load_command(stored))
            except NewerFormatError:
                raise
            except ValueError:  # no version can read it, and the sweep would wait for it for ever
                log.error("removed a damaged command to %s", sweep_id)  # noqa: TRY400 - pydantic quotes it
                await self.remove_requests(sweep_id, [stored])
        return found

    async def requests(self, to: str) -> list[str | bytes]:
        """Return the requests that were not handled yet, oldest first."""
        return list(await self._redis.lrange(self._key("commands", to), 0, -1))

    async def hold(self, to: str, seconds: float) -> None:
        """Let `held` count down from so many seconds, by Redis' clock."""
        await self._redis.set(self._key("held", to), "1", px=max(int(seconds * 1000), 1))

    async def held(self, to: str) -> float:
        """Return for how many more seconds the requests to this work item have to wait; 0: they don't."""
        return max(await self._redis.pttl(self._key("held", to)), 0) / 1000

    async def request_states(self, requests: Sequence[tuple[str, str]]) -> list[RequestState]:
        """Return the state of each request, given what it is to, in one round trip."""
        async with self._redis.pipeline(transaction=True) as all_:
            for to, request in requests:
                all_.lpos(self._key("commands", to), request)
                all_.exists(self._handled(to, request))
            found = iter(await all_.execute())
        return [_state(place, handled) for place, handled in zip(found, found, strict=True)]

    async def is_new(self, request_id: str, age: timedelta = DAY) -> bool:
        """Return whether no request with this id came within `age`."""
        return bool(await self._redis.set(self._key("request", request_id), "1", nx=True, ex=age))

    async def remove_commands(
        self, sweep_id: str, commands: Sequence[Command], lease: Lease | None = None
    ) -> None:
        """As `remove_requests`."""
        await self.remove_requests(sweep_id, [dump_command(command) for command in commands], lease)

    async def remove_requests(
        self, to: str, requests: Sequence[str | bytes], lease: Lease | None = None
    ) -> None:
        """Mark these requests as handled, and remove them by value. Ignored for a lost lease.

        By number, a late or repeated call would remove newer ones. `lease` is needed if their effect is in
        Redis only.
        """
        if requests:
            keys = [self._key("commands", to), lease.key if lease else ""]
            args = [lease.token if lease else "", seconds(HANDLED_TTL), *requests]
            await self._remove_requests([*keys, *(self._handled(to, one) for one in requests)], args)

    def _handled(self, to: str, request: str | bytes) -> str:
        request = request.encode() if isinstance(request, str) else request
        return self._key("handled", blake2b(b"%b %b" % (to.encode(), request), digest_size=16).hexdigest())

    def _key(self, *parts: str) -> str:
        return ":".join((self._prefix, *parts))


def prefix_of(queue: Queue | None) -> str:
    return queue.prefix if queue else ""


def _state(place: int | None, handled: int) -> RequestState:
    if place is not None:
        return RequestState.WAITING
    return RequestState.HANDLED if handled else RequestState.LOST


def seconds(time: timedelta) -> int:
    return int(time.total_seconds())
