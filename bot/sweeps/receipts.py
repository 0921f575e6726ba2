"""Restore what this process acknowledged to Slack when Redis loses it.

A Redis that loses its data loses sweeps without a ConfigMap and commands that no reconcile has applied. The
process that acknowledged them still has them and stores them again: a repeated request is the same sweep, and
an applied command is in the sweep's audit log. Only what was acknowledged in the seconds before Redis and
this process die together is lost.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from redis.exceptions import RedisError

from bot.core.commands import Action, Command, dump_command
from bot.core.record import SweepRecord
from bot.core.stored_format import NewerFormatError
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue

log = logging.getLogger(__name__)

RECEIPT_CHECK_SECONDS = 2.0  # seconds
MAX_RECEIPTS = 1000  # the oldest are dropped
RECEIPT_TTL = timedelta(hours=1)  # by then the user has noticed that nothing happened


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

    def add_sweep(self, record: SweepRecord) -> None:
        """Add a new sweep, unless it already has a ConfigMap."""
        if not record.durable_phase:
            self._add((record.id, ""), _Sweep(record, self._now()))

    def add_command(self, sweep_id: str, command: Command) -> None:
        """Add a command to an active sweep, unless it is read-only: users repeat unanswered questions."""
        if not command.action.is_read_only:
            self._add((sweep_id, dump_command(command)), _Command(sweep_id, command, self._now()))

    async def run(self) -> None:
        """Restore lost requests until cancelled."""
        while True:
            await asyncio.sleep(RECEIPT_CHECK_SECONDS)
            try:
                await self.restore_lost()
            except (RedisError, TimeoutError) as error:
                log.warning("can't compare receipts with Redis: %s", error)

    async def restore_lost(self) -> None:
        """Store again what Redis has lost, and drop settled receipts. Raises RedisError."""
        unsaved = await self._unsaved()
        for key, receipt in list(self._open.items()):
            if key in unsaved:
                settled = False
            else:
                settled = await self._restore(receipt)
            if settled or self._now() - receipt.at > RECEIPT_TTL:
                self._open.pop(key, None)

    async def _restore(self, receipt: _Sweep | _Command) -> bool:
        """Store the request again if it is lost. Return whether its receipt is settled."""
        try:
            if isinstance(receipt, _Sweep):
                return await self._restore_sweep(receipt.record)
            return await self._restore_command(receipt)
        except NewerFormatError:  # a newer worker has it, and this process can't tell more
            return True

    async def _unsaved(self) -> set[tuple[str, str]]:
        """Return the receipts of sweeps that Redis still has as they were created, in one round trip."""
        sweeps = {key: one.record for key, one in self._open.items() if isinstance(one, _Sweep)}
        versions = await self._store.versions([record.id for record in sweeps.values()])
        return {
            key
            for (key, record), version in zip(sweeps.items(), versions, strict=True)
            if version == record.version
        }

    async def _restore_sweep(self, record: SweepRecord) -> bool:
        """Store the sweep again if it is lost. Return whether its receipt is settled.

        Raises NewerFormatError if a newer worker has saved it.
        """
        found = await self._store.get(record.id)
        if found is None:
            log.warning("stored %s again: Redis lost it before it had a ConfigMap", record.id)
            await self._store.create(lambda _: record, [record.id], record.request_id, queue=self._queue)
            return False
        return bool(found.durable_phase) or found.phase.final

    async def _restore_command(self, receipt: _Command) -> bool:
        """As `_restore_sweep`, for a command."""
        command, is_cancel = receipt.command, receipt.command.action is Action.CANCEL
        waiting = await self._store.commands(receipt.sweep)
        found = await self._store.get(receipt.sweep)  # read last: a command is removed after the save
        if command in waiting:
            return False
        if found is None or not _is_applied(command, found):
            log.warning("stored a command to %s %s again: Redis lost it", command.action, receipt.sweep)
            await self._store.add_command(receipt.sweep, command, queue=self._queue)
            return found is not None and not is_cancel  # only a cancel is restored more than once
        return not is_cancel or found.durable_phase is found.phase

    def _add(self, key: tuple[str, str], receipt: _Sweep | _Command) -> None:
        self._open[key] = receipt
        if len(self._open) > MAX_RECEIPTS:
            del self._open[next(iter(self._open))]


def _is_applied(command: Command, sweep: SweepRecord) -> bool:
    """Applied or denied, a command is in the audit log, which is saved before the command is removed."""
    return any(
        (entry.user, entry.action, entry.about) == (command.user, command.action, command.about)
        for entry in sweep.audit_log
    )
