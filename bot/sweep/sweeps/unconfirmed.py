"""Restore what was acknowledged to Slack when Redis loses it.

A Redis that loses its data loses sweeps without a ConfigMap, and requests that no worker has handled. The
process that acknowledged them has them in memory and in a file (`unconfirmed_file.py`), flushed before the
acknowledgment, and stores them again: a repeated request is the same sweep, and a worker marks in Redis what
it has handled. If that process dies, too, the one that finds its file does. Only a lost disk loses them.

A request whose mark or effect was lost with Redis is handled again, as after the crash of a worker. A worker
marks a command only under the lease under which it read it: that is lost with Redis, too. It rejects one to
an unknown sweep only after this process has compared twice since a loss (`Store.is_unknown`).

A disk that can't be written stops no acknowledgment: Redis and memory have the request. It is logged, and
shown as the metric `sweepbot_unconfirmed_unsaved`, until a write succeeds, which includes what was missed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError
from redis.exceptions import RedisError

from bot.core.commands import Action, load_command
from bot.core.ids import SWEEP_ID
from bot.core.metrics import UNCONFIRMED_UNSAVED
from bot.core.record import RENAMED, Phase, SweepRecord, dump, load
from bot.core.stored_format import NewerFormatError, late_adapter
from bot.core.work_item import WorkItem
from bot.platform.storage.requests import RequestState
from bot.platform.storage.sweeps import NoFreeIdError, Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.sweeps.unconfirmed_file import UnconfirmedFile

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
WRITE_TIMEOUT = 1.0  # seconds that an acknowledgment waits for the disk; Slack waits 3 for all
FAILED_WRITE_TIMEOUT = 0.1  # seconds, after a write that failed or came too late
MAX_REQUESTS, MAX_BYTES = 1000, 16 * 2**20  # the oldest are dropped
TTL = timedelta(days=7)  # less than Redis keeps an ended sweep, and what it knows to be handled


@dataclass(frozen=True, kw_only=True)
class _Unconfirmed:
    """A line of the file: as in Redis, so without any secret that Redis doesn't have."""

    to: str  # the ID of a sweep, or another work item
    until: datetime  # it is of no use later
    record: str = ""  # of a new sweep; "": a request
    version: int = 0  # of the record
    request: str = ""
    is_polled: bool = False  # the request's reader looks by itself, and is no work item

    @property
    def key(self) -> tuple[str, str]:
        return self.to, self.request


_LINE = late_adapter(_Unconfirmed)


