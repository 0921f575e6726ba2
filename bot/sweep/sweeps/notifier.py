"""Open a sweep's thread, post its outbox there or directly to people, and edit its messages, with pauses in
between; refuse a sweep whose channel Sweepbot can't post in.

Each is removed from the outbox, or recorded as shown, only after Slack has accepted it. If Slack's rate limit
is reached, the rest waits for a reconcile `pause` later.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from random import uniform

from bot.core.commands import Command
from bot.core.errors import RetryAfterError
from bot.core.events import Event, merged, posted_text
from bot.core.ids import candidates
from bot.core.record import RENAMED, Phase, Shown, SweepRecord
from bot.core.request import Notify, is_team
from bot.platform.config.policy import muting
from bot.platform.slack.blocks import section
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import MENTION, code, unmentioned
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.advance import advance
from bot.sweep.decisions.parent_message import Links, duplicate, parent
from bot.sweep.feature_table import FEATURES
from bot.sweep.lifecycle.building import refuse
from bot.sweep.lifecycle.texts import RESULT_FILES, RESULTS, direct_end
from bot.sweep.model.feature import LiveMessage
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import linked
from bot.sweep.reports.post_results import post_end, post_files
from bot.sweep.sweeps.both import both
from bot.sweep.sweeps.durable_record import DurableRecord, Save
from k8s import kaniko
from k8s.api.logs import WHOLE_LOG
from k8s.katib.manifest import ui_link

log = logging.getLogger(__name__)

UPDATE_INTERVAL = timedelta(seconds=5)  # on average at least, in one phase
STEP_INTERVAL = timedelta(seconds=1)  # until one of these phases is shown; all others are shown at once
STEPS = {Phase.OPENING, Phase.BUILDING, Phase.PENDING}
# Slack accepts about 50 edits a minute from an app. While these are scarce, each sweep has its share of them.
UPDATE_SHARE = timedelta(seconds=1.2)

MOVED = "moved"  # in `sent_keys`: the parent message was posted again
NOT_POSTED = (
    "Sweepbot can't post in that channel (Slack error `{}`). *Fix:* Run `/invite @sweepbot` there (the app's "
    "name can differ), or start the sweep in another channel."
)
# How long to wait before editing the message in a channel again that doesn't admit the bot.
LOST = RetryAfterError("not in the channel", 3600.0)
DIRECT = {"direct_end", "first_failed"}  # kinds of events that notify one person, without a question
CALLS = {"approval"}  # kinds of events that wait for those whom they mention
ENDS = {RESULTS, *(str(phase) for phase in Phase if phase.final)}  # kinds of events
POSTERS = {RESULTS: post_end, RESULT_FILES.kind: post_files} | {  # by kind of event
    kind: poster for feature in FEATURES for kind, poster in feature.posters.items()
}
LIVE_MESSAGES: dict[str, LiveMessage] = {
    kind: message for feature in FEATURES for kind, message in feature.live_message.items()
}


class Notifier:
    def __init__(self, clients: SweepClients, save: Save) -> None:
        self._clients, self._save = clients, save
        self.pause: timedelta | None = None  # until Slack accepts the rest; None: all is posted
        self.redraw: timedelta | None = None  # until the parent message can be edited; None: it is current

    async def publish(self, sweep: SweepRecord) -> SweepRecord:
        """Post the outbox and update both messages. Return the saved record."""
        if sweep.thread and not sweep.permalink:  # a worker died between both calls, or the second failed
            link = await self._clients.slack.permalink(sweep.requester.channel, sweep.thread)
            sweep = await self._save(replace(sweep, permalink=link)) if link else sweep
        return await self.update_parent(await self._update_live(await self.post_outbox(sweep)))

    async def post_outbox(self, sweep: SweepRecord) -> SweepRecord:
        """Post the events in order. One that Slack rejects is dropped: the sweep must continue.

        Others don't wait for files that wait for MLflow, or for their picture.
        """
        if not sweep.outbox:
            return sweep
        sweep = replace(sweep, outbox=merged(sweep.outbox))
        waiting = 0
        while event := next(iter(sweep.outbox[waiting:]), None):
            ts, live = "", _live(sweep, event)
            try:
                ts = await self._post(sweep, event)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("can't post %s of %s: %s", event.kind, sweep.id, error)
                await self._tell_directly(sweep, event, str(error))
            except SlackBusyError as busy:
                self._wait(busy)
                return sweep
            except RetryAfterError as later:
                self._wait(later)
                waiting += 1
                continue
            sweep = replace(sweep, outbox=(*sweep.outbox[:waiting], *sweep.outbox[waiting + 1 :]))
            if live and (message := live.build(sweep)):
                sweep = live.shown(sweep, ts, message.fingerprint)
            sweep = await self._save(sweep)
        return sweep

    async def _post(self, sweep: SweepRecord, event: Event) -> str:
        """Post one event. Return the ts of its message in the thread; "" if it isn't there.

        Who has muted the sweep isn't mentioned, and gets no direct message, except to approve it.
        """
        live, muted = _live(sweep, event), muting(sweep.id, self._clients.config)
        muted = {} if event.kind in CALLS else muted
        if event.kind in DIRECT and event.to_user in muted:
            return ""
        text, shown = unmentioned(event.text, muted), unmentioned(event.shown, muted)
        event = replace(event, text=text, shown=shown)
        if poster := POSTERS.get(event.kind):
            await poster(sweep, event, self._clients)
            return ""
        slack, channel, text = self._clients.slack, sweep.requester.channel, posted_text(event)
        if event.to_user and not is_team(event.to_user):
            here = (channel, sweep.thread or "") if event.in_thread else ("", "")
            text = linked(text, [sweep])
            if event.kind in DIRECT and not event.response_url:
                await slack.notify(event.to_user, text)
            else:
                await slack.post_ephemeral(event.to_user, text, event.response_url, *here)
        elif sweep.thread and event.pod and (log := await self._whole_log(sweep, event)):
            file = File(name=f"{event.pod}.log", content=log)
            await slack.upload_files(channel, sweep.thread, text, [file])
        elif sweep.thread:
            above = Message(text=text, blocks=(section(event.shown),)) if event.shown else text
            message = (live and live.build(sweep)) or above
            message = message if isinstance(message, str) else message.without_mentions(muted)
            is_loud = event.loud or bool(live and live.is_loud(sweep))
            return await slack.reply(channel, sweep.thread, message, broadcast=is_loud)
        return ""

    async def _tell_directly(self, sweep: SweepRecord, event: Event, why: str) -> None:
        """Send the owner the first failure and the end, and a request to those whom it mentions.

        Such as when the channel is archived.
        """
        owner, is_failure = sweep.requester.user, event.kind == "health" and bool(sweep.cause)
        users = MENTION.findall(event.text) or [owner] if event.kind in CALLS else []
        if (event.kind in ENDS or is_failure) and not (event.to_user or sweep.request.notify is Notify.DM):
            users = [owner] if owner not in muting(sweep.id, self._clients.config) else []
        note = f"Sweepbot can't post in that thread (Slack error {code(why)})."
        note += f" To approve it, run `/sweep approve {sweep.id}`." if event.kind in CALLS else ""
        for user in dict.fromkeys(each for each in users if not is_team(each)):
            try:
                await self._clients.slack.notify(user, f"{direct_end(sweep, event, user).text}\n{note}")
            except (NotInChannelError, MessageRejectedError) as error:  # such as of a deactivated user
                log.warning("can't notify %s about %s: %s", user, sweep.id, error)

    async def _whole_log(self, sweep: SweepRecord, event: Event) -> str:
        builds = sweep.plan.builds if sweep.plan else ()
        namespace = builds[0].ref.namespace if builds else sweep.namespace
        container = event.container or kaniko.BUILD_CONTAINER
        return await self._clients.home.tail(namespace, event.pod, container, WHOLE_LOG)

    async def _update_live(self, sweep: SweepRecord) -> SweepRecord:
        """Edit the live messages in the thread. Their events post them; after a crash in between, again."""
        for kind, live in LIVE_MESSAGES.items():
            message, ts = live.build(sweep), live.ts(sweep)
            if not message or not ts or message.fingerprint == live.fingerprint(sweep):
                continue
            try:
                await self._clients.slack.update(sweep.requester.channel, ts, message)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("can't update the %s of %s: %s", kind, sweep.id, error)
            except SlackBusyError as busy:
                self._wait(busy)
                continue
            sweep = await self._save(live.shown(sweep, ts, message.fingerprint))
        return sweep

    async def update_parent(self, sweep: SweepRecord) -> SweepRecord:
        """Edit the parent message if it has changed, within Slack's rate limit: else after `redraw`."""
        self.redraw = None
        if sweep.thread is None or sweep.phase is Phase.REFUSED:
            return sweep
        base = self._clients.settings.katib_ui_url
        katib = ui_link(base, sweep.plan.experiment_ref) if base and sweep.plan else ""
        message = parent(sweep, Links(katib=katib, mlflow=sweep.results_url or ""))
        if message.fingerprint == sweep.shown.fingerprint:
            return sweep
        at = now = self._clients.now()
        if sweep.shown.fingerprint and sweep.shown.at:
            interval, look = await self._interval(sweep)
            if (pause := sweep.shown.at + interval - now) > timedelta(0):
                self.redraw = min(pause, look)
                return sweep
            if interval == UPDATE_INTERVAL:  # after a pause of two, the next edit needn't wait
                at = max(sweep.shown.at + interval, now - interval)
        try:
            if await self._clients.slack.update(sweep.requester.channel, sweep.thread, message):
                sweep = await self._moved(sweep, message)
        except NotInChannelError:  # until the channel is back; an ended sweep has no other reason to run
            self._wait(LOST)
            return sweep
        except MessageRejectedError as error:  # the sweep must continue
            log.warning("can't update the message of %s: %s", sweep.id, error)
        except SlackBusyError as busy:
            self._wait(busy)
            return sweep
        shown = Shown(fingerprint=message.fingerprint, at=at, phase=sweep.phase)
        return await self._save(replace(sweep, shown=shown))

    async def _moved(self, sweep: SweepRecord, message: Message) -> SweepRecord:
        """Post the parent message again, once, if it was deleted before it showed the end.

        Slack posts replies to a deleted message into the channel.
        """
        if MOVED in sweep.sent_keys or (sweep.shown.phase and sweep.shown.phase.final):
            return sweep
        channel = sweep.requester.channel
        ts = await self._clients.slack.open_thread(channel, message)
        sent = (*sweep.sent_keys, MOVED)
        # As in `open_thread`, the older phase makes this reconcile write the ConfigMap.
        moved = replace(sweep, thread=ts, permalink="", sent_keys=sent, durable_phase=Phase.RECEIVED)
        sweep, link = await both(self._save(moved), self._clients.slack.permalink(channel, ts))
        return replace(sweep, permalink=link)

    async def _interval(self, sweep: SweepRecord) -> tuple[timedelta, timedelta]:
        """Return the time from one edit of the parent message to the next, and when to ask for it again."""
        if sweep.shown.phase is not sweep.phase:
            return STEP_INTERVAL if sweep.phase in STEPS else timedelta(0), timedelta.max
        share = UPDATE_SHARE * await self._clients.store.active_count()
        if share > UPDATE_INTERVAL and (wait := await self._clients.slack.until_room_for_edits()):
            # At random, as sweeps that start together would always look together.
            look = share * uniform(0.25, 0.5)  # noqa: S311
            return share, max(timedelta(seconds=wait), look)
        return UPDATE_INTERVAL, timedelta.max

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

    def _wait(self, later: RetryAfterError) -> None:
        pause = timedelta(seconds=later.seconds)
        self.pause = min(self.pause, pause) if self.pause else pause


