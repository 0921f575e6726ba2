"""A worker: takes turns from the queue, several at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from time import monotonic

from redis.exceptions import RedisError

from bot.clients import Clients
from bot.core.ids import SWEEP_ID
from bot.doctor import examination
from bot.runtime.log_format import about
from bot.runtime.probes import ProbeFailedError
from bot.slack.client import SlackBusyError
from bot.storage.sweeps import StaleRecordError
from bot.storage.work_queue import Lease, LeaseLostError
from bot.sweeps.reconciler import PASSING, reconcile, tell_quarantined
from k8s.errors import ApiError, UnreachableError
from k8s.outage import away

log = logging.getLogger(__name__)

REDIS_PAUSE = 1.0  # seconds before Redis is asked again
GIVE_BACK = 2.0  # seconds for it; what can't be given back runs out


# A turn of an item that is no sweep; when it wants another one by itself.
JobHandler = Callable[[str], Awaitable[timedelta | None]]


class Worker:
    """`job_handlers`: by what stands before ": " in their items; the blank is what nobody can type as a name.

    `suspect` is called when the API server seems to be away.
    """

    def __init__(
        self,
        clients: Clients,
        turns: int,
        job_handlers: Mapping[str, JobHandler] | None = None,
        *,
        suspect: Callable[[], None] = lambda: None,
    ) -> None:
        self._outside, self._errands, self._suspect = clients, job_handlers or {}, suspect
        self._at = [("", monotonic())] * turns  # what each loop is at ("": waiting), and since when

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and the end of the turns under way. Cancelled, it gives them up to others at once."""
        async with asyncio.TaskGroup() as group:
            for place in range(len(self._at)):
                group.create_task(self._take_turns(place, stop))

    async def moving(self, within: float) -> str:
        """What the loops do. Raises ProbeFailedError when one has done it for more than `within` seconds."""
        sweep, since = min(self._at, key=lambda each: each[1])
        if (seconds := monotonic() - since) > within:
            raise ProbeFailedError(
                f"a turn of {sweep} lasts {seconds:.0f} s" if sweep else f"idle for {seconds:.0f} s"
            )
        return f"{sum(1 for sweep, _ in self._at if sweep)} of {len(self._at)} at a turn"

    async def _take_turns(self, place: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._at[place] = ("", monotonic())
            try:
                if lease := await self._outside.queue.get():
                    self._at[place] = (lease.item, monotonic())
                    with about(lease.item):
                        await (self._give_back(lease) if stop.is_set() else self._take(lease))
            except RedisError as error:
                log.warning("Redis does not answer: %s", error)
                await asyncio.sleep(REDIS_PAUSE)

    async def _take(self, lease: Lease) -> None:
        queue = self._outside.queue
        try:
            async with queue.held(lease):
                again = await (self._quarantine(lease) if lease.quarantined else self._turn(lease))
            await queue.done(lease, again_after=again.total_seconds() if again is not None else None)
        except asyncio.CancelledError:
            await self._give_back(lease)
            raise
        except (LeaseLostError, StaleRecordError) as lost:
            log.warning("a turn of %s was overtaken: %s", lease.item, lost)
            await queue.fail(lease)
        except RedisError:
            raise
        except (ApiError, UnreachableError) as trouble:
            await self._put_off(lease, trouble)
        except Exception as error:
            why = self._outside.mask(_permanent(lease.item, error))
            delay = await queue.fail(lease, permanent=why)
            log.exception("a turn of %s failed and is repeated in %.0f s", lease.item, delay)

    async def _put_off(self, lease: Lease, trouble: ApiError | UnreachableError) -> None:
        """A busy API server is waited for as long as it asks, and the turn has not failed."""
        queue = self._outside.queue
        if isinstance(trouble, ApiError) and trouble.throttled and not lease.quarantined:
            await queue.done(lease, again_after=trouble.wait)
            return
        delay = await queue.fail(lease)
        if away(trouble):
            self._suspect()
        log.warning("a turn of %s failed and is repeated in %.0f s: %s", lease.item, delay, trouble)

    async def _quarantine(self, lease: Lease) -> None:
        log.error("quarantined: %s: %s; /sweep release takes it out", lease.item, lease.quarantined)
        if SWEEP_ID.fullmatch(lease.item):
            await tell_quarantined(lease, self._outside)

    async def _turn(self, lease: Lease) -> timedelta | None:
        if lease.item == examination.ITEM:
            await examination.visit(self._outside)
            return None
        kind, found, _ = lease.item.partition(": ")
        if found and (errand := self._errands.get(kind)):
            return await _unhurried(errand, lease.item)
        return await reconcile(lease, self._outside)

    async def _give_back(self, lease: Lease) -> None:
        log.info("a turn of %s is left to another worker", lease.item)
        try:
            async with asyncio.timeout(GIVE_BACK):
                await self._outside.queue.release(lease)
        except (RedisError, TimeoutError):
            log.warning("the lease of %s could not be given back; it runs out", lease.item)


def _permanent(item: str, error: Exception) -> str:
    """An error that only repeats itself. What serves everybody is tried on: tomorrow's data may be others."""
    if isinstance(error, PASSING) or not SWEEP_ID.fullmatch(item):
        return ""
    return f"{type(error).__name__}: {error}"


async def _unhurried(errand: JobHandler, item: str) -> timedelta | None:
    try:
        return await errand(item)
    except SlackBusyError as busy:
        return timedelta(seconds=busy.seconds)
