"""What this process acknowledged to Slack and the cluster's records don't have yet.

A Redis that loses its data takes along sweeps that no turn has claimed, and commands that no turn has
applied. The process that acknowledged them outlives it, so it stores them again: the same delivery is the
same sweep, and a command that was applied stands in the sweep's history. Lost is only what was acknowledged
in the seconds before Redis and this process die together.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from redis.exceptions import RedisError

from bot.core.commands import Action, Command, dump_command
from bot.core.record import SweepRecord
from bot.core.work_item import WorkItem
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.sweeps.commands import about

log = logging.getLogger(__name__)

EACH = 2.0  # seconds between two looks
MOST = 1000  # receipts; of more the oldest are given up
OLD = timedelta(hours=1)  # then whoever asked has long seen that nothing came


@dataclass(frozen=True)
class _Sweep:
    record: SweepRecord
    at: datetime


@dataclass(frozen=True)
class _Command:
    sweep: str
    command: Command
    at: datetime


class Receipts:
    def __init__(self, store: Store, queue: Queue, now: Callable[[], datetime]) -> None:
        self._store, self._queue, self._now = store, queue, now
        self._open: dict[tuple[str, str], _Sweep | _Command] = {}

    def taken(self, record: SweepRecord) -> None:
        """A new sweep. One that the cluster has a record of needs no receipt."""
        if not record.kept:
            self._note((record.id, ""), _Sweep(record, self._now()))

    async def asked(self, sweep_id: str, command: Command) -> None:
        """A command to a sweep that has not ended; questions are asked again by whoever gets no answer."""
        if not command.action.is_read_only and await self._store.is_active(sweep_id):
            self._note((sweep_id, dump_command(command)), _Command(sweep_id, command, self._now()))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EACH)
            try:
                await self.look()
            except (RedisError, TimeoutError) as error:
                log.warning("receipts can't be compared with Redis: %s", error)

    async def look(self) -> None:
        """Store again what Redis has lost, and forget what is settled. Raises RedisError."""
        for key, receipt in list(self._open.items()):
            if isinstance(receipt, _Sweep):
                settled = await self._look_at_sweep(receipt.record)
            else:
                settled = await self._look_at_command(receipt)
            if settled or self._now() - receipt.at > OLD:
                self._open.pop(key, None)

    async def _look_at_sweep(self, record: SweepRecord) -> bool:
        found = await self._store.get(record.id)
        if found is None:
            log.warning("Redis lost %s before it was claimed; stored again", record.id)
            await self._store.create(lambda _: record, [record.id], record.request_id)
            await self._queue.add(WorkItem.sweep(record.id))
            return False
        return bool(found.kept) or found.phase.final

    async def _look_at_command(self, command: _Command) -> bool:
        waiting = await self._store.commands(command.sweep)
        found = await self._store.get(command.sweep)  # after the mailbox, which is emptied last
        if command.command in waiting:
            return False
        if found is None or not _applied(command.command, found):
            log.warning("Redis lost a command to %s %s; stored again", command.command.action, command.sweep)
            await self._store.add_command(command.sweep, command.command)
            await self._queue.add(WorkItem.sweep(command.sweep))
            return found is not None and command.command.action is not Action.CANCEL  # once more is enough
        return command.command.action is not Action.CANCEL or found.kept is found.phase

    def _note(self, key: tuple[str, str], receipt: _Sweep | _Command) -> None:
        self._open[key] = receipt
        if len(self._open) > MOST:
            del self._open[next(iter(self._open))]


def _applied(command: Command, sweep: SweepRecord) -> bool:
    """Done or refused, it stands in the history, which is saved before the mailbox is emptied."""
    return any(
        (d.user, d.action, d.about) == (command.user, command.action, about(command)) for d in sweep.audit_log
    )
