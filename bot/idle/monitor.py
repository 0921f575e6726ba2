"""Reconcile one cluster's GPU warnings: measure, update alerts, save them, apply commands, notify.

At home they are about all pods, in other clusters only about the trials of sweeps.

Every step is idempotent. A worker that crashes after a post and before saving it repeats that one message.
Snoozes are saved in the cluster before the warning shows them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from bot.clients import Clients
from bot.config.clusters import remote
from bot.config.elastic import is_elastic
from bot.core.commands import Action, Command
from bot.core.plan import HOME_CLUSTER
from bot.core.record import Phase, SweepRecord
from bot.core.thresholds import IdleThresholds
from bot.gpus.models import BUSY, ITEM, NoGpuDataError, Source
from bot.idle import snoozes
from bot.idle.alert_commands import UNSEEN, AlertCommands, find_sweep, thresholds_of
from bot.idle.alert_notifier import AlertNotifier
from bot.idle.alerts import Alert, Assessment, Snooze, cluster_of, update_alerts
from bot.idle.detector import (
    LOW_WINDOW,
    GpuAllocation,
    Kind,
    allocations,
    always_busy,
    classify,
    measurement_window,
)
from bot.idle.stalled_logs import classify_log
from bot.idle.store import AlertStore
from bot.slack.client import SlackBusyError
from k8s.trial_kinds import JOB

log = logging.getLogger(__name__)

LOG_CONCURRENCY = 8  # trials whose logs are read at a time
PHASES_WITH_TRIALS = {Phase.PENDING, Phase.RUNNING}


@dataclass(frozen=True)
class IdleMonitor:
    clients: Clients
    source: Source
    store: AlertStore
    cluster: str = HOME_CLUSTER  # the one of `clients`

    async def run(self) -> timedelta | None:
        """Reconcile once. Return when to retry what Slack's rate limit held back; None if nothing was."""
        now, current = self.clients.now(), await self._read_snoozes()
        alerts, measured = await self._alerts(current, now)
        current = await self._apply_commands(alerts, current, now, measured=measured)
        return await self._notify(alerts, current, now)

    async def _read_snoozes(self) -> dict[str, Snooze]:
        ref = snoozes.ref(self.clients.settings.k8s_namespace)
        try:
            return snoozes.read(await self.clients.cluster.get(ref))
        except (KeyError, ValueError) as error:  # edited by hand
            log.warning("can't read ConfigMap %s: %s", ref.name, error)
            return {}

    async def _alerts(self, current: Mapping[str, Snooze], now: datetime) -> tuple[tuple[Alert, ...], bool]:
        """Return the alerts and whether GPU data was available to update them."""
        alerts = await self.store.all()
        try:
            alerts = update_alerts(alerts, await self._assess(now), current, now)
        except NoGpuDataError as why:
            log.info("skipped GPU warnings: %s", why)
            return alerts, False
        await self.store.save(alerts)
        return alerts, True

    async def _apply_commands(
        self, alerts: tuple[Alert, ...], current: dict[str, Snooze], now: datetime, *, measured: bool
    ) -> dict[str, Snooze]:
        queued, by_id = await self._commands(), {alert.id: alert for alert in alerts}
        applier = AlertCommands(self.clients, self.source, self.cluster)
        for command in queued:
            alert = by_id.get(command.alert)
            if command.action is Action.KILL and not measured:
                await applier.reply(command, UNSEEN, alert)
            else:
                current = await applier.apply(command, alert, current, now)
        await self.clients.store.remove_commands(str(ITEM), queued)
        return current

    async def _commands(self) -> list[Command]:
        """Return those about this cluster. Those about a cluster that was removed are answered at home."""
        others = {each.name for each in remote(self.clients.config.clusters)}

        def answers_here(command: Command) -> bool:
            named = cluster_of(command.alert)
            return (named if named in others else HOME_CLUSTER) == self.cluster

        return [each for each in await self.clients.store.commands(str(ITEM)) if answers_here(each)]

    async def _notify(
        self, alerts: tuple[Alert, ...], current: dict[str, Snooze], now: datetime
    ) -> timedelta | None:
        notifier, retry_after = AlertNotifier(self.clients, self.source, self.store, self.cluster), None
        steps: list[Callable[[], Awaitable[None]]] = [notifier.report_xids]
        steps += [partial(notifier.show, alert, current, now) for alert in alerts]
        for step in steps:
            try:
                await step()
            except SlackBusyError as busy:  # of one channel only
                retry_after = timedelta(seconds=busy.seconds)
        return retry_after

    async def _assess(self, now: datetime) -> dict[str, Assessment]:
        """Return the state of every allocation by its key. Raises NoGpuDataError."""
        default = self.clients.config.warnings
        usual, long = await self._measure(measurement_window(default)), await self._measure(LOW_WINDOW)
        if not usual and not await self.source.nodes():
            raise NoGpuDataError("no GPU nodes found")
        names = {each.sweep for each in usual.values() if each.sweep}
        sweeps = {name: await self._sweep(name) for name in names}
        await self._note_busy_first_trials(usual.values(), sweeps)
        by_window, found = {measurement_window(default): usual}, {}
        for key, each in usual.items():
            sweep = sweeps.get(each.sweep)
            thresholds = thresholds_of(sweep, default)
            window = measurement_window(thresholds)
            if window not in by_window:
                by_window[window] = await self._measure(window)
            allocation = by_window[window].get(key, each)
            found[key] = self._assessment(allocation, long.get(key), sweep, thresholds, now)
        slots = asyncio.Semaphore(LOG_CONCURRENCY)
        checked = await asyncio.gather(*(self._with_log_check(each, now, slots) for each in found.values()))
        return dict(zip(found, checked, strict=True))

    async def _sweep(self, name: str) -> SweepRecord | None:
        """Return None, too, for one of another cluster: the label came from another installation."""
        found = await find_sweep(self.clients, name)
        return found if found and found.cluster == self.cluster else None

    async def _note_busy_first_trials(
        self, allocated: Iterable[GpuAllocation], sweeps: Mapping[str, SweepRecord | None]
    ) -> None:
        """Store which first trials have used a GPU: their gates open (bot.sweeps.observe_gate)."""
        for each in allocated:
            sweep = sweeps.get(each.sweep)
            is_busy = each.started and any((gpu.peak or 0.0) >= BUSY for gpu in each.gpus)
            if sweep and sweep.gated and is_busy:
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
        shown = long if kind is Kind.LOW and long else allocation
        if sweep:
            kind = kind if sweep.phase in PHASES_WITH_TRIALS else Kind.UNKNOWN
            channel, thread = sweep.requester.channel if sweep.thread else "", sweep.thread or ""
        elif not allocation.sweep:
            channel = self._team_channel(allocation.team)
        plan = sweep.plan if sweep else None
        return Assessment(
            allocation=shown,
            kind=kind,
            thresholds=thresholds,
            channel=channel,
            thread=thread,
            container=(plan.trial_kind if plan else JOB).container,
        )

    def _team_channel(self, name: str) -> str:
        return next((team.channel for team in self.clients.config.teams if team.name == name), "")

    async def _with_log_check(
        self, current: Assessment, now: datetime, slots: asyncio.Semaphore
    ) -> Assessment:
        """Read the logs of trials whose GPUs are always busy; no others can be STUCK."""
        if current.kind is not Kind.FINE or not current.allocation.sweep:
            return current
        if not always_busy(current.allocation, current.thresholds, now):
            return current
        threshold = timedelta(minutes=current.thresholds.stuck_minutes)
        async with slots:
            kind = await classify_log(
                self.clients.trials, current.allocation, threshold, container=current.container
            )
        return replace(current, kind=kind)
