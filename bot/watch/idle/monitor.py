"""Reconcile one cluster's warnings: which pods and trials get one, in which channel, whom it mentions;
measure, save, apply commands, stop ignored trials, notify.

At home they are about all pods with GPUs, and trials without; in other clusters about trials with GPUs.

Every step is idempotent. A worker that crashes after a post and before saving it repeats that one message.
Snoozes are saved in the cluster before the warning shows them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from redis.asyncio import Redis

from bot.core.commands import Action, Command
from bot.core.plan import HOME_CLUSTER
from bot.core.record import SweepRecord
from bot.core.request import Notify, is_team
from bot.measure.gpus.models import BUSY, ITEM, NoGpuDataError, Source
from bot.measure.sources.cpu_use import CpuQueries
from bot.measure.sources.dcgm_source import SampleStore, ScrapeSource
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.platform.clients import Clients
from bot.platform.config.clusters import remote
from bot.platform.config.elastic import is_elastic
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.slack.client import UNSENT, SlackBusyError
from bot.watch.idle.alert_commands import UNSEEN, AlertCommands, find_sweep, thresholds_of
from bot.watch.idle.alert_notifier import AlertNotifier
from bot.watch.idle.alerts import Alert, Assessment, Snooze, cluster_of, update_alerts
from bot.watch.idle.cpu_trials import PHASES_WITH_TRIALS, CpuAssessor, running_trials
from bot.watch.idle.detector import (
    LOW_WINDOW,
    GpuAllocation,
    Kind,
    allocations,
    always_busy,
    classify,
    measurement_window,
)
from bot.watch.idle.stalled_logs import classify_log
from bot.watch.idle.store import AlertStore, SnoozeStore
from k8s.trial_kinds import JOB

log = logging.getLogger(__name__)

LOG_CONCURRENCY = 8  # trials whose logs are read at a time


@dataclass(frozen=True)
class Assessed:
    """The state of each allocation by its key; None: not measured."""

    gpus: Mapping[str, Assessment] | None
    cpus: Mapping[str, Assessment] | None

    def of(self, alert: Alert | None) -> Mapping[str, Assessment] | None:
        """Return those of the alert's kind of resource, by default of GPUs."""
        return self.gpus if alert is None or alert.about_gpus else self.cpus


