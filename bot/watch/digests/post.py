"""Post digests, with chart, details, and the week's page, compared with the days before; correct one when
late metrics arrive; tell the admin channel why one can't be posted.

Each is the job of one queue item, with the key `CHANNEL DAY`. The progress of each channel's last digest is
in the ConfigMap `sweepbot-digests`, which survives the loss of Redis and is written with optimistic locking.
Each attempt to post is saved first, so a worker that crashes then leaves at most one duplicate. Attempts that
failed for certain don't count; the queue retries them.

Until the channel's next digest, a posted one is corrected by an edit when late metrics arrive.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from aiohttp import ClientConnectorError
from pydantic import TypeAdapter
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.finding import with_fix
from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HOUR, NoGpuDataError, Source
from bot.measure.gpus.overrequest import with_past_peaks
from bot.measure.sources.collector import BACKFILL
from bot.measure.sources.remote_usage import nodes_of, snapshots_elsewhere
from bot.platform.clients import Clients
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.teams import team_of
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import code, place
from bot.platform.storage.configmaps import ConfigMapStore
from bot.sweep.results.store import ResultsStore
from bot.sweep.results.week import week_page, week_sweep
from bot.watch.digests import chart
from bot.watch.digests.clusters import AllHours, Measured
from bot.watch.digests.details import MAX_PEOPLE, details, table
from bot.watch.digests.figures import Figures, figures
from bot.watch.digests.latest import LatestDigest, save_latest
from bot.watch.digests.message import MAX_MISSED, DigestContext, Waiting, headline, message
from k8s.retry import Retry

log = logging.getLogger(__name__)

CONFIGMAP_NAME = "sweepbot-digests"
INVITE = "Unarchive the channel, or run `/invite @sweepbot` there."
AWAY = {"channel_not_found", "is_archived", "not_in_channel"}  # with these errors, INVITE helps
SUNDAY = 6  # as date.weekday() counts
WEEK = timedelta(days=7)  # before the day, to compare with
MAX_POSTS = 2  # of one digest, if it is unknown whether the first one arrived
CHART_RETRY = Retry(base=4.0, attempts=5)  # Slack may still be processing the file
LAST_HOUR_DELAY = timedelta(minutes=10)  # until a day's last hour is in Redis
CORRECTION_INTERVAL = timedelta(minutes=10)  # between checks for late hours
CORRECTION_PERIOD = BACKFILL  # after that, no hour is measured again

ReadSchedules = Callable[[], Awaitable[tuple[DigestSchedule, ...]]]
ReservedLine = Callable[[], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class State:
    """Progress of a channel's last digest."""

    day: date
    tries: int = 0  # posts that reached Slack, or might have
    ts: str = ""
    chart: str = ""  # Slack file id, once it is in the thread; "none" if Slack refused it
    details: bool = False  # the details are in the thread
    chart_attempts: int = 0  # attempts to show the chart in the message
    week: bool = False  # the week's page is in the thread, and shown in the channel
    done: bool = False
    missed: tuple[date, ...] = ()
    measured: Measured | None = None  # what the message shows; None: posted by an older version
    corrected: datetime | None = None  # when late hours last changed it


@dataclass(frozen=True)
class _Saved:
    channel: str
    state: State
    version: str  # resourceVersion of the ConfigMap; "" if it doesn't exist


_STATE: TypeAdapter[State] = TypeAdapter(State)


def item(channel: str, day: date) -> WorkItem:
    return WorkItem(ItemKind.DIGEST, f"{channel} {day}")


def schedule_for(known: tuple[DigestSchedule, ...], channel: str) -> DigestSchedule:
    """Return the channel's schedule; a channel without one gets digests in the first schedule's time zone."""
    mine = (each for each in known if each.channel == channel)
    return next(mine, DigestSchedule(channel=channel, timezone=known[0].timezone if known else "UTC"))


