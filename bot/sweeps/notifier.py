"""Post a sweep's outbox into its thread, and update the messages about the first trials and the sweep.

Each is removed from the outbox, or recorded as shown, only after Slack has accepted it. If Slack's rate limit
is reached, the rest waits for a reconcile `pause` later.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.commands import Command
from bot.core.errors import RetryAfterError
from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord
from bot.messages.coalesce import merged
from bot.messages.events import FROM_RESULTS, event_text
from bot.messages.first_trial import health
from bot.messages.parent import Links, duplicate, hold_buttons, parent
from bot.messages.recipients import is_loud
from bot.reports.post_results import post_files, post_table
from bot.slack.blocks import actions, section
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.slack.message import Message
from k8s import kaniko
from k8s.api.logs import WHOLE_LOG
from k8s.katib.status import ui_link

log = logging.getLogger(__name__)

UPDATE_INTERVAL = timedelta(seconds=2)  # at least, in one phase
STEP_INTERVAL = timedelta(seconds=1)  # until one of these phases is shown; all others are shown at once
STEPS = {Phase.OPENING, Phase.BUILDING, Phase.PENDING}
# Slack accepts about 50 edits a minute from an app, for all sweeps together.
UPDATE_SHARE = timedelta(seconds=1.2)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]


class Notifier:
    def __init__(self, clients: Clients, save: Save) -> None:
        self._clients, self._save = clients, save
        self.pause: timedelta | None = None  # until Slack accepts the rest; None: all is posted

    async def publish(self, sweep: SweepRecord) -> SweepRecord:
        """Post the outbox and update both messages. Return the saved record."""
        return await self.update_parent(await self._update_health(await self.post_outbox(sweep)))

    async def post_outbox(self, sweep: SweepRecord) -> SweepRecord:
        """Post the events in order. One that Slack rejects is only logged: the sweep must continue."""
        sweep = replace(sweep, outbox=merged(sweep.outbox))
        while sweep.outbox:
            event, ts = sweep.outbox[0], ""
            try:
                ts = await self._post(sweep, event)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("can't post %s of %s: %s", event.kind, sweep.id, error)
            except RetryAfterError as later:
                self._wait(later)
                return sweep
            sweep = replace(sweep, outbox=sweep.outbox[1:])
            if event.kind is EventKind.HEALTH and sweep.health and not event.text:
                sweep = replace(sweep, health_ts=ts, health_shown=health(sweep, sweep.health).fingerprint)
            sweep = await self._save(sweep)
        return sweep

    async def _post(self, sweep: SweepRecord, event: Event) -> str:
        """Post one event. Return the ts of the health message in the thread, else ""."""
        if event.kind in FROM_RESULTS:
            await (post_table if event.kind is EventKind.RESULTS else post_files)(sweep, self._clients)
            return ""
        slack, channel, text = self._clients.slack, sweep.requester.channel, event_text(sweep, event)
        if event.to_user:
            here = (channel, sweep.thread or "") if event.in_thread else ("", "")
            await slack.post_ephemeral(event.to_user, text, event.response_url, *here)
        elif sweep.thread and event.pod and (log := await self._whole_log(sweep, event)):
            await slack.upload(channel, sweep.thread, text, f"{event.pod}.log", log)
        elif sweep.thread:
            message: Message | str = text
            if event.kind is EventKind.HEALTH and sweep.health and not event.text:
                message = health(sweep, sweep.health)
            elif event.kind is EventKind.HELD:
                message = Message(text=text, blocks=(section(text), actions(*hold_buttons(sweep))))
            return await slack.reply(channel, sweep.thread, message, broadcast=is_loud(sweep, event))
        return ""

    async def _whole_log(self, sweep: SweepRecord, event: Event) -> str:
        builds = sweep.plan.builds if sweep.plan else ()
        namespace = builds[0].ref.namespace if builds else sweep.namespace
        container = event.container or kaniko.BUILD_CONTAINER
        return await self._clients.home.tail(namespace, event.pod, container, WHOLE_LOG)

    async def _update_health(self, sweep: SweepRecord) -> SweepRecord:
        """Edit the message about the first trials. Its event posts it; after a crash in between, again."""
        message = health(sweep, sweep.health) if sweep.health and sweep.health_ts else None
        if not message or not sweep.health_ts or message.fingerprint == sweep.health_shown:
            return sweep
        try:
            await self._clients.slack.update(sweep.requester.channel, sweep.health_ts, message)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't update the health of %s: %s", sweep.id, error)
        except SlackBusyError as busy:
            self._wait(busy)
            return sweep
        return await self._save(replace(sweep, health_shown=message.fingerprint))

    async def update_parent(self, sweep: SweepRecord) -> SweepRecord:
        """Edit the parent message if it has changed, within Slack's rate limit."""
        if sweep.thread is None or sweep.phase is Phase.REFUSED:
            return sweep
        message = parent(sweep, self._links(sweep))
        if message.fingerprint == sweep.shown:
            return sweep
        now = self._clients.now()
        if sweep.shown and sweep.shown_at:
            pause = sweep.shown_at + await self._interval(sweep) - now
            if pause > timedelta(0):
                await self._clients.wake(sweep.id, after=pause)
                return sweep
        try:
            await self._clients.slack.update(sweep.requester.channel, sweep.thread, message)
        except (NotInChannelError, MessageRejectedError) as error:  # the sweep must continue
            log.warning("can't update the message of %s: %s", sweep.id, error)
        except SlackBusyError as busy:
            self._wait(busy)
            return sweep
        return await self._save(
            replace(sweep, shown=message.fingerprint, shown_at=now, shown_phase=sweep.phase)
        )

    async def _interval(self, sweep: SweepRecord) -> timedelta:
        """Return the time from one edit of the parent message to the next."""
        if sweep.shown_phase is sweep.phase:
            return max(UPDATE_INTERVAL, UPDATE_SHARE * await self._clients.store.active_count())
        return STEP_INTERVAL if sweep.phase in STEPS else timedelta(0)

    async def remove_stray_buttons(self, sweep: SweepRecord, commands: Iterable[Command]) -> None:
        """Remove the buttons of a clicked parent message that isn't this sweep's.

        Slack can post a message and still return an error; its ts is then unknown until someone clicks.
        """
        channel, thread = sweep.requester.channel, sweep.thread
        for clicked in {command.clicked for command in commands}:
            place, _, ts = clicked.partition(" ")
            if not thread or place != channel or ts == thread:
                continue
            try:
                url = await self._clients.slack.permalink(channel, thread)
                await self._clients.slack.update(channel, ts, duplicate(sweep, url))
            except (NotInChannelError, MessageRejectedError, SlackBusyError) as error:
                log.warning("can't remove the buttons of a duplicate of %s: %s", sweep.id, error)

    def _links(self, sweep: SweepRecord) -> Links:
        base = self._clients.settings.katib_ui_url
        katib = ui_link(base, sweep.plan.experiment_ref) if base and sweep.plan else ""
        return Links(katib=katib, mlflow=sweep.results_url or "")

    def _wait(self, later: RetryAfterError) -> None:
        pause = timedelta(seconds=later.seconds)
        self.pause = min(self.pause, pause) if self.pause else pause
