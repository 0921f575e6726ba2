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

from bot.clients import Clients
from bot.config.permissions import denial
from bot.config.teams import team_of
from bot.core.commands import Action, AuditEntry, Command
from bot.core.record import Phase, SweepRecord
from bot.core.thresholds import IdleThresholds
from bot.gpus import xid
from bot.gpus.models import ITEM, NoGpuDataError, Source
from bot.idle import snoozes
from bot.idle.alerts import Alert, Found, Snooze, follow
from bot.idle.detector import LOW_WINDOW, GpuAllocation, Kind, ever_at_work, holdings, judge, window
from bot.idle.messages import left_alone, measures, warning
from bot.idle.stalled_logs import fell_silent
from bot.idle.store import AlertStore
from bot.runtime.audit import tell
from bot.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.slack.mrkdwn import mention
from k8s.errors import ApiError
from k8s.objects import Manifest, ref_of

log = logging.getLogger(__name__)

LOGS = 8  # that are asked for at a time
UNSEEN = "Nothing can be measured now, so no trial was cancelled. `/sweep cancel` ends one by its name."
GONE = "These GPUs are at work again, or held by nobody any more."
SEARCHING = {Phase.PENDING, Phase.RUNNING}


@dataclass(frozen=True)
class IdleMonitor:
    clients: Clients
    source: Source
    told: AlertStore

    async def run(self, _: str = ITEM) -> timedelta | None:
        """When to go on with what Slack would not hear yet."""
        now, commands = self.clients.now(), await self.clients.store.commands(ITEM)
        namespace = self.clients.settings.k8s_namespace
        snoozed = self._kept(await self.clients.cluster.get(snoozes.ref(namespace)))
        told, looked = await self.told.all(), True
        try:
            told = follow(told, await self._look(now), snoozed, now)
            await self.told.save(told)
        except NoGpuDataError as why:
            looked = False
            log.info("nobody is warned: %s", why)
        by_id = {alert.id: alert for alert in told}
        for command in commands:
            alert = by_id.get(command.alert)
            if command.action is Action.KILL and not looked:
                await self._whisper(command, UNSEEN, alert)
            else:
                snoozed = await self._hear(command, alert, snoozed, now)
        await self.clients.store.remove_commands(ITEM, commands)
        pause = None
        todo: list[Callable[[], Awaitable[None]]] = [self._tell_errors]
        todo += [partial(self._show, alert, snoozed, now) for alert in told]
        for say in todo:
            try:
                await say()
            except SlackBusyError as busy:  # with one channel; others need not wait
                pause = timedelta(seconds=busy.seconds)
        return pause

    def _kept(self, manifest: Manifest | None) -> dict[str, Snooze]:
        try:
            return snoozes.read(manifest)
        except (KeyError, ValueError) as error:  # somebody has edited it
            log.warning("what is to be kept can't be read: %s", error)
            return {}

    # Look

    async def _look(self, now: datetime) -> dict[str, Found]:
        """Raises NoGpuDataError."""
        usual = self.clients.config.warnings
        over = partial(_held, self.source)
        held, long = await over(window(usual)), await over(LOW_WINDOW)
        if not held and not await self.source.nodes():
            raise NoGpuDataError("no node with a GPU is seen")
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
            return replace(found, kind=await fell_silent(self.clients.cluster, found.held, time))

    def _found(
        self,
        held: GpuAllocation,
        long: GpuAllocation | None,
        sweep: SweepRecord | None,
        watch: IdleThresholds,
        now: datetime,
    ) -> Found:
        kind = judge(held, long, watch, now)
        shown = long if kind is Kind.LOW and long else held
        if sweep:
            kind = kind if sweep.phase in SEARCHING else Kind.UNKNOWN
            channel, thread = sweep.requester.channel if sweep.thread else "", sweep.thread or ""
            return Found(held=shown, kind=kind, watch=watch, channel=channel, thread=thread)
        team = next((team for team in self.clients.config.teams if team.name == held.team), None)
        channel = team.channel if team and not held.sweep else ""
        return Found(held=shown, kind=kind, watch=watch, channel=channel)

    async def _sweep(self, sweep_id: str) -> SweepRecord | None:
        try:
            return await self.clients.store.get(sweep_id)
        except ValueError:  # of a newer Sweepbot, which warns by itself
            return None

    # What people say

    async def _hear(
        self, command: Command, alert: Alert | None, snoozed: dict[str, Snooze], now: datetime
    ) -> dict[str, Snooze]:
        if alert is None or not alert.open:
            await self._whisper(command, GONE, alert)
        elif command.action is Action.MEASURES:
            await self._whisper(command, await self._measures(alert), alert)
        elif command.action is Action.KILL:
            await self._cancel(command, alert)
        elif command.action is Action.KEEP:
            refusal, about = await self._may_keep(command, alert), f"{alert.id}, {command.hours} h"
            tell(
                alert.sweep,
                AuditEntry(at=now, user=command.user, action=command.action, about=about, refused=refusal),
            )
            if refusal:
                await self._whisper(command, refusal, alert)
            else:
                keep = Snooze(
                    until=now + timedelta(hours=command.hours), by=command.user, name=command.user_name
                )
                snoozed = snoozed | {case.key: keep for case in alert.open}
                await self._remember(snoozed, now)
        return snoozed

    async def _cancel(self, command: Command, alert: Alert) -> None:
        """Those that are still as they were told of; whether they may is the sweep's to say."""
        trials = set(command.trial.split())
        cases = [case for case in alert.cases if case.name.removeprefix(f"{alert.sweep}-") in trials]
        for case in cases:
            if case in alert.open:
                kill = replace(command, trial=case.name, alert="", response_url="", in_thread=True)
                await self.clients.store.add_command_once(
                    alert.sweep, kill, f"{command.request_id}/{case.name}"
                )
        await self.clients.wake(alert.sweep)
        others = [case for case in cases if case not in alert.open and case.now is not Kind.OVER]
        if others:
            await self._whisper(command, left_alone(alert, others), alert)

    async def _may_keep(self, command: Command, alert: Alert) -> str:
        config = self.clients.config
        if alert.sweep:
            sweep = await self._sweep(alert.sweep)
            return denial(command.user, Action.KEEP, sweep, config) if sweep else GONE
        mates = alert.team and team_of(config.teams, "", command.user) == alert.team
        if mates or command.user == alert.owner or command.user in config.admins:
            return ""
        owner = mention(alert.owner) if alert.owner else "their owner"
        team = f", somebody of team {alert.team}" if alert.team else ""
        return f"Only {owner}{team} or an administrator may keep these GPUs."

    async def _measures(self, alert: Alert) -> str:
        """As it is now, not as it was when it was told."""
        sweep = await self._sweep(alert.sweep) if alert.sweep else None
        over = window(_watch(sweep, self.clients.config.warnings))
        over = LOW_WINDOW if alert.kind is Kind.LOW else over
        try:
            held = await _held(self.source, over)
        except NoGpuDataError as why:
            return f"Nothing can be measured now: {why}"
        source = "Prometheus" if self.clients.settings.prometheus_url else "dcgm-exporter"
        each = [held[case.key] for case in alert.open if case.key in held]
        return measures(each, over, source)

    async def _remember(self, snoozed: dict[str, Snooze], now: datetime) -> None:
        kept = snoozes.config_map(self.clients.settings.k8s_namespace, snoozed, now)
        try:
            await self.clients.cluster.merge(ref_of(kept), kept)
        except ApiError as error:
            if not error.absent:
                raise
            await self.clients.cluster.create(kept)

    async def _whisper(self, command: Command, text: str, alert: Alert | None) -> None:
        """In the thread: what a response_url brings would stand in the channel."""
        slack = self.clients.slack
        try:
            if alert:
                await slack.post_ephemeral(command.user, text, channel=alert.channel, thread=alert.thread)
            else:
                await slack.post_ephemeral(command.user, text, command.response_url)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("%s can't be answered: %s", command.user, error)

    # Speak

    async def _show(self, alert: Alert, snoozed: dict[str, Snooze], now: datetime) -> None:
        message, loud = warning(alert, snoozed, now), alert.loud(snoozed, now)
        if message.fingerprint != alert.shown:
            shown = replace(alert, shown=message.fingerprint, rang=loud)
            try:
                if loud > alert.rang:
                    ts = await self.clients.slack.post(alert.channel, message, alert.thread)
                    shown = replace(shown, ts=ts, old=alert.ts)
                elif alert.ts:
                    await self.clients.slack.redraw(alert.channel, alert.ts, message)
            except (NotInChannelError, MessageRejectedError) as error:
                log.warning("%s can't be told (%s)", alert.id, error)
            alert = shown
            await self.told.save([alert])
        if alert.old:
            await self.clients.slack.take_back(alert.channel, alert.old)
            await self.told.save([replace(alert, old="")])
        if alert.over:
            await self.told.forget(alert)

    async def _tell_errors(self) -> None:
        """To the administrators, wherever the GPU is."""
        channel, slack = self.clients.config.admin_channel, self.clients.slack
        if not channel:
            return
        try:
            new, known = xid.news(await self.told.xids(), await self.source.xids())
            if new:
                await slack.post(channel, xid.message(new))
        except NoGpuDataError:
            return
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("errors of GPUs can't be told in %s: %s", channel, error)
            return
        await self.told.save_xids(known)


async def _held(source: Source, over: timedelta) -> dict[str, GpuAllocation]:
    return holdings(await source.pods(over))


def _watch(sweep: SweepRecord | None, usual: IdleThresholds) -> IdleThresholds:
    """A space's words stand above the configuration's."""
    return replace(usual, **sweep.plan.space.watch) if sweep and sweep.plan else usual
