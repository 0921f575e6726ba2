"""Post, edit, and delete the messages of GPU alerts, and report GPU errors to the admin channel."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus import xid
from bot.measure.gpus.models import NoGpuDataError, Source
from bot.platform.clients import Clients
from bot.platform.config.policy import muting
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.watch.idle.alerts import Alert, Snooze
from bot.watch.idle.messages import warning
from bot.watch.idle.store import AlertStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AlertNotifier:
    """Methods raise SlackBusyError under Slack's rate limit."""

    clients: Clients
    source: Source
    store: AlertStore
    cluster: str = HOME_CLUSTER  # the one of `source`

    async def show(self, alert: Alert, snoozes: Mapping[str, Snooze], now: datetime) -> None:
        """Post the alert if it is due, edit it if only its text changed, then save or delete it."""
        message, level = warning(alert, snoozes, now), alert.due_level(snoozes, now)
        is_due = alert.due(snoozes, now)
        if is_due or message.fingerprint != alert.fingerprint:
            is_first = level and not alert.level
            posted = now if is_first else alert.posted
            sent = replace(alert, fingerprint=message.fingerprint, level=level, posted=posted)
            sent = replace(sent, last_post=now) if is_due else sent
            shown = message.without_mentions(muting(alert.sweep, self.clients.config))
            try:
                if is_due:
                    ts = await self.clients.slack.post(alert.channel, shown, alert.thread)
                    sent = sent.after_post(ts, now)
                elif alert.ts:
                    await self.clients.slack.update(alert.channel, alert.ts, shown)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("can't post alert %s: %s", alert.id, error)
            alert = sent
            await self.store.save([alert])
        if alert.replaces:
            await self.clients.slack.delete(alert.channel, alert.replaces)
            await self.store.save([replace(alert, replaces="")])
        if alert.over:
            await self.store.delete(alert)

    async def report_xids(self) -> None:
        """Report new GPU errors of all nodes to the admin channel, if there is one."""
        channel, slack = self.clients.config.admin_channel, self.clients.slack
        if not channel:
            return
        try:
            new, known = xid.news(await self.store.xids(), await self.source.xids())
            if new:
                await slack.post(channel, xid.message(new, self.cluster))
        except NoGpuDataError:
            return
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't report GPU errors in %s: %s", channel, error)
            return
        await self.store.save_xids(known)