@dataclass(frozen=True)
class IdleMonitor:
    clients: Clients
    source: Source
    store: AlertStore
    cluster: str = HOME_CLUSTER  # the one of `clients`
    cpus: CpuQueries | None = None  # of trials without GPUs

    async def run(self) -> timedelta | None:
        """Reconcile once. Return when to retry what Slack's rate limit held back; None if nothing was."""
        now, current = self.clients.now(), await SnoozeStore(self.clients).all()
        alerts, assessed = await self._alerts(current, now)
        alerts, current, failure = await self._apply_commands(alerts, assessed, current, now)
        if assessed.gpus is not None:
            await self._stop_ignored(alerts, assessed.gpus, current, now)
        return await self._notify(alerts, current, now, failure)

    async def _alerts(
        self, current: Mapping[str, Snooze], now: datetime
    ) -> tuple[tuple[Alert, ...], Assessed]:
        """Return the alerts, and the state of every allocation. What can't be measured stays as it is."""
        alerts = await self.store.all()
        assessed = Assessed(
            gpus=await self._measured(self._assess(now)),
            cpus=await self._measured(self._assess_cpus(self.cpus, now)) if self.cpus else None,
        )
        for about_gpus, found in ((True, assessed.gpus), (False, assessed.cpus)):
            if found is not None:
                mine = [alert for alert in alerts if alert.about_gpus is about_gpus]
                others = [alert for alert in alerts if alert.about_gpus is not about_gpus]
                alerts = (*others, *update_alerts(mine, found, current, now))
        await self.store.save(alerts)
        return alerts, assessed

    async def _measured(
        self, assessing: Awaitable[Mapping[str, Assessment]]
    ) -> Mapping[str, Assessment] | None:
        try:
            return await assessing
        except NoGpuDataError as why:
            log.info("skipped warnings: %s", why)
            return None

    async def _apply_commands(
        self, alerts: tuple[Alert, ...], assessed: Assessed, current: dict[str, Snooze], now: datetime
    ) -> tuple[tuple[Alert, ...], dict[str, Snooze], Exception | None]:
        """Return the alerts with the questions asked, the snoozes, and a reply's failure: it is repeated."""
        by_id, done, failure = {alert.id: alert for alert in alerts}, list[Command](), None
        applier = AlertCommands(self.clients, self.source, now, self.cluster, self.cpus)
        for command in await self._commands():
            alert = by_id.get(command.alert)
            try:
                if command.action is Action.ASK:
                    asked = await applier.ask(command, assessed.gpus, by_id, current)
                    await self.store.save(asked)
                    by_id |= {each.id: each for each in asked}
                elif command.action is Action.KILL and assessed.of(alert) is None:
                    await applier.reply(command, UNSEEN, alert)
                else:
                    current = await applier.apply(command, alert, current)
                done.append(command)
            except UNSENT as error:
                failure = error
        await self.clients.store.remove_commands(str(ITEM), done)
        return tuple(by_id.values()), current, failure

    async def _stop_ignored(
        self,
        alerts: Iterable[Alert],
        assessed: Mapping[str, Assessment],
        current: Mapping[str, Snooze],
        now: datetime,
    ) -> None:
        """Let sweeps stop the trials whose warnings were ignored. Repeated calls change nothing."""
        for alert in alerts:
            for item in alert.to_stop(assessed, current, now):
                command = Command(action=Action.STOP_IDLE, user="", user_name="Sweepbot", trial=item.name)
                once = f"idle/{item.key}/{item.since.isoformat()}"
                await self.clients.store.add_command(alert.sweep, command, once=once)
                await self.clients.wake(alert.sweep)

    async def _commands(self) -> list[Command]:
        """Return those about this cluster. Those about a cluster that was removed are answered at home."""
        others = {each.name for each in remote(self.clients.config.clusters)}

        def answers_here(command: Command) -> bool:
            named = cluster_of(command.alert)
            return (named if named in others else HOME_CLUSTER) == self.cluster

        return [each for each in await self.clients.store.commands(str(ITEM)) if answers_here(each)]

    async def _notify(
        self, alerts: tuple[Alert, ...], current: dict[str, Snooze], now: datetime, failure: Exception | None
    ) -> timedelta | None:
        notifier, retry_after = AlertNotifier(self.clients, self.source, self.store, self.cluster), None
        steps: list[Callable[[], Awaitable[None]]] = [notifier.report_xids]
        steps += [partial(notifier.show, alert, current, now) for alert in alerts]
        for step in steps:
            try:
                await step()
            except SlackBusyError as busy:  # of one channel only
                retry_after = timedelta(seconds=busy.seconds)
            except UNSENT as error:  # perhaps likewise
                failure = error
        if failure:
            raise failure
        return retry_after

    async def _assess(self, now: datetime) -> dict[str, Assessment]:
        """Return the state of every allocation of GPUs by its key. Raises NoGpuDataError."""
        default = self.clients.config.warnings
        usual, long = await self._measure(measurement_window(default)), await self._measure(LOW_WINDOW)
        names = {each.sweep for each in usual.values() if each.sweep}
        sweeps = {name: await self._sweep(name) for name in names}
        await self._note_busy_first_trials(usual.values(), sweeps)
        by_window, found, latest = {measurement_window(default): usual}, {}, {}
        for key, each in usual.items():
            sweep = sweeps.get(each.sweep)
            thresholds = thresholds_of(sweep, default)
            window = measurement_window(thresholds)
            if window not in by_window:
                by_window[window] = await self._measure(window)
            latest[key] = allocation = by_window[window].get(key, each)
            found[key] = self._assessment(allocation, long.get(key), sweep, thresholds, now)
        slots = asyncio.Semaphore(LOG_CONCURRENCY)
        checked = await asyncio.gather(
            *(self._with_log_check(each, latest[key], now, slots) for key, each in found.items())
        )
        return dict(zip(found, checked, strict=True))

    async def _assess_cpus(self, queries: CpuQueries, now: datetime) -> dict[str, Assessment]:
        """Return the state of every trial without GPUs by its key. Raises NoGpuDataError."""
        listed = await self.clients.store.listed()
        names = [each.id for each in listed if each.cpu_only and each.phase in PHASES_WITH_TRIALS]
        records = await self.clients.store.records(names) if names else []
        sweeps = {each.id: each for each in records if each.cluster == self.cluster}
        trials = await running_trials(self.clients, sweeps.values())
        thresholds = {
            name: thresholds_of(each, self.clients.config.warnings) for name, each in sweeps.items()
        }
        found = await CpuAssessor(queries, trials, now).assess(thresholds)
        return {
            allocation.key: Assessment(
                allocation=allocation,
                kind=kind,
                thresholds=thresholds[allocation.sweep],
                channel=sweep.requester.channel if sweep.thread else "",
                thread=sweep.thread or "",
                calls=called(sweep),
            )
            for allocation, kind in found
            if (sweep := sweeps[allocation.sweep])
        }

    async def _sweep(self, name: str) -> SweepRecord | None:
        """Return None, too, for one of another cluster: the label came from another installation."""
        found = await find_sweep(self.clients, name)
        return found if found and found.cluster == self.cluster else None

    async def _note_busy_first_trials(
        self, allocated: Iterable[GpuAllocation], sweeps: Mapping[str, SweepRecord | None]
    ) -> None:
        """Store which first trials have used a GPU: their gates open (bot.sweep.features.gate)."""
        for each in allocated:
            sweep = sweeps.get(each.sweep)
            is_busy = each.started and any((gpu.peak or 0.0) >= BUSY for gpu in each.gpus)
            if sweep and sweep.first_only and is_busy:
                await self.clients.store.add_busy_trial(each.name)

    async def _measure(self, window: timedelta) -> dict[str, GpuAllocation]:
        """Return all allocations but elastic replicas, and environments, which have their own warnings."""
        environments, elastic = self.clients.config.environments, self.clients.config.elastic
        found = allocations(await self.source.pods(window), self.cluster)
        return {
            key: each
            for key, each in found.items()
            if (each.sweep or self.cluster == HOME_CLUSTER)
            and (environments is None or each.namespace != environments.namespace)
            and not is_elastic(elastic, each.namespace, each.name)
        }

    def _assessment(
        self,
        allocation: GpuAllocation,
        long: GpuAllocation | None,
        sweep: SweepRecord | None,
        thresholds: IdleThresholds,
        now: datetime,
    ) -> Assessment:
        kind, channel, thread = classify(allocation, long, thresholds, now), "", ""
        shown = long if kind.over_two_hours and long else allocation
        if sweep:
            kind = kind if sweep.phase in PHASES_WITH_TRIALS else Kind.UNKNOWN
            channel, thread = sweep.requester.channel if sweep.thread else "", sweep.thread or ""
        elif not allocation.sweep:
            teams = self.clients.config.teams
            channel = next((team.channel for team in teams if team.name == allocation.team), "")
        plan = sweep.plan if sweep else None
        return Assessment(
            allocation=shown,
            kind=kind,
            thresholds=thresholds,
            channel=channel,
            thread=thread,
            calls=called(sweep) if sweep else "",
            container=(plan.trial_kind if plan else JOB).container,
        )

    async def _with_log_check(
        self, current: Assessment, latest: GpuAllocation, now: datetime, slots: asyncio.Semaphore
    ) -> Assessment:
        """Read the logs of trials whose GPUs are always busy; no others can be STUCK, which tells more."""
        if current.kind not in {Kind.FINE, Kind.WAITING} or not latest.sweep:
            return current
        if not always_busy(latest, current.thresholds, now):
            return current
        threshold = timedelta(minutes=current.thresholds.stuck_minutes)
        async with slots:
            kind = await classify_log(self.clients.trials, latest, threshold, container=current.container)
        return current if kind is Kind.FINE else replace(current, kind=kind, allocation=latest)


