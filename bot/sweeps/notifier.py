"""What a turn says: the events not yet said, the message about the first trials, the parent.

Each is struck off, or noted as shown, only after Slack has it. When Slack takes no more for now the rest
waits for a turn of its own, `pause` later, and what can be shown is shown all the same.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.commands import Command
from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.slack.message import Message
from bot.sweeps.coalesce import merged
from bot.sweeps.first_trial_message import health
from bot.sweeps.parent_message import Links, duplicate, parent
from bot.sweeps.recipients import is_loud
from bot.sweeps.thread_messages import event_text
from k8s import kaniko
from k8s.katib.status import ui_link
from k8s.logs import WHOLE_LOG

log = logging.getLogger(__name__)

REDRAW_EVERY = timedelta(seconds=2)  # at most; a change of phase is shown at once
# Slack takes some 50 edits a minute from an app, all sweeps together.
REDRAW_SHARE = timedelta(seconds=1.2)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]


class Notifier:
    def __init__(self, clients: Clients, save: Save) -> None:
        self._outside, self._save = clients, save
        self.pause: timedelta | None = None  # until Slack takes the rest; None: all is said

    async def all(self, sweep: SweepRecord) -> SweepRecord:
        return await self.redraw(await self._show_health(await self.speak(sweep)))

    async def speak(self, sweep: SweepRecord) -> SweepRecord:
        sweep = replace(sweep, outbox=merged(sweep.outbox))
        while sweep.outbox:
            said, posted = sweep.outbox[0], ""
            try:
                posted = await self._say(sweep, said)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("a message of %s can't be delivered (%s): %s", sweep.id, error, said.kind)
            except SlackBusyError as busy:
                self._wait(busy)
                return sweep
            sweep = replace(sweep, outbox=sweep.outbox[1:])
            if said.kind is EventKind.HEALTH and sweep.health:
                sweep = replace(sweep, health_ts=posted, health_shown=health(sweep, sweep.health).fingerprint)
            sweep = await self._save(sweep)
        return sweep

    async def _say(self, sweep: SweepRecord, happened: Event) -> str:
        """The ts of what was posted in the thread."""
        slack, channel, text = self._outside.slack, sweep.requester.channel, event_text(sweep, happened)
        if happened.to_user:
            here = (channel, sweep.thread or "") if happened.in_thread else ("", "")
            await slack.post_ephemeral(happened.to_user, text, happened.response_url, *here)
        elif sweep.thread and happened.pod and (log := await self._whole_log(sweep, happened)):
            await slack.share(channel, sweep.thread, text, f"{happened.pod}.log", log)
        elif sweep.thread:
            message: Message | str = text
            if happened.kind is EventKind.HEALTH and sweep.health:
                message = health(sweep, sweep.health)
            return await slack.say(channel, sweep.thread, message, broadcast=is_loud(sweep, happened))
        return ""

    async def _whole_log(self, sweep: SweepRecord, happened: Event) -> str:
        builds = sweep.plan.builds if sweep.plan else ()
        namespace = builds[0].ref.namespace if builds else sweep.namespace
        container = happened.container or kaniko.CONTAINER
        return await self._outside.tail(namespace, happened.pod, container, WHOLE_LOG)

    async def _show_health(self, sweep: SweepRecord) -> SweepRecord:
        """Posted as an event, then edited; a death in between posts it again, and then that one is edited."""
        message = health(sweep, sweep.health) if sweep.health and sweep.health_ts else None
        if not message or not sweep.health_ts or message.fingerprint == sweep.health_shown:
            return sweep
        try:
            await self._outside.slack.redraw(sweep.requester.channel, sweep.health_ts, message)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("the health of %s can't be shown: %s", sweep.id, error)
        except SlackBusyError as busy:
            self._wait(busy)
            return sweep
        return await self._save(replace(sweep, health_shown=message.fingerprint))

    async def redraw(self, sweep: SweepRecord) -> SweepRecord:
        if sweep.thread is None or sweep.phase is Phase.REFUSED:
            return sweep
        message = parent(sweep, self._links(sweep))
        if message.fingerprint == sweep.shown:
            return sweep
        now = self._outside.now()
        if sweep.shown and sweep.shown_at and sweep.shown_phase is sweep.phase:
            pause = max(REDRAW_EVERY, REDRAW_SHARE * len(await self._outside.store.active()))
            if now - sweep.shown_at < pause:
                await self._outside.wake(sweep.id, after=pause)
                return sweep
        try:
            await self._outside.slack.redraw(sweep.requester.channel, sweep.thread, message)
        except (NotInChannelError, MessageRejectedError) as error:  # the sweep itself goes on
            log.warning("the message of %s can't be drawn: %s", sweep.id, error)
        except SlackBusyError as busy:
            self._wait(busy)
            return sweep
        return await self._save(
            replace(sweep, shown=message.fingerprint, shown_at=now, shown_phase=sweep.phase)
        )

    async def disarm(self, sweep: SweepRecord, commands: Iterable[Command]) -> None:
        """Take the buttons off a parent that was clicked and isn't this sweep's.

        Slack may post a message and still answer with an error; then its ts is unknown until someone clicks.
        """
        channel, thread = sweep.requester.channel, sweep.thread
        for clicked in {command.clicked for command in commands}:
            place, _, ts = clicked.partition(" ")
            if not thread or place != channel or ts == thread:
                continue
            try:
                url = await self._outside.slack.permalink(channel, thread)
                await self._outside.slack.redraw(channel, ts, duplicate(sweep, url))
            except (NotInChannelError, MessageRejectedError, SlackBusyError) as error:
                log.warning("a duplicate of %s keeps its buttons: %s", sweep.id, error)

    def _links(self, sweep: SweepRecord) -> Links:
        base = self._outside.settings.katib_ui_url
        katib = ui_link(base, sweep.plan.experiment_ref) if base and sweep.plan else ""
        return Links(katib=katib, mlflow=sweep.results_url or "")

    def _wait(self, busy: SlackBusyError) -> None:
        pause = timedelta(seconds=busy.seconds)
        self.pause = min(self.pause, pause) if self.pause else pause
