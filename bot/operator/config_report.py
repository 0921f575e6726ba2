"""Report a rejected configuration file in the admin channel: once per version, and once when it is replaced.

config:rejected:<version>   why it was rejected; a day
config:reported             the version last reported, until a valid one is in effect
config:reported:<version>   it was reported; a day
"""

import asyncio
import logging
import os
from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.clients import Clients
from bot.config.live_policy import LivePolicy
from bot.core.work_item import ItemKind, WorkItem
from bot.repos.git import logins
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.message import Message
from bot.slack.mrkdwn import block
from bot.storage.work_queue import text

log = logging.getLogger(__name__)

INTERVAL = 5.0  # seconds
DAY = timedelta(days=1)
VALID = "valid"  # key of the item after a valid file was read; any other key is a rejected version
REJECTED_KEY, REPORTED_KEY = "sweepbot:config:rejected", "sweepbot:config:reported"


class ConfigReport:
    """Any worker that rejects a file queues the report; the queue has it once for all of them."""

    def __init__(self, policy: LivePolicy, clients: Clients, redis: Redis) -> None:
        self._policy, self._clients, self._redis = policy, clients, redis
        self._queued: tuple[str, str] | None = None

    async def follow(self) -> None:
        """Queue a report after each change, until cancelled."""
        while True:
            try:
                await self.check()
            except RedisError as error:
                log.warning("can't report the configuration: %s", error)
            await asyncio.sleep(INTERVAL)

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
                await self._post(Message(text=":white_check_mark: config.yaml is valid again and in effect."))
                await self._redis.delete(REPORTED_KEY)
            return
        why = await self._redis.get(f"{REJECTED_KEY}:{key}")
        if why is None or await self._redis.exists(f"{REPORTED_KEY}:{key}"):
            return
        await self._post(_rejected(text(why)))
        await self._redis.set(f"{REPORTED_KEY}:{key}", "1", ex=DAY)
        await self._redis.set(REPORTED_KEY, key, ex=DAY)

    async def _post(self, message: Message) -> None:
        channel = self._clients.config.admin_channel
        if not channel:
            return
        try:
            await self._clients.slack.post(channel, message)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post to admin_channel %s: %s", channel, error)


def _rejected(why: str) -> Message:
    return Message(
        text=":warning: *config.yaml has errors.* The previous configuration stays in effect.\n"
        f"{block(why)}\n"
        "*Fix:* Correct the file, and apply it again. Sweepbot reads it without a restart."
    )
