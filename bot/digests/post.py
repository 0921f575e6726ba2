"""Post digests: the job of the queue item with the key `CHANNEL DAY`, one per day and channel.

The progress of each channel's last digest is in the ConfigMap `sweepbot-digests`, which survives the loss of
Redis and is written with optimistic locking. Each attempt to post is saved first, so a worker that crashes
then leaves at most one duplicate. Attempts that failed for certain don't count; the queue retries them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from aiohttp import ClientConnectorError
from pydantic import TypeAdapter
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.clusters.snapshots import nodes_of, snapshots_elsewhere
from bot.config.digest_times import DigestSchedule
from bot.config.teams import team_of
from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.digests import chart
from bot.digests.clusters import AllHours
from bot.digests.details import MAX_PEOPLE, details, table
from bot.digests.figures import Figures, figures
from bot.digests.latest import LatestDigest, save_latest
from bot.digests.message import MAX_MISSED, DigestContext, Waiting, headline, message
from bot.gpus.hourly_store import HourlyStore
from bot.gpus.models import HOUR, NoGpuDataError, Source
from bot.gpus.overrequest import with_past_peaks
from bot.reservations.answer import reserved_line
from bot.results.week import week_page, week_sweep
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.slack.message import Message
from k8s.objects import Ref, config_map

log = logging.getLogger(__name__)

CONFIGMAP_NAME = "sweepbot-digests"
SUNDAY = 6  # as date.weekday() counts
WEEK = timedelta(days=7)  # before the day, to compare with
MAX_POSTS = 2  # of one digest, if it is unknown whether the first one arrived
MAX_CHART_ATTEMPTS = 5  # Slack may still be processing the file
CHART_RETRY = timedelta(seconds=4)
LAST_HOUR_DELAY = timedelta(minutes=10)  # until a day's last hour is in Redis

ReadSchedules = Callable[[], Awaitable[tuple[DigestSchedule, ...]]]


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


class Digests:
    def __init__(
        self, clients: Clients, redis: Redis, source: Source, digest_schedules: ReadSchedules
    ) -> None:
        self._clients, self._redis, self._source = clients, redis, source
        self._read_schedules = digest_schedules
        self._ref = Ref("ConfigMap", clients.settings.k8s_namespace, CONFIGMAP_NAME)
        self._names: dict[str, str] = {}  # Slack user id -> display name

    async def run(self, key: str) -> timedelta | None:
        """Advance one digest. Return when to continue; None if done. Raises errors that a retry can fix."""
        channel, text = key.split(" ")
        day = date.fromisoformat(text)
        state, version = await self._load(channel)
        if state and (state.day > day or (state.day == day and state.done)):
            return None
        known = await self._read_schedules()
        schedule = schedule_for(known, channel)
        if delay := await self._last_hour_delay(schedule.window(day)[1]):
            return delay
        if state is None or state.day < day:
            daily = any(each.channel == channel for each in known)  # else it was only requested by /gpus
            state = State(day=day, missed=_missed(state, day) if daily else ())
        return await self._post(schedule, _Saved(channel, state, version))

    @property
    def _hours(self) -> AllHours:
        return AllHours(HourlyStore(self._redis), self._clients.config)

    async def _last_hour_delay(self, end: datetime) -> timedelta | None:
        """Return how long to wait for the day's last hour; None if it is there or overdue."""
        left = end + LAST_HOUR_DELAY - self._clients.now()
        return left if left > timedelta(0) and await self._hours.missing(end - HOUR, end) else None

    async def _post(self, schedule: DigestSchedule, saved: _Saved) -> timedelta | None:
        found = await self._figures(schedule, saved.state.day)
        now = await self._context(found, saved.state.missed)
        if not saved.state.ts:
            if saved.state.tries >= MAX_POSTS:
                log.warning("digest possibly not posted: %s in %s", saved.state.day, schedule.channel)
                return None
            saved = await self._open(schedule.channel, found, now, saved)
        if not saved.state.ts:
            return None  # refused by Slack; `/gpus digest` can request it again
        saved = await self._show_week(schedule, saved)
        if found.quiet or not found.coverage:
            await self._save(saved, done=True)
            return None
        saved = await self._share(schedule.channel, found, now, saved)
        return await self._show(schedule.channel, found, now, saved)

    async def _open(self, channel: str, found: Figures, now: DigestContext, saved: _Saved) -> _Saved:
        slack, before = self._clients.slack, saved
        saved = await self._save(saved, tries=saved.state.tries + 1)
        try:
            ts = await slack.open_thread(channel, message(found, now))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the digest in %s: %s", channel, error)
            return await self._save(saved, tries=before.state.tries)
        except (SlackBusyError, SlackApiError, ClientConnectorError):
            # Slack refused it or was never reached: nothing was posted.
            await self._save(saved, tries=before.state.tries)
            raise
        saved = await self._save(saved, ts=ts)
        link = await slack.permalink(channel, ts)
        latest = LatestDigest(day=found.day, headline=headline(found, now), link=link)
        await save_latest(self._redis, channel, latest)
        return saved

    async def _show_week(self, schedule: DigestSchedule, saved: _Saved) -> _Saved:
        """Post the week's page with Sunday's digest, if the channel wants it."""
        day = saved.state.day
        if not schedule.weekly or day.weekday() != SUNDAY or saved.state.week:
            return saved
        page = await self._week_page(schedule, day)
        try:
            await self._clients.slack.reply(schedule.channel, saved.state.ts, page, broadcast=True)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the week's page in %s: %s", schedule.channel, error)
        return await self._save(saved, week=True)

    async def _week_page(self, schedule: DigestSchedule, sunday: date) -> Message:
        monday, teams = sunday - timedelta(days=6), self._clients.config.teams
        begin, end = schedule.window(monday)[0], schedule.window(sunday)[1]
        sweeps = [
            week_sweep(each)
            async for each in self._clients.kept_results.all()
            if not schedule.team or team_of(teams, "", each.owner) == schedule.team
        ]
        return week_page(monday, begin, end, sweeps, self._clients.config.currency)

    async def _share(self, channel: str, found: Figures, now: DigestContext, saved: _Saved) -> _Saved:
        """Put the chart and the details into the thread; files shared there are visible to the channel."""
        upload, ts, day = self._clients.slack.upload, saved.state.ts, found.day
        try:
            if not saved.state.chart:
                alt, picture = chart.alt_text(found), await chart.png(found)
                file = await upload(channel, ts, alt, f"gpus-{day}.png", picture, alt=alt)
                saved = await self._save(saved, chart=file or "none")
            if not saved.state.details:
                csv = await asyncio.to_thread(table, found, now)
                clusters = await self._hours.lines(found, self._clients.config)
                await upload(channel, ts, details(found, now) + clusters, f"gpus-{day}.csv", csv)
                saved = await self._save(saved, details=True)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't share a digest's details: %s", error)
            saved = await self._save(saved, chart=saved.state.chart or "none", details=True)
        return saved

    async def _show(
        self, channel: str, found: Figures, now: DigestContext, saved: _Saved
    ) -> timedelta | None:
        """Show the chart in the message itself, as soon as Slack has processed the file."""
        if saved.state.chart != "none":
            try:
                picture = message(found, now, saved.state.chart)
                await self._clients.slack.update(channel, saved.state.ts, picture)
            except MessageRejectedError as error:
                if saved.state.chart_attempts < MAX_CHART_ATTEMPTS:
                    await self._save(saved, chart_attempts=saved.state.chart_attempts + 1)
                    return CHART_RETRY
                log.warning("can't show the chart in the message, only in its thread: %s", error)
        await self._save(saved, done=True)
        return None

    async def _figures(self, schedule: DigestSchedule, day: date) -> Figures:
        begin, end = schedule.window(day)
        hours, week = await asyncio.gather(
            self._hours.between(begin, end), self._hours.totals(begin - WEEK, begin)
        )
        config = self._clients.config
        where = config.environments.namespace if config.environments else "", config.elastic
        found = await asyncio.to_thread(figures, schedule, day, hours, week, config.prices, *where)
        groups = [one.group for one in found.overrequests if one.ram]
        peaks = await self._hours.ram_peaks(begin - WEEK, begin, groups)
        found = replace(found, overrequests=with_past_peaks(found.overrequests, peaks))
        return await self._hours.with_clusters(found, config)

    async def _context(self, found: Figures, missed: tuple[date, ...]) -> DigestContext:
        elsewhere = await snapshots_elsewhere(self._clients.config, self._redis, self._clients.now)
        nodes = None
        with contextlib.suppress(NoGpuDataError):
            nodes = (*await self._source.nodes(), *nodes_of(elsewhere))
        active = [await self._sweep(each) for each in await self._clients.store.active()]
        waiting = [one for one in active if one and _is_waiting(one)]
        idle = [await self._sweep(one.sweep) for one in found.most_idle if one.sweep]
        shown = [one for one in (*idle, *waiting) if one]
        links = {one.id: await self._link(one) for one in shown if one.thread}
        people = {one.owner for one in found.most_idle} | {one.owner for one in found.overrequests}
        people |= {row.name for row in found.people[:MAX_PEOPLE]}
        return DigestContext(
            currency=self._clients.config.currency,
            names={one.requester.user: one.requester.user_name for one in shown}
            | await self._display_names(people),
            links={sweep: link for sweep, link in links.items() if link},
            nodes=nodes,
            waiting=tuple(self._waiting(one) for one in waiting),
            missed=missed,
            reserved=await reserved_line(self._clients),
            unmeasured=tuple(name for name, each in elsewhere.items() if each is None),
            today=self._clients.now().astimezone(found.schedule.zone).date(),
        )

    async def _sweep(self, sweep_id: str) -> SweepRecord | None:
        with contextlib.suppress(ValueError):  # written by a newer Sweepbot
            return await self._clients.store.get(sweep_id)
        return None

    async def _display_names(self, people: set[str]) -> dict[str, str]:
        """Cached: each attempt to show the chart needs them again, and Slack allows 100 calls a minute."""
        self._names |= await self._clients.slack.display_names(people - self._names.keys() - {""})
        return self._names

    def _waiting(self, sweep: SweepRecord) -> Waiting:
        hours = (self._clients.now() - sweep.since) / HOUR
        return Waiting(sweep=sweep.id, trials=max(1, sweep.progress.waiting), hours=hours)

    async def _link(self, sweep: SweepRecord) -> str:
        return await self._clients.slack.permalink(sweep.requester.channel, sweep.thread or "")

    async def _load(self, channel: str) -> tuple[State | None, str]:
        found = await self._clients.cluster.get(self._ref)
        text = (found.get("data") or {}).get(channel) if found else None
        version = found["metadata"]["resourceVersion"] if found else ""
        return _STATE.validate_json(text) if text else None, version

    async def _save(self, saved: _Saved, **changes: Any) -> _Saved:
        """Raises ApiError (stale or exists) if another worker was faster, before anything is posted."""
        state = replace(saved.state, **changes)
        data = {saved.channel: _STATE.dump_json(state).decode()}
        if saved.version:
            patch = {"metadata": {"resourceVersion": saved.version}, "data": data}
            stored = await self._clients.cluster.merge(self._ref, patch)
        else:
            stored = await self._clients.cluster.create(config_map(self._ref, data))
        return _Saved(saved.channel, state, stored["metadata"]["resourceVersion"])


def _missed(before: State | None, day: date) -> tuple[date, ...]:
    if before is None:
        return ()
    first = before.day + timedelta(days=1 if before.ts else 0)
    days = [first + timedelta(days=number) for number in range((day - first).days)]
    return tuple(days[-MAX_MISSED:])


def _is_waiting(sweep: SweepRecord) -> bool:
    return sweep.submitted and (sweep.phase is Phase.PENDING or sweep.progress.waiting > 0)
