"""Apply the commands of people who clicked a button below a GPU warning: cancel, snooze, show utilization."""

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.clients import Clients
from bot.config.permissions import denial
from bot.config.teams import granted_team
from bot.core.commands import Action, AuditEntry, Command
from bot.core.plan import HOME_CLUSTER
from bot.core.record import SweepRecord
from bot.core.thresholds import IdleThresholds
from bot.gpus.models import NoGpuDataError, Source
from bot.idle import snoozes
from bot.idle.alerts import Alert, Snooze
from bot.idle.detector import LOW_WINDOW, Kind, allocations, measurement_window
from bot.idle.messages import not_cancelled, utilization
from bot.runtime.audit import write_entry
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.mrkdwn import mention, plain
from k8s.configmaps import upsert

log = logging.getLogger(__name__)

UNSEEN = (
    "GPU metrics are unavailable, so no trial was cancelled. "
    "To cancel one anyway: `/sweep cancel SWEEP TRIAL`."
)
GONE = "These GPUs are busy again or no longer allocated."


@dataclass(frozen=True)
class AlertCommands:
    clients: Clients
    source: Source
    cluster: str = HOME_CLUSTER  # the one of `source`

    async def apply(
        self, command: Command, alert: Alert | None, current: dict[str, Snooze], now: datetime
    ) -> dict[str, Snooze]:
        """Apply one command, reply to its user, and return the snoozes with any that it added."""
        if alert is None or not alert.open:
            await self.reply(command, GONE, alert)
        elif command.action is Action.MEASURES:
            await self.reply(command, await self._utilization(alert), alert)
        elif command.action is Action.KILL:
            await self._cancel(command, alert, current, now)
        elif command.action is Action.KEEP:
            return await self._snooze(command, alert, current, now)
        return current

    async def reply(self, command: Command, text: str, alert: Alert | None) -> None:
        """Reply ephemerally in the alert's thread; a response_url would put it into the channel."""
        slack = self.clients.slack
        try:
            if alert:
                await slack.post_ephemeral(command.user, text, channel=alert.channel, thread=alert.thread)
            else:
                await slack.post_ephemeral(command.user, text, command.response_url)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't reply to %s: %s", command.user, error)

    async def _cancel(
        self, command: Command, alert: Alert, current: dict[str, Snooze], now: datetime
    ) -> None:
        """Pass trials that are still idle to their sweep, which checks permissions; report the others."""
        trials = set(command.trial.split())
        items = [item for item in alert.items if item.name.removeprefix(f"{alert.sweep}-") in trials]
        for item in items:
            if item in alert.open:
                cancel = replace(command, trial=item.name, alert="", response_url="", in_thread=True)
                request_id = f"{command.request_id}/{item.name}"
                await self.clients.store.add_command(alert.sweep, cancel, once=request_id)
        await self.clients.wake(alert.sweep)
        spared = [item for item in items if item not in alert.open and item.now is not Kind.ENDED]
        if spared:
            await self.reply(command, not_cancelled(alert, spared, current, now), alert)

    async def _snooze(
        self, command: Command, alert: Alert, current: dict[str, Snooze], now: datetime
    ) -> dict[str, Snooze]:
        refused, about = await self._snooze_denial(command, alert), f"{alert.id}, {command.hours} h"
        entry = AuditEntry(at=now, user=command.user, action=command.action, about=about, refused=refused)
        write_entry(alert.sweep, entry)
        if refused:
            await self.reply(command, refused, alert)
            return current
        until = now + timedelta(hours=command.hours)
        snooze = Snooze(until=until, by=command.user, name=command.user_name)
        current = current | {item.key: snooze for item in alert.open}
        await self._save(current, now)
        return current

    async def _snooze_denial(self, command: Command, alert: Alert) -> str:
        """Return why the user can't snooze the alert; empty if allowed."""
        config = self.clients.config
        if alert.sweep:
            sweep = await find_sweep(self.clients, alert.sweep)
            return denial(command.user, Action.KEEP, sweep, config) if sweep else GONE
        team = granted_team(config.teams, command.user, config.self_assigned)
        if (team and team.name == alert.team) or command.user == alert.owner or command.user in config.admins:
            return ""
        owner = mention(alert.owner) if alert.owner else "the pod's owner"
        members = f", a member of team {plain(alert.team)}," if alert.team else ""
        return f"Only {owner}{members} or an admin can snooze this warning."

    async def _utilization(self, alert: Alert) -> str:
        """Return current utilization, which may differ from that in the alert."""
        sweep = await find_sweep(self.clients, alert.sweep) if alert.sweep else None
        window = measurement_window(thresholds_of(sweep, self.clients.config.warnings))
        window = LOW_WINDOW if alert.kind is Kind.LOW else window
        try:
            current = allocations(await self.source.pods(window), self.cluster)
        except NoGpuDataError as why:
            return f"GPU metrics are unavailable: {why}"
        has_prometheus = self.cluster == HOME_CLUSTER and self.clients.settings.prometheus_url
        source = "Prometheus" if has_prometheus else "dcgm-exporter"
        return utilization([current[item.key] for item in alert.open if item.key in current], window, source)

    async def _save(self, current: dict[str, Snooze], now: datetime) -> None:
        manifest = snoozes.config_map(self.clients.settings.k8s_namespace, current, now)
        await upsert(self.clients.cluster, manifest)


async def find_sweep(clients: Clients, sweep_id: str) -> SweepRecord | None:
    """Return None for an unknown sweep and for one of a newer Sweepbot, which warns about it itself."""
    try:
        return await clients.store.get(sweep_id)
    except ValueError:
        return None


def thresholds_of(sweep: SweepRecord | None, default: IdleThresholds) -> IdleThresholds:
    """Return the default thresholds with those of the sweep's space file over them."""
    return replace(default, **sweep.plan.space.watch) if sweep and sweep.plan else default
