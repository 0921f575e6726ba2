"""Run items of the work queue, several at a time: what is logged of failed, postponed, and quarantined ones,
how long an unknown kind waits for a newer worker; wait while Redis is full, and notice an API server's
outage.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from time import monotonic

from redis.exceptions import RedisError

from bot.core.errors import FailedCallError, PermanentError, RetryAfterError
from bot.core.metrics import running
from bot.core.stored_format import NewerFormatError
from bot.platform.runtime.log_format import about
from bot.platform.runtime.probes import ProbeFailedError
from bot.platform.storage.redis_client import REDIS_RETRY
from bot.platform.storage.sweeps import StaleRecordError
from bot.platform.storage.work_queue import RETRY, Lease, LeaseLostError, Queue
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.outage import is_outage

log = logging.getLogger(__name__)

UNKNOWN_RETRY = replace(RETRY, attempts=20)  # of an item that only another version knows: about an hour
LIMITED_SECONDS = 0.5  # until an item looks again whether fewer of its kind run
MAX_FAILING = 10_000  # items whose error is remembered
RELEASE_TIMEOUT = 2.0  # seconds; a lease that can't be released expires

# Returns after how long to run the item again; None: only when it is queued again. Raises RetryAfterError to
# run again later without having failed, PermanentError for a failure that counts toward quarantine.
Handler = Callable[[Lease], Awaitable[timedelta | None]]


def keyed(run: Callable[[str], Awaitable[timedelta | None]]) -> Handler:
    """Return the handler of a job that needs only its item's key. A quarantined job does not run."""

    async def handle(lease: Lease) -> timedelta | None:
        return None if lease.quarantined else await run(lease.item.key)

    return handle


def limited(handler: Handler, most: int) -> Handler:
    """Return the handler, of which this process runs up to `most` at once; other items wait in the queue.

    So slow jobs leave the other loops to sweeps.
    """
    running = 0

    async def handle(lease: Lease) -> timedelta | None:
        nonlocal running
        if running >= most:
            raise RetryAfterError(f"{most} items of this kind are running", LIMITED_SECONDS)
        running += 1
        try:
            return await handler(lease)
        finally:
            running -= 1

    return handle


