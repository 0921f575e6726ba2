"""A work queue in Redis, modeled on client-go's workqueue: leases, delays, retries of failed items, and the
quarantine of items that kill their workers.

An item (a sweep, or a job of another kind) is absent, ready, delayed, running, or running and dirty. However
often it is added, it is in the queue once, and one worker at a time runs it. An item that is added while it
runs is dirty: it runs once more afterwards. A worker renews its lease of an item; when a lease expires, the
item is ready again. Every step is one Lua script that uses Redis' clock, so workers' clocks don't matter. No
crash loses an item. A worker that was paused can continue late, so `sweeps` checks the lease in
the script that saves.

A busy worker needs one round trip per item: the script that finishes an item takes the next one. An idle
worker waits in BLPOP on the list `wake`, which has at most one element. A script pushes the element when it
makes an item ready, when it delays an item to a time before all others, unless the worker's own wait ends by
then, and when it takes an item and others are ready. If a worker dies after it popped the element, or dies,
stops, or gets items for all its loops before that wait ends, the others notice within 2 s. (BZPOPMIN on the
ready items would lose an item between the pop and the lease.)

During an update, a worker leaves an item that it is too old for: any worker that hasn't left it takes it at
once, before ready items. The item also counts as failed and delayed, because after a downgrade there is no
newer worker. That is counted once until the delay is over: older workers leave it again at each wake.

Quarantine: an item that kills its worker (out of memory, an endless loop) must not kill one after the
other. Starts are counted until a run ends. After MAX_STARTS the item gets one more lease, `quarantined`, to
report that, and then none until `retry`. From the third start on, such items run one at a time, so that items
that only ran next to the culprit can finish. If Redis loses its data, counting starts from zero.
"""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.record import Quarantine
from bot.core.work_item import WorkItem
from bot.platform.storage import queue_scripts
from bot.platform.storage.queue_scripts import MAX_BLOCK_SECONDS
from k8s.api.errors import SweepbotError
from k8s.retry import Retry

RETRY = Retry(base=1.0, factor=2, max=300.0, jitter=0.2)  # of items that failed
MAX_STARTS = 5  # of an item in a row without an end
MAX_REASON = 500  # characters of a stored error
MAX_RUN_SECONDS = 900.0  # of one item; then its worker is restarted


class LeaseLostError(SweepbotError):
    """The lease expired or was taken by another worker; its holder must stop."""


@dataclass(frozen=True)
class Lease:
    """The right to run one item, until it expires."""

    item: WorkItem
    token: str
    failures: int  # in a row
    quarantined: str = ""  # why, or "the worker died": run it only to report that
    key: str = ""  # of the token in Redis, which expires with the lease
    since: float = 0  # milliseconds, by Redis' clock
    waited: float = 0  # seconds since the item was due


class Wake(NamedTuple):
    """Why an item is woken. Versions are compared within a kind: a worker can see one kind later."""

    item: WorkItem
    kind: str  # of the object that changed
    version: float  # its resourceVersion; inf: unknown
    started: float  # `since` of this worker's last lease: a wake before that doesn't count; inf: none does