@dataclass
class Digests:
    clients: Clients
    redis: Redis
    source: Source
    read_schedules: ReadSchedules
    reserved_line: ReservedLine  # one line about all reservations; "" if there are none
    names: dict[str, str] = field(default_factory=dict)  # Slack user id -> display name

    async def run(self, key: str) -> timedelta | None:
        """Advance one digest. Return when to continue; None if done. Raises errors that a retry can fix."""
        channel, text = key.split(" ")
        day = date.fromisoformat(text)
        state, version = await self._load(channel)
        if state and state.day > day:
            return None
        known = await self.read_schedules()
        schedule = schedule_for(known, channel)
        begin, end = schedule.window(day)
        if delay := await self._last_hour_delay(end):
            return delay
        measured = await self._hours.measured(begin, end)
        if state is None or state.day < day:
            daily = any(each.channel == channel for each in known)  # else it was only requested by /gpus
            state = State(day=day, missed=_missed(state, day) if daily else ())
        saved = _Saved(channel, state, version)
        if not state.done:
            saved, retry = await self._post(schedule, saved, measured)
        elif state.measured and measured.more_than(state.measured):
            saved, retry = await self._correct(schedule, saved, measured)
        else:
            retry = None
        can_change = saved.state.done and saved.state.measured and not measured.final
        is_open = can_change and self.clients.now() < end + CORRECTION_PERIOD
        return retry or (CORRECTION_INTERVAL if is_open else None)

    @property
    def _states(self) -> ConfigMapStore[State]:
        return ConfigMapStore(
            self.clients.cluster, self.clients.settings.k8s_namespace, CONFIGMAP_NAME, _STATE
        )

    @property
    def _hours(self) -> AllHours:
        return AllHours(HourlyStore(self.redis), self.clients.config)

    async def _last_hour_delay(self, end: datetime) -> timedelta | None:
        """Return how long to wait for the day's last hour; None if it is there or overdue."""
        left = end + LAST_HOUR_DELAY - self.clients.now()
        return left if left > timedelta(0) and await self._hours.missing(end - HOUR, end) else None

    async def _post(
        self, schedule: DigestSchedule, saved: _Saved, measured: Measured
    ) -> tuple[_Saved, timedelta | None]:
        """Post a digest, or go on with one. Return when to try again to show its chart, also below."""
        found = await self._figures(schedule, saved.state.day)
        now = await self._context(found, saved.state)
        if not saved.state.ts:
            if saved.state.tries >= MAX_POSTS:
                log.warning("digest possibly not posted: %s in %s", saved.state.day, schedule.channel)
                return saved, None
            saved = await self._open(found, now, saved, measured)
        if not saved.state.ts:
            return saved, None  # refused by Slack; `/gpus digest` can request it again
        saved = await self._show_week(schedule, saved)
        return await self._share_and_show(found, now, saved)

    async def _correct(
        self, schedule: DigestSchedule, saved: _Saved, measured: Measured
    ) -> tuple[_Saved, timedelta | None]:
        """Edit a digest after late hours. Its thread gets the new chart and details."""
        found, channel = await self._figures(schedule, saved.state.day), saved.channel
        changes: dict[str, Any] = {"measured": measured, "corrected": self.clients.now()}
        now = await self._context(found, replace(saved.state, **changes))
        try:
            await self.clients.slack.update(channel, saved.state.ts, message(found, now))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't correct the digest in %s: %s", channel, error)
            return await self._save(saved, measured=measured), None
        await self._save_latest(saved, found, now)
        changes |= {"done": False, "chart": "", "details": False, "chart_attempts": 0}
        return await self._share_and_show(found, now, await self._save(saved, **changes))

    async def _share_and_show(
        self, found: Figures, now: DigestContext, saved: _Saved
    ) -> tuple[_Saved, timedelta | None]:
        if found.quiet or not found.coverage:
            return await self._save(saved, done=True), None
        return await self._show(found, now, await self._share(found, now, saved))

    async def _open(self, found: Figures, now: DigestContext, saved: _Saved, measured: Measured) -> _Saved:
        channel, before = saved.channel, saved
        saved = await self._save(saved, tries=saved.state.tries + 1)
        try:
            ts = await self.clients.slack.open_thread(channel, message(found, now))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the digest in %s: %s", channel, error)
            await self._tell_admins(channel, error)
            return await self._save(saved, tries=before.state.tries)
        except (SlackBusyError, SlackApiError, ClientConnectorError):
            # Slack refused it or was never reached: nothing was posted.
            await self._save(saved, tries=before.state.tries)
            raise
        saved = await self._save(saved, ts=ts, measured=measured)
        await self._save_latest(saved, found, now)
        return saved

    async def _save_latest(self, saved: _Saved, found: Figures, now: DigestContext) -> None:
        link = await self.clients.slack.permalink(saved.channel, saved.state.ts)
        words = headline(found, replace(now, nodes=None))  # it is shown later: no GPUs that are free now
        latest = LatestDigest(day=found.day, headline=words, link=link)
        await save_latest(self.redis, saved.channel, latest)

    async def _tell_admins(self, channel: str, error: Exception) -> None:
        admins = self.clients.config.admin_channel
        text = f":warning: The GPU digest can't be posted in {place(channel)} ({code(str(error))})."
        text = with_fix(text, INVITE if str(error) in AWAY else "")
        if admins and admins != channel:
            with contextlib.suppress(NotInChannelError, MessageRejectedError):
                await self.clients.slack.post(admins, Message(text=text))

    async def _show_week(self, schedule: DigestSchedule, saved: _Saved) -> _Saved:
        """Post the week's page with Sunday's digest, if the channel wants it."""
        day = saved.state.day
        if not schedule.weekly or day.weekday() != SUNDAY or saved.state.week:
            return saved
        page = await self._week_page(schedule, day)
        try:
            await self.clients.slack.reply(schedule.channel, saved.state.ts, page, broadcast=True)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the week's page in %s: %s", schedule.channel, error)
        return await self._save(saved, week=True)

    async def _week_page(self, schedule: DigestSchedule, sunday: date) -> Message:
        monday, teams = sunday - timedelta(days=6), self.clients.config.teams
        begin, end = schedule.window(monday)[0], schedule.window(sunday)[1]
        stored = ResultsStore(self.clients.cluster, self.clients.settings.k8s_namespace)
        sweeps = [
            week_sweep(each)
            async for each in stored.all()
            if not schedule.team or team_of(teams, "", each.owner) == schedule.team
        ]
        return week_page(monday, begin, end, sweeps, self.clients.config.currency)

    async def _share(self, found: Figures, now: DigestContext, saved: _Saved) -> _Saved:
        """Put the chart and the details into the thread; files shared there are visible to the channel."""
        upload, day, thread = self.clients.slack.upload_files, found.day, (saved.channel, saved.state.ts)
        try:
            if not saved.state.chart:
                alt, picture = chart.alt_text(found), await chart.png(found)
                file = File(name=f"gpus-{day}.png", content=picture, alt=alt)
                [shared, *_] = [*await upload(*thread, alt, [file]), "none"]
                saved = await self._save(saved, chart=shared)
            if not saved.state.details:
                csv = await asyncio.to_thread(table, found, now)
                clusters = await self._hours.lines(found, self.clients.config)
                file = File(name=f"gpus-{day}.csv", content=csv)
                await upload(*thread, details(found, now) + clusters, [file])
                saved = await self._save(saved, details=True)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't share a digest's details: %s", error)
            saved = await self._save(saved, chart=saved.state.chart or "none", details=True)
        return saved

    async def _show(
        self, found: Figures, now: DigestContext, saved: _Saved
    ) -> tuple[_Saved, timedelta | None]:
        """Show the chart in the message itself, as soon as Slack has processed the file."""
        if saved.state.chart != "none":
            try:
                picture = message(found, now, saved.state.chart)
                await self.clients.slack.update(saved.channel, saved.state.ts, picture)
            except (NotInChannelError, MessageRejectedError) as error:
                if not CHART_RETRY.exhausted(saved.state.chart_attempts):
                    attempts = saved.state.chart_attempts + 1
                    return await self._save(saved, chart_attempts=attempts), CHART_RETRY.delay()
                log.warning("can't show the chart in the message, only in its thread: %s", error)
        return await self._save(saved, done=True), None

    async def _figures(self, schedule: DigestSchedule, day: date) -> Figures:
        begin, end = schedule.window(day)
        hours, week = await asyncio.gather(
            self._hours.between(begin, end), self._hours.totals(begin - WEEK, begin)
        )
        config = self.clients.config
        where = config.environments.namespace if config.environments else "", config.elastic
        low = config.warnings.low_percent / 100
        found = await asyncio.to_thread(figures, schedule, day, hours, week, config.prices, *where, low)
        groups = [one.group for one in found.overrequests if one.ram]
        peaks = await self._hours.ram_peaks(begin - WEEK, begin, groups)
        found = replace(found, overrequests=with_past_peaks(found.overrequests, peaks))
        return await self._hours.with_clusters(found, config)

    async def _context(self, found: Figures, state: State) -> DigestContext:
        elsewhere = await snapshots_elsewhere(self.clients.config, self.redis, self.clients.now)
        nodes = None
        with contextlib.suppress(NoGpuDataError):
            nodes = (*await self.source.nodes(), *nodes_of(elsewhere))
        active = [await self._sweep(each) for each in await self.clients.store.active()]
        submitted = [one for one in active if one and one.submitted]
        waiting = [one for one in submitted if one.phase is Phase.PENDING or one.progress.waiting > 0]
        idle = [await self._sweep(one.sweep) for one in found.most_idle if one.sweep]
        shown = [one for one in (*idle, *waiting) if one]
        people = {one.owner for one in found.most_idle} | {one.owner for one in found.overrequests}
        people |= {row.name for row in found.people[:MAX_PEOPLE]}
        return DigestContext(
            currency=self.clients.config.currency,
            has_prices=bool(self.clients.config.prices),
            names={one.requester.user: one.requester.user_name for one in shown}
            | await self._display_names(people),
            links={one.id: one.permalink for one in shown if one.permalink},
            nodes=nodes,
            waiting=tuple(self._waiting(one) for one in waiting),
            missed=state.missed,
            corrected=state.corrected,
            reserved=await self.reserved_line(),
            unmeasured=tuple(name for name, each in elsewhere.items() if each is None),
        )

    async def _sweep(self, sweep_id: str) -> SweepRecord | None:
        with contextlib.suppress(ValueError):  # written by a newer Sweepbot
            return await self.clients.store.get(sweep_id)
        return None

    async def _display_names(self, people: set[str]) -> dict[str, str]:
        """Cached: each attempt to show the chart needs them again, and Slack allows 100 calls a minute."""
        self.names |= await self.clients.slack.display_names(people - self.names.keys() - {""})
        return self.names

    def _waiting(self, sweep: SweepRecord) -> Waiting:
        hours = (self.clients.now() - sweep.since) / HOUR
        return Waiting(sweep=sweep.id, trials=max(1, sweep.progress.waiting), hours=hours)

    async def _load(self, channel: str) -> tuple[State | None, str]:
        """Raises ValueError if this channel's state is damaged; other channels get their digests."""
        found = await self._states.read()
        if error := found.damaged.get(channel):
            raise error
        return found.values.get(channel), found.version

    async def _save(self, saved: _Saved, **changes: Any) -> _Saved:
        """Raises ApiError (stale or exists) if another worker was faster, before anything is posted."""
        state = replace(saved.state, **changes)
        version = await self._states.write({saved.channel: state}, saved.version)
        return _Saved(saved.channel, state, version)


def _missed(before: State | None, day: date) -> tuple[date, ...]:
    if before is None:
        return ()
    first = before.day + timedelta(days=1 if before.ts else 0)
    days = [first + timedelta(days=number) for number in range((day - first).days)]
    return tuple(days[-MAX_MISSED:])