class Worker:
    """`handlers`: by ItemKind; an item of any other kind is left to a newer worker, and
    dropped after about an hour.

    `suspect` is called when a call fails as if the API server were down.
    """

    def __init__(
        self,
        queue: Queue,
        concurrency: int,
        handlers: Mapping[str, Handler],
        *,
        suspect: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue, self._handlers, self._suspect = queue, handlers, suspect
        self._running = [("", monotonic())] * concurrency  # each loop's item ("": idle), and since when
        self._waiting = asyncio.Lock()
        self._redis_failed = False  # since the last check of it
        self._unended: list[Lease] = []  # of items in which a call to Redis failed
        self._failing: dict[str, str] = {}  # by item: the error that was logged

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`, then finish the running items. If cancelled, release them at once."""
        async with asyncio.TaskGroup() as group:
            for loop in range(len(self._running)):
                group.create_task(self._loop(loop, stop))

    async def moving(self, within: float) -> str:
        """Return how many loops are busy. Raises ProbeFailedError if one takes over `within` seconds."""
        item, since = min(self._running, key=lambda each: each[1])
        if (seconds := monotonic() - since) > within:
            raise ProbeFailedError(
                f"{item} has run for {seconds:.0f} s" if item else f"idle for {seconds:.0f} s"
            )
        return f"{sum(1 for item, _ in self._running if item)} of {len(self._running)} busy"

    async def _loop(self, loop: int, stop: asyncio.Event) -> None:
        lease: Lease | None = None
        while lease or not stop.is_set():
            self._running[loop] = ("", monotonic())
            try:
                lease = lease or await self._next(stop)
                if lease:
                    self._running[loop] = (str(lease.item), monotonic())
                    with about(str(lease.item)):
                        lease = await (self._release(lease) if stop.is_set() else self._take(lease, stop))
            except RedisError as error:
                if lease:
                    self._unended.append(lease)
                lease, self._redis_failed = None, True
                log.warning("a call to Redis failed: %s", error)
                await asyncio.sleep(REDIS_RETRY.seconds())

    async def _next(self, stop: asyncio.Event) -> Lease | None:
        """Wait for an item: one loop in Redis, the others for that loop, so that an item wakes only one."""
        async with self._waiting:
            if stop.is_set():
                return None
            if self._redis_failed:
                await self._check_redis()
            return await self._queue.get()

    async def _check_redis(self) -> None:
        """End the items in which a call to Redis failed. Raise RedisError while it stores nothing.

        A full Redis leases items: they would run again and again, and starts without an end quarantine them.
        """
        self._redis_failed = False  # unless one of these calls fails
        while self._unended:
            await self._queue.fail(self._unended[0])
            del self._unended[0]
        await self._queue.check_writable()

    async def _take(self, lease: Lease, stop: asyncio.Event | None = None) -> Lease | None:
        """Run the item. Until `stop`, return the next one, which comes with the same call to Redis."""
        try:
            kind = lease.item.kind if lease.item.kind in self._handlers else "unknown"
            async with self._queue.renewing(lease):
                with running(kind, lease.waited, str(lease.item)):
                    again = await self._handle(lease)
            self._failing.pop(str(lease.item), None)
            again_after = again.total_seconds() if again is not None else None
            if stop and not stop.is_set():
                return await self._queue.done_and_get(lease, again_after=again_after)
            await self._queue.done(lease, again_after=again_after)
        except asyncio.CancelledError:
            await self._release(lease)
            raise
        except (LeaseLostError, StaleRecordError) as lost:
            log.warning("lost the lease of %s: %s", lease.item, lost)
            await self._queue.fail(lease)
        except RedisError:
            raise
        except RetryAfterError as later:
            await self._retry_after(lease, later.seconds)
        except (ApiError, UnreachableError) as error:
            await self._cluster_failed(lease, error)
        except NewerFormatError as newer:
            delay = await self._queue.leave(lease)
            log.warning("left %s to a newer worker for %.0f s: %s", lease.item, delay, newer)
        except Exception as error:
            permanent = str(error) if isinstance(error, PermanentError) else ""
            delay = await self._queue.fail(lease, permanent=permanent)
            if self._is_news(lease, error):
                is_bug = not isinstance(error, FailedCallError)
                words = "%s failed; retrying in %.0f s: %s"
                log.log(logging.ERROR, words, lease.item, delay, error, exc_info=is_bug)
        return None

    def _is_news(self, lease: Lease, error: Exception) -> bool:
        """Return whether this item's failure isn't logged yet: in an outage, all fail every few seconds."""
        item, cause = str(lease.item), f"{type(error).__name__}: {error}"
        before = self._failing.get(item)
        if len(self._failing) >= MAX_FAILING:
            self._failing.clear()
        self._failing[item] = cause
        return before != cause

    async def _handle(self, lease: Lease) -> timedelta | None:
        if lease.quarantined:
            log.error("quarantined: %s: %s; /sweep release retries it", lease.item, lease.quarantined)
        if handler := self._handlers.get(lease.item.kind):
            return await handler(lease)
        if not UNKNOWN_RETRY.exhausted(lease.failures):
            raise NewerFormatError("unknown kind of work item; it waits for a newer Sweepbot")
        log.warning("unknown kind of work item, dropped: %s", lease.item)
        return None

    async def _retry_after(self, lease: Lease, seconds: float) -> None:
        """Run the item again without counting a failure; a quarantined item still has to be reported."""
        if lease.quarantined:
            await self._queue.fail(lease)
        else:
            await self._queue.done(lease, again_after=seconds)

    async def _cluster_failed(self, lease: Lease, error: ApiError | UnreachableError) -> None:
        """Retry the item; a Retry-After of the API server isn't counted as a failure."""
        if isinstance(error, ApiError) and error.throttled:
            await self._retry_after(lease, error.wait)
            return
        delay = await self._queue.fail(lease)
        if is_outage(error):
            self._suspect()
        if self._is_news(lease, error):
            log.warning("%s failed; retrying in %.0f s: %s", lease.item, delay, error)

    async def _release(self, lease: Lease) -> None:
        log.info("releasing %s to another worker", lease.item)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._queue.release(lease)
        except (RedisError, TimeoutError):
            log.warning("can't release the lease of %s; it expires", lease.item)