class Queue:
    """Methods raise redis.exceptions.RedisError when Redis can't be reached.

    Args:
        lease: seconds without a heartbeat after which an item is ready again.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "sweepbot:queue",
        lease: float = 30.0,
        most_starts: int = MAX_STARTS,
    ) -> None:
        self._redis = redis
        self.prefix = prefix
        self._lease, self._most_starts = lease, most_starts
        self._worker = uuid.uuid4().hex
        self._due = 0.0  # when `get` has to look again if no other process adds an item: monotonic
        self._looks = math.inf  # when the BLPOP that runs now ends: monotonic
        self._unanswered = set[str]()  # tokens of takes whose answers were lost, perhaps with items
        self._again = math.inf  # the next time at which an item finished here is due, until `_taking` then
        self._scripts = {body: redis.register_script(body) for body in queue_scripts.ALL}

    async def add(self, item: WorkItem) -> None:
        """Make the item ready now, even if it was delayed; if it is running, after that run."""
        self._due = 0.0
        await self._run(queue_scripts.ADD, str(item), 0)

    async def add_after(self, item: WorkItem, seconds: float) -> None:
        """Make the item ready in `seconds`, unless it will be ready earlier."""
        self._due = 0.0
        await self._run(queue_scripts.ADD, str(item), max(seconds, 0))

    async def wake(self, wakes: Iterable[Wake]) -> None:
        """Make items ready like `add`, except those that were woken, within a minute, for the same change."""
        self._due = 0.0
        args: list[str | float] = []
        for each in wakes:
            args += [str(each.item), each.kind, each.version, each.started]
        await self._run(queue_scripts.WAKE, *args)

    async def get(self, *, wait: float = MAX_BLOCK_SECONDS) -> Lease | None:
        """Lease the item that has been ready longest. Returns None if there is none within `wait` seconds.

        First makes due items and items of dead workers ready. If this call fails or is cancelled while it
        takes an item, the item is ready again at the next call, or when its lease expires.
        """
        until = monotonic() + wait
        for token in [*self._unanswered]:
            await self._run(queue_scripts.UNDO, "", token)
            self._unanswered.discard(token)
            self._due = 0.0
        due = self._due if wait else 0.0
        while True:
            if due <= monotonic():
                found = await self._take(queue_scripts.TAKE, "")
                if isinstance(found, Lease):
                    return found
                due = self._due = monotonic() + float(found)
            left = until - monotonic()
            if left <= 0:
                return None
            await self._sleep(min(left, due - monotonic(), MAX_BLOCK_SECONDS, self._lease / 4))
            due = 0.0

    async def check_writable(self) -> None:
        """Raise RedisError if Redis stores nothing, because it is full, or a replica."""
        await self._redis.set(f"{self.prefix}:written", b"", px=1)

    async def heartbeat(self, lease: Lease) -> bool:
        """Renew the lease. Returns False if it is lost."""
        return bool(await self._run(queue_scripts.HEARTBEAT, str(lease.item), lease.token, self._lease))

    async def done(self, lease: Lease, *, again_after: float | None = None) -> None:
        """Finish an item that succeeded, and reset its failures. Ignored for a lost lease.

        `again_after`: seconds until it runs again, unless it is added earlier.
        """
        await self._run(queue_scripts.DONE, *self._finished(lease, again_after))

    async def done_and_get(self, lease: Lease, *, again_after: float | None = None) -> Lease | None:
        """Finish an item like `done`, and lease the next ready one, if any, in the same round trip."""
        found = await self._take(queue_scripts.DONE_AND_TAKE, *self._finished(lease, again_after))
        return found if isinstance(found, Lease) else None

    async def release(self, lease: Lease) -> None:
        """Make the item ready for another worker, without a failure. Ignored for a lost lease."""
        await self._run(queue_scripts.RELEASE, str(lease.item), lease.token)

    async def fail(self, lease: Lease, *, permanent: str = "") -> float:
        """Retry the item after 1 s, 2 s, 4 s ... 5 min, up to a fifth less. Returns the seconds until then.

        An item that was added while it ran, or hurried, is ready earlier. Ignored for a lost lease: returns
        0. MAX_STARTS permanent errors in a row, or starts whose worker died, quarantine the item.

        Args:
            permanent: the error, if a retry isn't expected to help.
        """
        args = (*_delay(), permanent[:MAX_REASON], lease.since)
        return float(await self._run(queue_scripts.FAIL, str(lease.item), lease.token, *args))

    async def leave(self, lease: Lease) -> float:
        """Leave the item to a worker of another version, which gets it at once.

        In case there is none, all workers get it again, after delays as those of `fail`. Returns the seconds
        until then. Ignored for a lost lease: returns 0.
        """
        args = (*_delay(), self._worker)
        return float(await self._run(queue_scripts.LEAVE, str(lease.item), lease.token, *args))

    async def retry(self, item: WorkItem, *, starts: int = MAX_STARTS) -> bool:
        """Release an item from quarantine for so many starts. Returns False if it isn't quarantined."""
        return bool(await self._run(queue_scripts.RETRY_QUARANTINED, str(item), self._most_starts - starts))

    async def quarantined(self) -> dict[str, Quarantine]:
        """Return the quarantined items by their text, as admins read and type it."""
        found: Any = await self._redis.hgetall(f"{self.prefix}:quarantine")
        return {text(item): _read(text(why)) for item, why in found.items()}

    async def is_due(self, item: WorkItem) -> bool:
        """Return whether the item runs, is ready, is retried after a failure, or is quarantined."""
        async with self._redis.pipeline(transaction=True) as all_:
            for state in ("running", "ready"):
                all_.zscore(f"{self.prefix}:{state}", str(item))
            for problem in ("failures", "quarantine"):
                all_.hget(f"{self.prefix}:{problem}", str(item))
            return any(found is not None for found in await all_.execute())

    async def hurry(self) -> None:
        """Make all items ready that a failure has delayed, because its cause is over.

        Items that are running now are ready at once if they fail.
        """
        await self._run(queue_scripts.HURRY, MAX_RUN_SECONDS)

    def lease_key(self, item: WorkItem) -> str:
        """Return the key of the item's lease token, which expires with the lease."""
        return f"{self.prefix}:lease:{item}"

    @asynccontextmanager
    async def renewing(self, lease: Lease) -> AsyncIterator[None]:
        """Renew the lease while the body runs. If it is lost, cancel the body and raise LeaseLostError."""
        async with renewing(self._lease, lambda: self.heartbeat(lease)):
            yield

    async def _take(self, script: str, *args: str | float) -> Any:
        """Return a lease, or what the script returns without an item."""
        token = uuid.uuid4().hex
        try:
            found = await self._run(script, *args, *self._taking(token))
        except BaseException:
            self._unanswered.add(token)
            raise
        if not isinstance(found, list):
            return found
        item, why = WorkItem.parse(text(found[0])), text(found[2])
        quarantined, key = _read(why).why if why else "", self.lease_key(item)
        since, waited = float(found[3]), max(float(found[4]) / 1000, 0)
        self._due = monotonic() + float(found[5])
        return Lease(item, token, int(found[1]), quarantined, key=key, since=since, waited=waited)

    def _taking(self, token: str) -> tuple[str, str, float, int]:
        if self._again <= monotonic():
            self._again = math.inf
        return self._worker, token, self._lease, self._most_starts

    def _finished(self, lease: Lease, again_after: float | None) -> tuple[str, str, str | float, int, int]:
        now, is_odd = monotonic(), lease.failures or int(bool(lease.quarantined))
        if again_after is None:
            return str(lease.item), lease.token, "", is_odd, 0
        due = now + max(again_after, 0)
        self._again = min(due, self._again)
        return str(lease.item), lease.token, due - now, is_odd, int(self._looks < due + 0.01)

    async def _sleep(self, seconds: float) -> None:
        now = monotonic()
        seconds = max(min(seconds, self._again - now) + 0.001, 0.01)  # until after it is due; 0: for ever
        self._looks = now + seconds
        try:
            await self._redis.blpop([f"{self.prefix}:wake"], timeout=seconds)
        finally:
            self._looks = math.inf

    async def _run(self, script: str, *args: str | float) -> Any:
        return await self._scripts[script]([self.prefix], args)


