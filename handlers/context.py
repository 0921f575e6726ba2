"""Shared dependencies of the Slack handlers: queue and store, never the cluster."""

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
from bot.digests.latest import LatestDigest
from bot.environments.requests import RequestStore
from bot.form.drafts import Drafts, last_launch
from bot.gpus.snapshot_store import SnapshotStore
from bot.launch.create import start
from bot.repos.catalog import Catalog
from bot.runtime.log_format import about
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.sweeps.receipts import Receipts

log = logging.getLogger(__name__)

UNREACHABLE = (
    "Sweepbot can't reach its queue (Redis), so your request may not have gone through. "
    "Try again in a minute."
)
# Either Redis or this process is slow.
LATE = (
    "Sweepbot couldn't confirm this within 2 s. Your request may have gone through: "
    "check `/sweep list` before you try again."
)
SLACK_ERRORS = (SlackApiError, ClientError, TimeoutError)  # rejected, unreachable, too slow
ACK_TIMEOUT = 2.0  # seconds; Slack waits 3 for an acknowledgment


def unconfirmed(error: Exception) -> str:
    """Return the reply to a request that failed with a RedisError or a TimeoutError."""
    return LATE if isinstance(error, TimeoutError) else UNREACHABLE


class BackgroundTasks:
    """Calls to Slack that continue after the acknowledgment, which Slack expects within 3 seconds."""

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
    snapshots: SnapshotStore
    last_digest: Callable[[str], Awaitable[LatestDigest | None]]  # of a channel
    channel_setup: SetupReader
    has_worker: Callable[[], Awaitable[bool]]
    receipts: Receipts
    environments: RequestStore
    namespace: str
    now: Callable[[], datetime]
    background: BackgroundTasks = field(default_factory=BackgroundTasks)

    @property
    def config(self) -> Config:
        """The configuration, including what admins set up in Slack."""
        return self.channel_setup.config

    async def send(self, sweep_id: str, command: Command, *, once: str = "") -> None:
        """Store a command and queue its work item. `once`: the id of a request that Slack may repeat."""
        with about(sweep_id):
            async with asyncio.timeout(ACK_TIMEOUT):
                if await self.store.add_command(sweep_id, command, once=once, queue=self.queue):
                    self.receipts.add_command(sweep_id, command)
                if command.action is Action.CANCEL:
                    await self._retry(sweep_id, command.user)
            log.info("command queued: user=%s action=%s", command.user, command.action.name.lower())

    async def _retry(self, sweep_id: str, user: str) -> None:
        """Give a quarantined sweep, which may hold GPUs, one more attempt for a permitted cancel."""
        if sweep_id in await self.queue.quarantined():
            sweep = next(iter(await self.store.records([sweep_id])), None)
            if sweep and not denial(user, Action.CANCEL, sweep, self.config):
                await self.queue.retry(WorkItem.sweep(sweep_id), starts=1)

    async def create_sweep(self, request: SweepRequest, requester: Requester, request_id: str) -> SweepRecord:
        """Store a new sweep before the acknowledgment. A repeated request returns the same sweep."""
        async with asyncio.timeout(ACK_TIMEOUT):
            record = await start(
                self.store,
                self.queue,
                request,
                requester,
                namespace=self.namespace,
                request_id=request_id,
                now=self.now(),
                beside=last_launch(requester.user, request, requester.channel),
            )
            self.receipts.add_sweep(record)
        with about(record.id):
            log.info("sweep queued: user=%s channel=%s", requester.user, requester.channel)
        return record
