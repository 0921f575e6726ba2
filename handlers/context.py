"""Shared dependencies of the Slack handlers: queue and store, never the cluster; the replies if Redis can't
be reached, or a request can't be confirmed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from aiohttp import ClientError
from redis.exceptions import RedisError
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command, dump_command
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.work_item import WorkItem
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.commands.grammar import Table
from bot.platform.config.permissions import denial
from bot.platform.config.policy import Config
from bot.platform.repos.catalog import Catalog
from bot.platform.runtime.log_format import about
from bot.platform.slack.message import Message
from bot.platform.storage.api_tokens import ApiTokens
from bot.platform.storage.requests import DAY
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.store import SetupReader
from bot.sweep.form.drafts import Drafts, last_launch
from bot.sweep.launch.create import start
from bot.sweep.sweeps.unconfirmed import TTL, UnconfirmedRequests
from bot.text.masking import Mask
from bot.watch.digests.latest import LatestDigest

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
NOT_OPENED = "Slack couldn't open the dialog. Try again."
SLACK_ERRORS = (SlackApiError, ClientError, TimeoutError)  # rejected, unreachable, too slow
ACK_TIMEOUT = 2.0  # seconds; Slack waits 3 for an acknowledgment


def unconfirmed_reply(error: Exception) -> str:
    """Return the reply to a request that failed with a RedisError or a TimeoutError."""
    return LATE if isinstance(error, TimeoutError) else UNREACHABLE


async def stored(what: str, storing: Awaitable[object]) -> str:
    """Await what stores a request. Return the reply if it failed; "" if it didn't. `what`: for the log."""
    try:
        await storing
    except (RedisError, TimeoutError) as error:
        log.exception("failed to store %s", what)
        return unconfirmed_reply(error)
    return ""


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
    unconfirmed: UnconfirmedRequests
    gpus: Table  # the commands of /gpus
    namespace: str
    mask: Mask  # of what this process shows of sweeps
    now: Callable[[], datetime]
    tokens: ApiTokens | None = None  # of the HTTP API; None: it is off
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    spoken: dict[str, "tuple[Table, Answer]"] = field(default_factory=dict)  # by `/sweep`: set by handlers

    @property
    def config(self) -> Config:
        """The configuration, including what admins set up in Slack."""
        return self.channel_setup.config

    async def send(self, sweep_id: str, command: Command, *, once: str = "", within: timedelta = DAY) -> None:
        """Store a command and queue its work item. `once`, `within`: as in `Store.add_request`."""
        with about(sweep_id):
            async with asyncio.timeout(ACK_TIMEOUT):
                is_stored = await self.store.add_command(
                    sweep_id, command, once=once, within=within, queue=self.queue
                )
                if is_stored and not command.action.is_question:
                    await self.unconfirmed.add_request(sweep_id, dump_command(command))
                if command.action is Action.CANCEL:
                    await self._retry(sweep_id, command.user)
            log.info("command queued: user=%s action=%s", command.user, command.action.name.lower())

    async def add_request(
        self, to: str, request: str, *, once: str = "", ttl: timedelta = TTL, is_polled: bool = False
    ) -> None:
        """Store a request to the work item `to`, and queue that; not if its reader looks by itself.

        `once`: as in `Store.add_request`. `ttl`: how long the request is of use.
        """
        async with asyncio.timeout(ACK_TIMEOUT):
            queue = None if is_polled else self.queue
            if await self.store.add_request(to, request, once=once, queue=queue, ttl=ttl):
                await self.unconfirmed.add_request(to, request, ttl=ttl, is_polled=is_polled)

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
            await self.unconfirmed.add_sweep(record)
        with about(record.id):
            log.info("sweep queued: user=%s channel=%s", requester.user, requester.channel)
        return record


Body = dict[str, Any]
# Answers a command of a person: fields of a slash command. "" if a form is open, or nothing is to be said.
# Raises UserError, NoTriggerError, RedisError, TimeoutError, and SLACK_ERRORS.
Answer = Callable[[HandlerContext, Body, AsyncWebClient], Awaitable[str | Message]]


class NoTriggerError(Exception):
    """A message asks for what needs a form, which Slack only opens after a command or a click."""


def trigger_of(command: Body) -> str:
    if not (trigger := command.get("trigger_id")):
        raise NoTriggerError
    return str(trigger)


def request_id_of(command: Body) -> str:
    """Return Slack's id of the request, the same when it is delivered again."""
    return str(command.get("request_id") or command["trigger_id"])