def _live(sweep: SweepRecord, event: Event) -> LiveMessage | None:
    """Return the live message that an event posts: its last one, as earlier ones are of earlier attempts."""
    last = next(each for each in reversed(sweep.outbox) if each.kind == event.kind)
    return LIVE_MESSAGES.get(event.kind) if last is event else None


async def open_thread(
    sweep: SweepRecord, clients: SweepClients, record: DurableRecord, save: Save
) -> SweepRecord:
    """Write the plan to the ConfigMap, then open the thread; the cluster is changed only after both."""
    sweep = await record.keep(sweep)
    if sweep.phase is not Phase.OPENING:
        return sweep
    message = parent(sweep, Links())
    try:
        ts = await clients.slack.open_thread(sweep.requester.channel, message)
    except (NotInChannelError, MessageRejectedError) as error:
        return await save(refuse(sweep, NOT_POSTED.format(error), clients.now()))
    # The older phase makes this reconcile write the ConfigMap again at its end: a restored record without its
    # thread would open a second one.
    shown = Shown(fingerprint=message.fingerprint, at=clients.now(), phase=sweep.phase)
    opened = save(replace(sweep, shown=shown, thread=ts, durable_phase=Phase.RECEIVED))
    sweep, link = await both(opened, clients.slack.permalink(sweep.requester.channel, ts))
    sweep = replace(sweep, permalink=link)
    # The next phase at once: one write of the ConfigMap has the thread and the phase.
    return await save(advance(sweep, Observation(), clients.config, clients.now()))


async def rename(sweep: SweepRecord, clients: SweepClients, save: Save) -> SweepRecord:
    """Start the same request under another name: a sweep that Redis lost has this one."""
    head = sweep.request.name or sweep.request.space
    now = clients.now()
    request_id = f"{sweep.request_id}/{sweep.id}"
    other = replace(sweep, phase=Phase.RECEIVED, plan=None, outbox=(), version=0)
    other, _ = await clients.store.create(other, candidates(head, request_id), request_id)
    await clients.wake(other.id)
    return await save(sweep.to(Phase.REFUSED, now, reason=f"{RENAMED}{other.id}"))
