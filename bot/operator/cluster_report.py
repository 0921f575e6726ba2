"""Report a cluster that an admin must fix, such as a rejected token: once, and once when it answers again.

sweepbot:cluster:reported:<cluster>   it was reported; a week
"""

import asyncio
import logging
from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.clients import Clients
from bot.clusters.connections import RemoteCluster
from bot.core.errors import RetryAfterError
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.message import Message
from bot.slack.mrkdwn import code, plain
from k8s.api.errors import ClusterUnreachableError

log = logging.getLogger(__name__)

INTERVAL = 30.0  # seconds; what lasts from one check to the next is reported
WEEK = timedelta(days=7)
REPORTED_KEY = "sweepbot:cluster:reported"


class ClusterReport:
    """Each worker checks its own connections; the first to set the key reports."""

    def __init__(self, clients: Clients, redis: Redis) -> None:
        self._clients, self._redis = clients, redis
        self._failing: set[str] = set()  # at the last check

    async def follow(self) -> None:
        """Report until cancelled."""
        while True:
            try:
                await self.check()
            except (RedisError, RetryAfterError) as error:
                log.warning("can't report a cluster: %s", error)
            await asyncio.sleep(INTERVAL)

    async def check(self) -> None:
        """Raises RedisError, and RetryAfterError while Slack is busy."""
        clusters = self._clients.clusters.all(self._clients.config)
        before, self._failing = self._failing, {c.config.name for c in clusters if _refused(c)}
        for each in clusters:
            name, refused = each.config.name, _refused(each)
            if refused and name in before:
                await self._report(name, refused)
            elif each.answers and await self._redis.delete(f"{REPORTED_KEY}:{name}"):
                await self._post(f":white_check_mark: Cluster {code(name)} answers again.")

    async def _report(self, name: str, refused: ClusterUnreachableError) -> None:
        key = f"{REPORTED_KEY}:{name}"
        if not await self._redis.set(key, 1, nx=True, ex=WEEK):
            return
        why = plain(self._clients.mask(f"{refused.why}. *Fix:* {refused.fix}"))
        try:
            await self._post(f":warning: Cluster {code(name)} can't be used, so its sweeps wait: {why}")
        except RetryAfterError:
            await self._redis.delete(key)
            raise

    async def _post(self, text: str) -> None:
        if not (channel := self._clients.config.admin_channel):
            return
        try:
            await self._clients.slack.post(channel, Message(text=text))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post to admin_channel %s: %s", channel, error)


def _refused(cluster: RemoteCluster) -> ClusterUnreachableError | None:
    failure = cluster.failure
    return failure if failure and failure.fix else None
