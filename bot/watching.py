"""A turn of the watch on GPUs: look, decide, remember, speak; for all sweeps and pods at once.

Whatever it does may be done twice. A worker that dies between a message and the note that it was sent repeats
that one message; what people said is in the cluster before anybody hears that it was understood.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from bot import keeping, xids
from bot.access import may
from bot.audit import tell
from bot.idle import LOW_WINDOW, Holding, Kind, ever_at_work, holdings, judge, window
from bot.models import Act, Ask, Deed, Phase, SweepRecord, Watch
from bot.mrkdwn import mention
from bot.notices import Found, Keep, Notice, follow
from bot.outside import Outside
from bot.silence import fell_silent
from bot.slack import Busy, NotInChannel, NotTaken
from bot.teams import team_of
from bot.told import ITEM, Told
from bot.usage import Source, Unmeasured
from bot.warning import left_alone, measures, warning
from k8s.cluster import ApiError
from k8s.objects import Manifest, ref_of

log = logging.getLogger(__name__)

LOGS = 8  # that are asked for at a time
UNSEEN = "Nothing can be measured now, so no trial was cancelled. `/sweep cancel` ends one by its name."
GONE = "These GPUs are at work again, or held by nobody any more."
SEARCHING = {Phase.PROVING, Phase.RUNNING}


@dataclass(frozen=True)
class Watching:
    outside: Outside
    source: Source
    told: Told

    async def turn(self, _: str = ITEM) -> timedelta | None:
        """When to go on with what Slack would not hear yet."""
        now, asks = self.outside.now(), await self.outside.store.asks(ITEM)
        namespace = self.outside.settings.k8s_namespace
        keeps = self._kept(await self.outside.cluster.get(keeping.ref(namespace)))
        told, looked = await self.told.all(), True
        try:
            told = follow(told, await self._look(now), keeps, now)
            await self.told.save(told)
        except Unmeasured as why:
            looked = False
            log.info("nobody is warned: %s", why)
        by_id = {notice.id: notice for notice in told}
        for ask in asks:
            notice = by_id.get(ask.notice)
            if ask.act is Act.KILL and not looked:
                await self._whisper(ask, UNSEEN, notice)
            else:
                keeps = await self._hear(ask, notice, keeps, now)
        await self.outside.store.answered(ITEM, asks)
        pause = None
        todo: list[Callable[[], Awaitable[None]]] = [self._tell_errors]
        todo += [partial(self._show, notice, keeps, now) for notice in told]
        for say in todo:
            try:
                await say()
            except Busy as busy:  # with one channel; others need not wait
                pause = timedelta(seconds=busy.seconds)
        return pause

    def _kept(self, manifest: Manifest | None) -> dict[str, Keep]:
        try:
            return keeping.read(manifest)
        except (KeyError, ValueError) as error:  # somebody has edited it
            log.warning("what is to be kept can't be read: %s", error)
            return {}

    # Look

    async def _look(self, now: datetime) -> dict[str, Found]:
        """Raises Unmeasured."""
        usual = self.outside.config.warnings
        over = partial(_held, self.source)
        held, long = await over(window(usual)), await over(LOW_WINDOW)
        if not held and not await self.source.nodes():
            raise Unmeasured("no node with a GPU is seen")
        sweeps = {each.sweep: await self._sweep(each.sweep) for each in held.values() if each.sweep}
        watches = {name: _watch(sweep, usual) for name, sweep in sweeps.items()}
        measured = {window(watch): held for watch in (usual,)}
        for watch in watches.values():
            if window(watch) not in measured:
                measured[window(watch)] = await over(window(watch))
        found = {}
        for key, each in held.items():
            watch = watches.get(each.sweep, usual)
            now_held = measured[window(watch)].get(key, each)
            found[key] = self._found(now_held, long.get(key), sweeps.get(each.sweep), watch, now)
        logs = asyncio.Semaphore(LOGS)
        whole = await asyncio.gather(*(self._with_its_log(each, now, logs) for each in found.values()))
        return dict(zip(found, whole, strict=True))

    async def _with_its_log(self, found: Found, now: datetime, turns: asyncio.Semaphore) -> Found:
        """Only a trial's, and only where its GPUs work without a pause."""
        trial = found.kind is Kind.FINE and found.held.sweep
        if not trial or not ever_at_work(found.held, found.watch, now):
            return found
        async with turns:
            time = timedelta(minutes=found.watch.stuck_minutes)
            return replace(found, kind=await fell_silent(self.outside.cluster, found.held, time))

    def _found(
        self, held: Holding, long: Holding | None, sweep: SweepRecord | None, watch: Watch, now: datetime
    ) -> Found:
        kind = judge(held, long, watch, now)
        shown = long if kind is Kind.LOW and long else held
        if sweep:
            kind = kind if sweep.phase in SEARCHING else Kind.UNKNOWN
            channel, thread = sweep.asker.channel if sweep.thread else "", sweep.thread or ""
            return Found(held=shown, kind=kind, watch=watch, channel=channel, thread=thread)
        team = next((team for team in self.outside.config.teams if team.name == held.team), None)
        channel = team.channel if team and not held.sweep else ""
        return Found(held=shown, kind=kind, watch=watch, channel=channel)

    async def _sweep(self, sweep_id: str) -> SweepRecord | None:
        try:
            return await self.outside.store.get(sweep_id)
        except ValueError:  # of a newer Sweepbot, which warns by itself
            return None

    # What people say

    async def _hear(
        self, ask: Ask, notice: Notice | None, keeps: dict[str, Keep], now: datetime
    ) -> dict[str, Keep]:
        if notice is None or not notice.open:
            await self._whisper(ask, GONE, notice)
        elif ask.act is Act.MEASURES:
            await self._whisper(ask, await self._measures(notice), notice)
        elif ask.act is Act.KILL:
            await self._cancel(ask, notice)
        elif ask.act is Act.KEEP:
            refusal, about = await self._may_keep(ask, notice), f"{notice.id}, {ask.hours} h"
            tell(notice.sweep, Deed(at=now, user=ask.user, act=ask.act, about=about, refused=refusal))
            if refusal:
                await self._whisper(ask, refusal, notice)
            else:
                keep = Keep(until=now + timedelta(hours=ask.hours), by=ask.user, name=ask.user_name)
                keeps = keeps | {case.key: keep for case in notice.open}
                await self._remember(keeps, now)
        return keeps

    async def _cancel(self, ask: Ask, notice: Notice) -> None:
        """Those that are still as they were told of; whether they may is the sweep's to say."""
        trials = set(ask.trial.split())
        cases = [case for case in notice.cases if case.name.removeprefix(f"{notice.sweep}-") in trials]
        for case in cases:
            if case in notice.open:
                kill = replace(ask, trial=case.name, notice="", response_url="", in_thread=True)
                await self.outside.store.ask_once(notice.sweep, kill, f"{ask.delivery}/{case.name}")
        await self.outside.wake(notice.sweep)
        others = [case for case in cases if case not in notice.open and case.now is not Kind.OVER]
        if others:
            await self._whisper(ask, left_alone(notice, others), notice)

    async def _may_keep(self, ask: Ask, notice: Notice) -> str:
        config = self.outside.config
        if notice.sweep:
            sweep = await self._sweep(notice.sweep)
            return may(ask.user, Act.KEEP, sweep, config) if sweep else GONE
        mates = notice.team and team_of(config.teams, "", ask.user) == notice.team
        if mates or ask.user == notice.owner or ask.user in config.admins:
            return ""
        owner = mention(notice.owner) if notice.owner else "their owner"
        team = f", somebody of team {notice.team}" if notice.team else ""
        return f"Only {owner}{team} or an administrator may keep these GPUs."

    async def _measures(self, notice: Notice) -> str:
        """As it is now, not as it was when it was told."""
        sweep = await self._sweep(notice.sweep) if notice.sweep else None
        over = window(_watch(sweep, self.outside.config.warnings))
        over = LOW_WINDOW if notice.kind is Kind.LOW else over
        try:
            held = await _held(self.source, over)
        except Unmeasured as why:
            return f"Nothing can be measured now: {why}"
        source = "Prometheus" if self.outside.settings.prometheus_url else "dcgm-exporter"
        each = [held[case.key] for case in notice.open if case.key in held]
        return measures(each, over, source)

    async def _remember(self, keeps: dict[str, Keep], now: datetime) -> None:
        kept = keeping.config_map(self.outside.settings.k8s_namespace, keeps, now)
        try:
            await self.outside.cluster.merge(ref_of(kept), kept)
        except ApiError as error:
            if not error.absent:
                raise
            await self.outside.cluster.create(kept)

    async def _whisper(self, ask: Ask, text: str, notice: Notice | None) -> None:
        """In the thread: what a response_url brings would stand in the channel."""
        slack = self.outside.slack
        try:
            if notice:
                await slack.whisper(ask.user, text, channel=notice.channel, thread=notice.thread)
            else:
                await slack.whisper(ask.user, text, ask.response_url)
        except (NotInChannel, NotTaken) as error:
            log.warning("%s can't be answered: %s", ask.user, error)

    # Speak

    async def _show(self, notice: Notice, keeps: dict[str, Keep], now: datetime) -> None:
        message, loud = warning(notice, keeps, now), notice.loud(keeps, now)
        if message.fingerprint != notice.shown:
            shown = replace(notice, shown=message.fingerprint, rang=loud)
            try:
                if loud > notice.rang:
                    ts = await self.outside.slack.post(notice.channel, message, notice.thread)
                    shown = replace(shown, ts=ts, old=notice.ts)
                elif notice.ts:
                    await self.outside.slack.redraw(notice.channel, notice.ts, message)
            except (NotInChannel, NotTaken) as error:
                log.warning("%s can't be told (%s)", notice.id, error)
            notice = shown
            await self.told.save([notice])
        if notice.old:
            await self.outside.slack.take_back(notice.channel, notice.old)
            await self.told.save([replace(notice, old="")])
        if notice.over:
            await self.told.forget(notice)

    async def _tell_errors(self) -> None:
        """To the administrators, wherever the GPU is."""
        channel, slack = self.outside.config.admin_channel, self.outside.slack
        if not channel:
            return
        try:
            new, known = xids.news(await self.told.xids(), await self.source.xids())
            if new:
                await slack.post(channel, xids.message(new))
        except Unmeasured:
            return
        except (NotInChannel, NotTaken) as error:
            log.warning("errors of GPUs can't be told in %s: %s", channel, error)
            return
        await self.told.save_xids(known)


async def _held(source: Source, over: timedelta) -> dict[str, Holding]:
    return holdings(await source.pods(over))


def _watch(sweep: SweepRecord | None, usual: Watch) -> Watch:
    """A space's words stand above the configuration's."""
    return replace(usual, **sweep.plan.space.watch) if sweep and sweep.plan else usual
