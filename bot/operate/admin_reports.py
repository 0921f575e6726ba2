"""Report in the admin channel what only an admin can fix: a rejected configuration, or an unusable cluster.

Each is reported once, by whichever worker is first, and once when it is over.

config:rejected:<version>     why the file was rejected; a day
config:reported               the version last reported, until a valid one is in effect
config:reported:<version>     it was reported; a day
cluster:reported:<cluster>    it was reported; a week
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.finding import with_fix
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.clients import Clients
from bot.platform.clusters.connections import RemoteCluster
from bot.platform.config.live_policy import LivePolicy
from bot.platform.repos.git_commands import logins
from bot.platform.slack.client import UNSENT, MessageRejectedError, NotInChannelError
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import block, code, plain
from bot.platform.storage.work_queue import text
from k8s.api.errors import ClusterUnreachableError

log = logging.getLogger(__name__)

FILE_INTERVAL, CLUSTER_INTERVAL = 5.0, 30.0  # seconds; what lasts from one look to the next is reported
DAY, WEEK = timedelta(days=1), timedelta(days=7)
VALID = "valid"  # key of the item after a valid file was read; any other key is a rejected version
REJECTED_KEY, REPORTED_KEY = "sweepbot:config:rejected", "sweepbot:config:reported"
CLUSTER_KEY = "sweepbot:cluster:reported"
CORRECTED = ":white_check_mark: config.yaml is valid again and in effect."


async def _repeat(check: Callable[[], Awaitable[None]], seconds: float, what: str) -> None:
    while True:
        try:
            await check()
        except (RedisError, *UNSENT) as error:  # any other ends the process
            log.warning("can't report %s: %s", what, error)
        await asyncio.sleep(seconds)


async def _post(message: str, clients: Clients) -> None:
    """Raises UNSENT."""
    if not (channel := clients.config.admin_channel):
        return
    try:
        await clients.slack.post(channel, Message(text=message))
    except (NotInChannelError, MessageRejectedError) as error:
        log.warning("can't post to admin_channel %s: %s", channel, error)


class ConfigReport:
    """Any worker that rejects a file queues the report; the queue has it once for all of them."""

    def __init__(self, policy: LivePolicy, clients: Clients, redis: Redis) -> None:
        self._policy, self._clients, self._redis = policy, clients, redis
        self._queued: tuple[str, str] | None = None

    async def follow(self) -> None:
        """Queue a report after each change, until cancelled."""
        await _repeat(self.check, FILE_INTERVAL, "the configuration")

    async def check(self) -> None:
        """Queue a report if the file has changed; use new credentials for git. Raises RedisError."""
        version, error = state = self._policy.version, self._policy.error
        if state == self._queued:
            return
        if error:
            why = self._clients.mask(error)
            await self._redis.set(f"{REJECTED_KEY}:{version}", why, ex=DAY)
        else:
            self._clients.git.use_logins(logins(self._policy.config, os.environ))
        await self._clients.queue.add(WorkItem(ItemKind.CONFIG, version if error else VALID))
        self._queued = state

    async def run(self, key: str) -> None:
        """Handle a work item: post, then record, so that a crash in between repeats the message."""
        if key == VALID:
            if await self._redis.exists(REPORTED_KEY):
                await _post(CORRECTED, self._clients)
                await self._redis.delete(REPORTED_KEY)
            return
        why = await self._redis.get(f"{REJECTED_KEY}:{key}")
        if why is None or await self._redis.exists(f"{REPORTED_KEY}:{key}"):
            return
        await _post(_rejected(text(why)), self._clients)
        await self._redis.set(f"{REPORTED_KEY}:{key}", "1", ex=DAY)
        await self._redis.set(REPORTED_KEY, key)


def _rejected(why: str) -> str:
    return (
        ":warning: *config.yaml has errors.* The previous configuration stays in effect.\n"
        f"{block(why)}\n"
        "*Fix:* Correct the file, and apply it again. Sweepbot reads it without a restart."
    )


class ClusterReport:
    """Each worker checks its own connections; the first to set the key reports."""

    def __init__(self, clients: Clients, redis: Redis) -> None:
        self._clients, self._redis = clients, redis
        self._failing: set[str] = set()  # at the last check

    async def follow(self) -> None:
        """Report until cancelled."""
        await _repeat(self.check, CLUSTER_INTERVAL, "a cluster")

    async def check(self) -> None:
        """Raises RedisError, and UNSENT."""
        clusters = self._clients.clusters.all(self._clients.config)
        before, self._failing = self._failing, {c.config.name for c in clusters if _refused(c)}
        for each in clusters:
            name, refused = each.config.name, _refused(each)
            key = f"{CLUSTER_KEY}:{name}"
            mark, unmark = (
                partial(self._redis.set, key, 1, nx=True, ex=WEEK),
                partial(self._redis.delete, key),
            )
            if refused and name in before and await mark():
                why = plain(self._clients.mask(with_fix(f"{refused.why}.", refused.fix)))
                text = f":warning: Cluster {code(name)} can't be used, so its sweeps wait: {why}"
                await self._report(text, unmark)
            elif each.answers and await unmark():
                await self._report(f":white_check_mark: Cluster {code(name)} answers again.", mark)

    async def _report(self, text: str, undo: Callable[[], Awaitable[object]]) -> None:
        try:
            await _post(text, self._clients)
        except UNSENT:
            await undo()
            raise


def _refused(cluster: RemoteCluster) -> ClusterUnreachableError | None:
    failure = cluster.failure
    return failure if failure and failure.fix else None
