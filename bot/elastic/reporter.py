"""Keep one message per elastic Deployment current. Slack never delays the scaler."""

import asyncio
import logging
from datetime import datetime, timedelta

from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.config.elastic import ElasticDeployment
from bot.elastic.message import message, removed
from bot.elastic.records import ElasticRecord, ElasticRecords
from bot.elastic.scaler import Scaler
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.slack.message import Message
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)

INTERVAL = 2.0  # seconds between two rounds
POST_RETRY = timedelta(minutes=5)  # in a channel without the bot


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
            if view := self._scaler.views.get(config.key):
                record = records.get(config.key, ElasticRecord())
                await self._show(config, record, message(config, record, view))
        configured = {each.key for each in self._clients.config.elastic}
        for key in [key for key in records if key not in configured]:
            await self._end(key, records[key])

    async def _show(self, config: ElasticDeployment, record: ElasticRecord, shown: Message) -> None:
        if not record.ts or record.channel != config.channel:
            await self._post(config, shown)
        elif shown.fingerprint != record.shown:
            await self._edit(record, shown)
            await self._records.change(config.key, shown=shown.fingerprint)

    async def _post(self, config: ElasticDeployment, shown: Message) -> None:
        where, now = (config.key, config.channel), self._clients.now()
        if where in self._retry_at and now < self._retry_at[where]:
            return
        try:
            ts = await self._clients.slack.post(config.channel, shown)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the message of %s in %s: %s", config.key, config.channel, error)
            self._retry_at[where] = now + POST_RETRY
            return
        await self._records.change(config.key, channel=config.channel, ts=ts, shown=shown.fingerprint)

    async def _end(self, key: str, record: ElasticRecord) -> None:
        """Show that the Deployment was removed from the configuration; its replicas stay."""
        if record.ts:
            await self._edit(record, removed(key))
        await self._records.remove(key)

    async def _edit(self, record: ElasticRecord, shown: Message) -> None:
        try:
            await self._clients.slack.update(record.channel, record.ts, shown)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't edit the message of an elastic Deployment: %s", error)