@asynccontextmanager
async def renewing(ttl: float, renew: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
    """Call `renew` every third of `ttl` seconds while the body runs; if it fails or hangs, soon again.

    If it returns False, or doesn't return for `ttl` seconds, cancel the body and raise LeaseLostError.
    """
    tasks: list[asyncio.Task[None]] = []  # most bodies end before the first renewal, and need no task
    try:
        async with asyncio.timeout(ttl) as limit:
            timer = asyncio.get_running_loop().call_later(
                ttl / 3, lambda: tasks.append(asyncio.create_task(_renew(ttl, renew, limit)))
            )
            try:
                yield
            finally:
                timer.cancel()
                for task in tasks:
                    task.cancel()
                    await asyncio.wait([task])
    except TimeoutError:
        if not limit.expired():
            raise
    if limit.expired():
        raise LeaseLostError("the lease is lost")


async def _renew(ttl: float, renew: Callable[[], Awaitable[bool]], limit: asyncio.Timeout) -> None:
    clock = asyncio.get_running_loop().time
    while not limit.expired():
        called_at, pause = clock(), ttl / 30
        # A failure doesn't move the limit: one of the three next calls can still succeed in time.
        with suppress(RedisError, TimeoutError):
            async with asyncio.timeout(ttl / 6):  # redis-py would try longer than the lease lasts
                is_ours = await renew()
            pause = ttl / 3
            if not limit.expired():
                limit.reschedule(called_at + ttl if is_ours else called_at)
        await asyncio.sleep(pause)


def _delay() -> tuple[float, float, float, float]:
    """Return what `back_off` in the scripts computes a delay from: they count the failures."""
    return RETRY.base, RETRY.factor, RETRY.max, RETRY.share()


def _read(stored: str) -> Quarantine:
    since, _, why = stored.partition(" ")
    return Quarantine(datetime.fromtimestamp(float(since) / 1000, UTC), why or "the worker died")


def text(value: bytes | str) -> str:
    """Decode what a Redis client returns, which depends on its `decode_responses`."""
    return value.decode() if isinstance(value, bytes) else value
