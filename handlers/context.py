"""What every door may use: the queue and the records, never the cluster."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError

from bot.channels.store import SetupReader
from bot.config.permissions import denial
from bot.config.policy import Config
from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.work_item import WorkItem
from bot.digests.post import Last
from bot.gpus.snapshot_store import SnapshotStore
from bot.launch.drafts import Drafts
from bot.repos.catalog import Catalog
from bot.runtime.log_format import about
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.sweeps.create import start
from bot.sweeps.receipts import Receipts

log = logging.getLogger(__name__)

UNREACHABLE = (
    "Sweepbot can't reach its queue (Redis), so your request may not have gone through. "
    "Try again in a minute."
)
# Redis may be slow, or this process: which of them can't be told from here.
LATE = (
    "Sweepbot couldn't confirm this within 2 s. Your request may have gone through: "
    "check `/sweep list` before you try again."
)
NOT_SAID = (SlackApiError, ClientError, TimeoutError)  # Slack refuses, can't be reached, or takes too long
PATIENCE = 2.0  # seconds; Slack gives a door three


def unconfirmed(error: Exception) -> str:
    """What a person is told whose request ended in a RedisError or a TimeoutError."""
    return LATE if isinstance(error, TimeoutError) else UNREACHABLE


class Afterwards:
    """Calls of Slack that go on after the request was acknowledged: Slack waits three seconds for that."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


@dataclass(frozen=True, kw_only=True)
class HandlerContext:
    store: Store
    queue: Queue
    drafts: Drafts
    catalog: Catalog
    known: SnapshotStore
    last_digest: Callable[[str], Awaitable[Last | None]]  # of a channel
    desk: SetupReader
    receipts: Receipts
    namespace: str
    now: Callable[[], datetime]
    afterwards: Afterwards = field(default_factory=Afterwards)

    @property
    def config(self) -> Config:
        """With what was set up in Slack."""
        return self.desk.config

    async def send(self, sweep_id: str, ask: Command, *, once: str = "") -> None:
        """Into the sweep's mailbox, and a turn for it; durably. `once`: an id of what Slack may repeat."""
        with about(sweep_id):
            async with asyncio.timeout(PATIENCE):
                if once:
                    await self.store.add_command_once(sweep_id, ask, once)
                else:
                    await self.store.add_command(sweep_id, ask)
                await self.queue.add(WorkItem.parse(sweep_id))
                await self.receipts.asked(sweep_id, ask)
                if ask.action is Action.CANCEL:
                    await self._retry(sweep_id, ask.user)
            log.info("%s asks to %s it", ask.user, ask.action)

    async def _retry(self, sweep_id: str, user: str) -> None:
        """A quarantined sweep may hold GPUs: whoever may cancel it gets one more start for that."""
        if sweep_id in await self.queue.quarantined():
            sweep = await self.store.get(sweep_id)
            if sweep and not denial(user, Action.CANCEL, sweep, self.config):
                await self.queue.retry(WorkItem.sweep(sweep_id), starts=1)

    async def take(self, request: SweepRequest, requester: Requester, request_id: str) -> SweepRecord:
        """A new sweep, durably, before Slack hears anything. A repeated delivery is the same sweep."""
        async with asyncio.timeout(PATIENCE):
            record = await start(
                self.store,
                self.queue,
                request,
                requester,
                namespace=self.namespace,
                request_id=request_id,
                now=self.now(),
            )
            self.receipts.taken(record)
            await self.drafts.remember(requester.user, request, requester.channel)
        with about(record.id):
            log.info("%s asks for it in %s", requester.user, requester.channel)
        return record
