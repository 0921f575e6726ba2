"""Posting digests: an item whose key is `CHANNEL DAY`, of which there is one a day and channel.

How far each channel's last one has come is kept in the ConfigMap `sweepbot-digests`, which outlives Redis
and is written only over what was read. Before a post it is noted that one is tried: a worker that dies just
then leaves at most one repetition. What fails for certain does not count; the queue tries it again.
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
from bot.config.digest_times import DigestSchedule
from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.digests import chart
from bot.digests.details import PEOPLE, details, table
from bot.digests.figures import WEEK, Figures, figures
from bot.digests.message import DigestContext, Waiting, headline, message
from bot.gpus.hourly_store import KEPT, Hours
from bot.gpus.models import HOUR, NoGpuDataError, Source
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from k8s.objects import MANAGED_BY, Ref

log = logging.getLogger(__name__)

NAME = "sweepbot-digests"
POSTS = 2  # at most, of one digest
LOOKS = 5  # at the picture, which Slack may still be working on
LOOK_AGAIN = timedelta(seconds=4)
MISSED = 7  # days told at most
WRITTEN = timedelta(minutes=10)  # after its end a day's last hour is in Redis

Appointments = Callable[[], Awaitable[tuple[DigestSchedule, ...]]]


@dataclass(frozen=True, kw_only=True)
class State:
    """Of a channel's last digest."""

    day: date
    tries: int = 0  # posts that have, or may have, arrived
    ts: str = ""
    chart: str = ""  # the picture's file, once it is in the thread
    told: bool = False  # the details are in the thread
    looks: int = 0  # tries to show it in the message, too
    done: bool = False
    missed: tuple[date, ...] = ()


@dataclass(frozen=True)
class _Kept:
    channel: str
    state: State
    version: str  # resourceVersion of the ConfigMap; "": there is none


@dataclass(frozen=True, kw_only=True)
class Last:
    """A channel's last digest, for other places that show it."""

    day: date
    headline: str  # plain text
    link: str


_STATE: TypeAdapter[State] = TypeAdapter(State)
_LAST: TypeAdapter[Last] = TypeAdapter(Last)


def item(channel: str, day: date) -> WorkItem:
    return WorkItem(ItemKind.DIGEST, f"{channel} {day}")


def appointed(known: tuple[DigestSchedule, ...], channel: str) -> DigestSchedule:
    """The channel's; one without gets its digest, when asked for, by the clock of the first that has."""
    mine = (each for each in known if each.channel == channel)
    return next(mine, DigestSchedule(channel=channel, timezone=known[0].timezone if known else "UTC"))


async def last(redis: Redis, channel: str) -> Last | None:
    """None: none was posted within forty days."""
    found = await redis.get(_last_key(channel))
    return _LAST.validate_json(found) if found else None


def _last_key(channel: str) -> str:
    return f"sweepbot:digest:{channel}"


