"""Let one worker scale elastic Deployments, and keep a message for each. Slack never delays the scaler."""

import asyncio
import logging
from datetime import datetime

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.platform.clients import Clients
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.platform.slack.message import Message
from bot.platform.storage.leader import lead
from bot.workspaces.elastic.message import message, removed
from bot.workspaces.elastic.records import ElasticRecord, ElasticRecords
from bot.workspaces.elastic.scaler import Scaler
from k8s.api.errors import ApiError, UnreachableError
from k8s.retry import Retry

log = logging.getLogger(__name__)

INTERVAL = 2.0  # seconds between two rounds
POST_RETRY = Retry(base=300.0)  # in a channel without the bot

LEASE = 15.0  # seconds
CONFIG_INTERVAL = 10.0  # seconds until a Deployment that was configured meanwhile is scaled


class Reporter:
    def __init__(self, clients: Clients, records: ElasticRecords, scaler: Scaler) -> None:
        self._clients, self._records, self._scaler = clients, records, scaler
        self._retry_at: dict[tuple[str, str], datetime] = {}  # by Deployment and channel

    async def run(self) -> None:
        """Report after each look of the scaler, until cancelled."""
        while True:
            await self._scaler.looked.wait()
            self._scaler.looked.clear()
            pause = INTERVAL
            try:
                await self.report()
            except SlackBusyError as busy:
                pause = max(pause, busy.seconds)
            except (SlackApiError, ApiError, UnreachableError, ValueError) as error:
                log.warning("can't report elastic replicas: %s", error)
            except Exception:  # replicas must be scaled even if messages fail
                log.exception("can't report elastic replicas")
            await asyncio.sleep(pause)

    async def report(self) -> None:
        """Post missing messages, and edit those that changed."""
        records = await self._records.load()
        for config in self._clients.config.elastic:
            view = self._scaler.views.get(config.key)
            if view and config.key not in self._records.unreadable:
                record = records.get(config.key, ElasticRecord())
                await self._show(config, record, message(config, record, view))
        configured = {each.key for each in self._clients.config.elastic}
        for key in [key for key in records if key not in configured]:
            await self._end(key, records[key])

    async def _show(self, config: ElasticDeployment, record: ElasticRecord, shown: Message) -> None:
        if not record.ts or record.channel != config.channel:
            await self._post(config, shown)
        elif shown.fingerprint == record.shown:
            return
        elif await self._edit(record, shown):
            await self._records.change(config.key, shown=shown.fingerprint)
        else:
            await self._post(config, shown)

    async def _post(self, config: ElasticDeployment, shown: Message) -> None:
        where, now = (config.key, config.channel), self._clients.now()
        if where in self._retry_at and now < self._retry_at[where]:
            return
        try:
            ts = await self._clients.slack.post(config.channel, shown)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the message of %s in %s: %s", config.key, config.channel, error)
            self._retry_at[where] = now + POST_RETRY.delay()
            return
        await self._records.change(config.key, channel=config.channel, ts=ts, shown=shown.fingerprint)

    async def _end(self, key: str, record: ElasticRecord) -> None:
        """Show that the Deployment was removed from the configuration; its replicas stay."""
        if record.ts:
            await self._edit(record, removed(key))
        await self._records.remove(key)

    async def _edit(self, record: ElasticRecord, shown: Message) -> bool:
        """Return False if the message was deleted."""
        try:
            return not await self._clients.slack.update(record.channel, record.ts, shown)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't edit the message of an elastic Deployment: %s", error)
            return True


async def control(redis: Redis, clients: Clients) -> None:
    """Lead or wait until cancelled; then another worker takes over. Unconfigured, it needs no lease."""
    while not clients.config.elastic:  # noqa: ASYNC110 - polls a file
        await asyncio.sleep(CONFIG_INTERVAL)
    while True:
        await lead(redis, "sweepbot:elastic", LEASE, lambda: _scale(clients))


async def _scale(clients: Clients) -> None:
    records = ElasticRecords(clients)
    scaler = Scaler(clients, records)
    async with asyncio.TaskGroup() as group:
        group.create_task(scaler.run())
        group.create_task(Reporter(clients, records, scaler).run())