def called(sweep: SweepRecord) -> str:
    """Return the owner whom warnings mention; "" if it is a team, or wants no mentions."""
    owner, is_silent = sweep.requester.user, sweep.request.notify is Notify.NONE
    return "" if is_silent or is_team(owner) else owner


@dataclass(frozen=True)
class IdleMonitors:
    clients: Clients
    redis: Redis
    source: Source  # of the main cluster

    async def run(self, _: str = ITEM.key) -> timedelta | None:
        """Reconcile each cluster once. Return when to retry what Slack's rate limit held back."""
        waits, failures = list[timedelta](), list[Exception]()
        for each in (HOME_CLUSTER, *(other.name for other in remote(self.clients.config.clusters))):
            try:
                waits += filter(None, [await self._monitor(each).run()])
            except Exception as error:  # noqa: BLE001 - must not keep other clusters from their warnings
                failures.append(error)
        for failure in failures:
            raise failure
        return min(waits, default=None)

    def _monitor(self, cluster: str) -> IdleMonitor:
        source = self.source
        if cluster != HOME_CLUSTER:
            source = ScrapeSource(SampleStore(self.redis, cluster), self.clients.now)
        cpus = source.cpus if isinstance(source, PrometheusSource) else None
        return IdleMonitor(self.clients.of(cluster), source, AlertStore(self.redis, cluster), cluster, cpus)