class Digests:
    def __init__(
        self, clients: Clients, redis: Redis, source: Source, digest_schedules: Appointments
    ) -> None:
        self._outside, self._redis, self._source = clients, redis, source
        self._hours, self._appointments = Hours(redis), digest_schedules
        self._ref = Ref("ConfigMap", clients.settings.k8s_namespace, NAME)
        self._names: dict[str, str] = {}  # of people, as Slack has told them

    async def run(self, key: str) -> timedelta | None:
        """Take one digest on; raises what a repetition may mend."""
        channel, said = key.split(" ")
        day = date.fromisoformat(said)
        state, version = await self._kept(channel)
        if state and (state.day > day or (state.day == day and state.done)):
            return None
        known = await self._appointments()
        about = appointed(known, channel)
        if early := await self._early(about.window(day)[1]):
            return early
        if state is None or state.day < day:
            daily = any(each.channel == channel for each in known)  # else it was only asked for
            state = State(day=day, missed=_missed(state, day) if daily else ())
        return await self._post(about, _Kept(channel, state, version))

    async def _early(self, end: datetime) -> timedelta | None:
        """How long to wait for the day's last hour, soon after its end."""
        left = end + WRITTEN - self._outside.now()
        return left if left > timedelta(0) and await self._hours.missing(end - HOUR, end) else None

    async def _post(self, about: DigestSchedule, kept: _Kept) -> timedelta | None:
        found = await self._figures(about, kept.state.day)
        now = await self._present(found, kept.state.missed)
        if not kept.state.ts:
            if kept.state.tries >= POSTS:
                log.warning("the digest of %s in %s was perhaps not posted", kept.state.day, about.channel)
                return None
            kept = await self._open(about.channel, found, now, kept)
        if not kept.state.ts:
            return None  # nothing is lost by asking again
        if found.quiet or not found.coverage:
            await self._keep(kept, done=True)
            return None
        kept = await self._share(about.channel, found, now, kept)
        return await self._show(about.channel, found, now, kept)

    async def _open(self, channel: str, found: Figures, now: DigestContext, kept: _Kept) -> _Kept:
        slack, before = self._outside.slack, kept
        kept = await self._keep(kept, tries=kept.state.tries + 1)
        try:
            ts = await slack.open_thread(channel, message(found, now))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("no digest for %s: %s", channel, error)
            return await self._keep(kept, tries=before.state.tries)
        except (SlackBusyError, SlackApiError, ClientConnectorError):
            # Refused, or nobody heard it: it is not there.
            await self._keep(kept, tries=before.state.tries)
            raise
        kept = await self._keep(kept, ts=ts)
        link = await slack.permalink(channel, ts)
        told = Last(day=found.day, headline=headline(found, now), link=link)
        await self._redis.set(_last_key(channel), _LAST.dump_json(told), ex=KEPT)
        return kept

    async def _share(self, channel: str, found: Figures, now: DigestContext, kept: _Kept) -> _Kept:
        """The picture and the details, into the thread: from there Slack lets all of the channel see it."""
        share, ts, day = self._outside.slack.share, kept.state.ts, found.day
        try:
            if not kept.state.chart:
                alt, picture = chart.alt_text(found), await chart.png(found)
                file = await share(channel, ts, alt, f"gpus-{day}.png", picture, alt=alt)
                kept = await self._keep(kept, chart=file or "none")
            if not kept.state.told:
                await share(channel, ts, details(found, now), f"gpus-{day}.csv", table(found, now))
                kept = await self._keep(kept, told=True)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("a digest's details are not taken: %s", error)
            kept = await self._keep(kept, chart=kept.state.chart or "none", told=True)
        return kept

    async def _show(self, channel: str, found: Figures, now: DigestContext, kept: _Kept) -> timedelta | None:
        """The picture in the message itself, as soon as Slack has worked on it."""
        if kept.state.chart != "none":
            try:
                picture = message(found, now, kept.state.chart)
                await self._outside.slack.redraw(channel, kept.state.ts, picture)
            except MessageRejectedError as error:
                if kept.state.looks < LOOKS:
                    await self._keep(kept, looks=kept.state.looks + 1)
                    return LOOK_AGAIN
                log.warning("the chart stays in the thread: %s", error)
        await self._keep(kept, done=True)
        return None

    async def _figures(self, about: DigestSchedule, day: date) -> Figures:
        begin, end = about.window(day)
        hours, week = await asyncio.gather(
            self._hours.between(begin, end), self._hours.between(begin - WEEK, begin, by_sweep=True)
        )
        return figures(about, day, hours, week, self._outside.config.prices)

    async def _present(self, found: Figures, missed: tuple[date, ...]) -> DigestContext:
        nodes = None
        with contextlib.suppress(NoGpuDataError):
            nodes = await self._source.nodes()
        active = [await self._sweep(each) for each in await self._outside.store.active()]
        waiting = [one for one in active if one and _waits(one)]
        idle = [await self._sweep(one.sweep) for one in found.most_idle if one.sweep]
        told = [one for one in (*idle, *waiting) if one]
        links = {one.id: await self._link(one) for one in told if one.thread}
        people = {one.owner for one in found.most_idle} | {one.owner for one in found.overasked}
        people |= {row.name for row in found.people[:PEOPLE]}
        return DigestContext(
            currency=self._outside.config.currency,
            names={one.requester.user: one.requester.user_name for one in told} | await self._called(people),
            links={sweep: link for sweep, link in links.items() if link},
            nodes=nodes,
            waiting=tuple(self._waiting(one) for one in waiting),
            missed=missed,
            today=self._outside.now().astimezone(found.about.zone).date(),
        )

    async def _sweep(self, sweep_id: str) -> SweepRecord | None:
        with contextlib.suppress(ValueError):  # of a newer Sweepbot
            return await self._outside.store.get(sweep_id)
        return None

    async def _called(self, people: set[str]) -> dict[str, str]:
        """Asked once: each look at the picture words it all anew, and Slack answers 100 times a minute."""
        self._names |= await self._outside.slack.names(people - self._names.keys() - {""})
        return self._names

    def _waiting(self, sweep: SweepRecord) -> Waiting:
        hours = (self._outside.now() - sweep.since) / HOUR
        return Waiting(sweep=sweep.id, trials=max(1, sweep.progress.waiting), hours=hours)

    async def _link(self, sweep: SweepRecord) -> str:
        return await self._outside.slack.permalink(sweep.requester.channel, sweep.thread or "")

    async def _kept(self, channel: str) -> tuple[State | None, str]:
        found = await self._outside.cluster.get(self._ref)
        text = (found.get("data") or {}).get(channel) if found else None
        version = found["metadata"]["resourceVersion"] if found else ""
        return _STATE.validate_json(text) if text else None, version

    async def _keep(self, kept: _Kept, **changes: Any) -> _Kept:
        """ApiError.stale or .exists: another worker was faster; this one's turn fails, before it speaks."""
        state = replace(kept.state, **changes)
        data = {kept.channel: _STATE.dump_json(state).decode()}
        meta = {"name": NAME, "namespace": self._ref.namespace}
        if kept.version:
            patch = {"metadata": {"resourceVersion": kept.version}, "data": data}
            made = await self._outside.cluster.merge(self._ref, patch)
        else:
            labels = {"labels": {MANAGED_BY: "sweepbot"}}
            new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | labels, "data": data}
            made = await self._outside.cluster.create(new)
        return _Kept(kept.channel, state, made["metadata"]["resourceVersion"])


def _missed(before: State | None, day: date) -> tuple[date, ...]:
    if before is None:
        return ()
    first = before.day + timedelta(days=1 if before.ts else 0)
    days = [first + timedelta(days=number) for number in range((day - first).days)]
    return tuple(days[-MISSED:])


def _waits(sweep: SweepRecord) -> bool:
    return sweep.submitted and (sweep.phase is Phase.PENDING or sweep.progress.waiting > 0)