class UnconfirmedRequests:
    """`folder`: of the file, shared with no other kind of process."""

    def __init__(self, store: Store, queue: Queue, now: Callable[[], datetime], folder: Path) -> None:
        self._store, self._queue, self._now = store, queue, now
        self._open: dict[tuple[str, str], tuple[_Unconfirmed, bytes]] = {}  # with its line
        self._size = 0  # bytes of the lines
        self.file, self._folder = UnconfirmedFile(folder), folder
        self._lock = asyncio.Lock()  # one write at a time; what is added meanwhile shares the next one
        self._unwritten: list[bytes] = []
        self._next: asyncio.Task[None] | None = None  # writes `_unwritten`
        self._writes: set[asyncio.Task[None]] = set()
        self._is_complete = False  # whether the file has all open requests
        self._failure = ""  # of the last write
        self._unread = ""  # why the files of others can't be read

    async def add_sweep(self, record: SweepRecord) -> None:
        """Add a new sweep, unless it already has a ConfigMap."""
        if not record.durable_phase:
            await self._add(self._of_sweep(record))

    async def add_request(
        self, to: str, request: str, *, ttl: timedelta = TTL, is_polled: bool = False
    ) -> None:
        """Add a request that `Store.add_request` has stored."""
        until = self._now() + min(ttl, TTL)
        await self._add(_Unconfirmed(to=to, until=until, request=request, is_polled=is_polled))

    def _of_sweep(self, record: SweepRecord) -> _Unconfirmed:
        until = self._now() + TTL
        return _Unconfirmed(to=record.id, until=until, record=dump(record), version=record.version)

    async def run(self) -> None:
        """Restore lost requests until cancelled, at first those of a process that died."""
        while True:
            try:
                await self.restore_lost()
            except (RedisError, TimeoutError) as error:
                log.warning("can't compare unconfirmed requests with Redis: %s", error)
            await asyncio.sleep(CHECK_SECONDS)

    async def restore_lost(self) -> None:
        """Store again what Redis has lost, and drop what is settled. Raises RedisError."""
        await self._take_over()
        unconfirmed = [one for one, _ in self._open.values()]
        waiting, handled = await self._unclaimed(unconfirmed)
        # Sweeps before requests to them. A request is stored before those that are newer.
        unconfirmed.sort(key=lambda one: (bool(one.record), one.until))
        for one in reversed(unconfirmed):
            key = one.key
            is_late = self._now() > one.until
            if is_late:
                log.error("dropped a request to %s, which no worker took in time", one.to)
            elif key in waiting or not await self._is_settled(one, is_handled=key in handled):
                continue
            if key in self._open and self._open[key][0] is one:  # not given again meanwhile
                self._drop(key)
            self._is_complete = False  # to remove it from the file, too
        await self._store.count_comparison()
        await self._write()

    async def _unclaimed(
        self, unconfirmed: list[_Unconfirmed]
    ) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """Return what Redis still has as it was stored, and the requests that were handled."""
        sweeps = [one for one in unconfirmed if one.record]
        requests = [one.key for one in unconfirmed if not one.record]
        versions = await self._store.versions([one.to for one in sweeps])
        states = dict(zip(requests, await self._store.request_states(requests), strict=True))
        waiting = {one.key for one, version in zip(sweeps, versions, strict=True) if version == one.version}
        waiting |= {key for key, state in states.items() if state is RequestState.WAITING}
        return waiting, {key for key, state in states.items() if state is RequestState.HANDLED}

    async def _is_settled(self, one: _Unconfirmed, *, is_handled: bool) -> bool:
        """Return whether no loss of Redis can lose it from now on; if it is lost, store it again."""
        try:
            if one.record:
                return await self._is_sweep_settled(one)
            if is_handled:
                return await self._is_effect_settled(one)
            await self._restore_request(one)
        except NoFreeIdError:  # restored from its ConfigMap meanwhile
            return False
        except NewerFormatError:  # a newer worker has it, and this process can't tell more
            return True
        except ValueError:
            log.error("dropped a damaged request to %s", one.to)  # noqa: TRY400 - pydantic quotes it
            return True
        return False

    async def _is_sweep_settled(self, one: _Unconfirmed) -> bool:
        """Raises NewerFormatError if a newer worker has saved it."""
        found = await self._store.get(one.to)
        if found is None:
            record = load(one.record)
            log.warning("stored %s again: Redis lost it before it had a ConfigMap", record.id)
            await self._store.create(record, [record.id], record.request_id, queue=self._queue)
            return False
        return await self._is_kept(found)

    async def _is_kept(self, sweep: SweepRecord) -> bool:
        """Return whether the cluster has the sweep, or its users know that the cluster rejected it.

        One that was cancelled before its claim still gets a ConfigMap. A renamed one continues under another
        name, which is added here.
        """
        if sweep.durable_phase or sweep.phase is not Phase.REFUSED or sweep.outbox:
            return bool(sweep.durable_phase)
        if not sweep.reason.startswith(RENAMED):
            return True
        renamed = await self._store.get(sweep.reason.removeprefix(RENAMED))
        if renamed:
            await self._add_started(renamed)
        return renamed is not None

    async def _add_started(self, sweep: SweepRecord) -> None:
        """Add a sweep that a worker has stored for a request, unless it is kept."""
        if not await self._is_kept(sweep):
            self._keep(self._of_sweep(sweep))

    async def _restore_request(self, one: _Unconfirmed) -> None:
        queue, ttl = None if one.is_polled else self._queue, one.until - self._now()
        if await self._store.restore_request(one.to, one.request, queue, ttl):
            log.warning("stored a request to %s again: Redis lost it", one.to)

    async def _is_effect_settled(self, one: _Unconfirmed) -> bool:
        """As `_is_settled`, for a request that was handled. Jobs act in the cluster before that."""
        command = load_command(one.request) if SWEEP_ID.fullmatch(one.to) else None
        if command and command.action.starts_sweep:
            if started := await self._store.created_by(command.request_id):
                await self._add_started(started)
                return True
        elif command and command.action is Action.CANCEL:
            sweep = await self._store.get(one.to)
            if sweep and sweep.durable_phase is not sweep.phase:
                return False
        elif command and await self._queue.is_due(WorkItem.sweep(one.to)):
            return False  # its reconcile saves first, and then acts in the cluster
        # Read last: then the above was no answer of a Redis that has lost its data since.
        return await self._store.request_states([one.key]) == [RequestState.HANDLED]

    async def _add(self, one: _Unconfirmed) -> None:
        """Add a request, and wait until the disk has it, or can't have it."""
        self._unwritten.append(self._keep(one))
        self._next = self._next or asyncio.create_task(self._write())
        self._writes.add(self._next)
        self._next.add_done_callback(self._writes.discard)
        timeout = FAILED_WRITE_TIMEOUT if self._failure else WRITE_TIMEOUT
        _, late = await asyncio.wait([self._next], timeout=timeout)  # without cancelling it: others wait, too
        if late:
            self._report(f"no answer within {WRITE_TIMEOUT:g} s")

    def _keep(self, one: _Unconfirmed) -> bytes:
        """Add or replace the request, drop the oldest ones beyond the limits, and return the line."""
        line = _LINE.dump_json(one, exclude_defaults=True)
        self._drop(one.key)
        self._open[one.key] = one, line
        self._size += len(line) + 1
        while len(self._open) > 1 and (len(self._open) > MAX_REQUESTS or self._size > MAX_BYTES):
            oldest = next(iter(self._open))
            log.error("dropped a request to %s: %d wait for workers", oldest[0], len(self._open))
            self._drop(oldest)
        return line

    def _drop(self, key: tuple[str, str]) -> None:
        """Drop a request from memory: the file can have more, until it is written again."""
        if found := self._open.pop(key, None):
            self._size -= len(found[1]) + 1

    async def _take_over(self) -> None:
        """Take over the requests of processes that died, without damaged lines, such as a torn last one."""
        async with self._lock:
            try:
                lines = await asyncio.to_thread(self.file.take_over)
            except OSError as error:
                if str(error) != self._unread:
                    log.error("can't read unconfirmed requests in %s: %s", self._folder, error)  # noqa: TRY400
                self._unread = str(error)
                return
        damaged = 0
        for line in lines:
            try:
                one = _LINE.validate_json(line)
            except ValidationError:
                damaged += 1
                continue
            if one.key not in self._open:
                self._keep(one)
        if lines:
            self._is_complete = False
            log.info(
                "took over %d unconfirmed requests of a process that died; %d damaged",
                len(lines) - damaged,
                damaged,
            )

    async def _write(self) -> None:
        """Bring the file up to date: append what is new, or rewrite it without what is settled."""
        async with self._lock:
            if self._next is asyncio.current_task():
                self._next = None
            lines, self._unwritten = self._unwritten, []
            is_appended = self._is_complete and self.file.size < 2 * MAX_BYTES
            if is_appended and not lines:
                return
            self._is_complete = True  # unless one is settled during the write
            try:
                if is_appended:
                    await asyncio.to_thread(self.file.append, lines)
                else:
                    await asyncio.to_thread(self.file.rewrite, [line for _, line in self._open.values()])
            except OSError as error:
                self._is_complete = False
                self._report(str(error))
            else:
                self._report("")

    def _report(self, failure: str) -> None:
        """Log and show that the file can't be written, or can be again."""
        if failure and not self._failure:
            log.error(
                "can't store unconfirmed requests in %s: %s. They are acknowledged, but lost if this process "
                "and Redis die",
                self._folder,
                failure,
            )
        elif self._failure and not failure:
            log.info("unconfirmed requests are stored in %s again", self._folder)
        self._failure = failure
        UNCONFIRMED_UNSAVED.set(bool(failure))
