"""Apply the commands of buttons of warnings (cancel, snooze, ask the owner, show utilization), and reply to
whoever clicked, also why it can't be done.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.core.commands import Action, AuditEntry, Command
from bot.core.plan import HOME_CLUSTER
from bot.core.record import SweepRecord
from bot.measure.gpus.models import NoGpuDataError, Source
from bot.measure.sources.cpu_use import CpuQueries
from bot.platform.clients import Clients
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.permissions import denial
from bot.platform.config.teams import granted_team
from bot.platform.runtime.audit import write_entry
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import code, local_time, mention, plain
from bot.watch.idle.alerts import Alert, Assessment, Snooze, active_snooze, question
from bot.watch.idle.cpu_trials import cpu_utilization, running_trials
from bot.watch.idle.detector import LOW_WINDOW, Kind, allocations, measurement_window
from bot.watch.idle.messages import not_cancelled, owner_answered, utilization
from bot.watch.idle.store import SnoozeStore

log = logging.getLogger(__name__)

UNSEEN = (
    "Metrics are unavailable, so no trial was cancelled. To cancel one anyway: `/sweep cancel SWEEP TRIAL`."
)
NOT_ASKED = "GPU metrics are unavailable, so no owner was asked."
NO_CPUS = "Metrics of CPUs and memory are unavailable."
GONE = "This warning is over: its cause is gone, or the pods are."


@dataclass(frozen=True)
class AlertCommands:
    clients: Clients
    source: Source
    now: datetime
    cluster: str = HOME_CLUSTER  # the one of `source`
    cpus: CpuQueries | None = None

    async def apply(
        self, command: Command, alert: Alert | None, current: dict[str, Snooze]
    ) -> dict[str, Snooze]:
        """Apply one command, reply to its user, and return the snoozes with any that it added."""
        if alert is None or not alert.open:
            await self.reply(command, GONE, alert)
        elif command.action is Action.MEASURES:
            await self.reply(command, await self._utilization(alert), alert)
        elif command.action is Action.KILL:
            await self._cancel(command, alert, current)
        elif command.action is Action.KEEP:
            return await self._snooze(command, alert, current)
        return current

    async def ask(
        self,
        command: Command,
        current: Mapping[str, Assessment] | None,
        sent: Collection[str],
        snoozes: Mapping[str, Snooze],
    ) -> list[Alert]:
        """Return the questions to the owners of those pods that are idle now, and reply what was done.

        Args:
            current: by allocation key; None: not measured.
            sent: ids of all alerts.
        """
        if current is None:
            await self.reply(command, NOT_ASKED, None)
            return []
        asked, lines = [], []
        for key in command.alert.split():
            found = await self._question(command, key, current.get(key), sent, snoozes)
            refused = found if isinstance(found, str) else ""
            self._write("", command, key, refused)
            lines.append(refused)
            if isinstance(found, Alert):
                asked.append(found)
                lines[-1] = f"Asked {mention(found.owner)} about {code(key)} in a direct message."
        await self.reply(command, "\n".join(lines), None)
        return asked

    async def _question(
        self,
        command: Command,
        key: str,
        current: Assessment | None,
        sent: Collection[str],
        snoozes: Mapping[str, Snooze],
    ) -> Alert | str:
        """Return the question, or why it isn't asked."""
        if current is None or not current.kind.needs_alert or current.allocation.sweep:
            return f"Not asked: the GPUs of {code(key)} are busy, not measured, or no longer allocated."
        owner = current.allocation.owner
        if refused := self._pod_denial(
            command.user, owner, current.allocation.team, f"ask about {code(key)}"
        ):
            return refused
        if not owner:
            return (
                f"Not asked: the owner of {code(key)} is unknown. "
                "*Fix:* Set its label `sweepbot/owner` to the owner's Slack user ID."
            )
        if snooze := active_snooze(key, snoozes, self.now):
            return f"Not asked: {mention(snooze.by)} snoozed {code(key)} until {local_time(snooze.until)}."
        asked = question(current, command.user, self.now)
        if asked.id in sent:
            return f"{mention(owner)} was asked about {code(key)} before."
        try:
            return replace(asked, channel=await self.clients.slack.open_dm(owner))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't ask %s: %s", owner, error)
            return f"Not asked: Slack can't send a direct message to {mention(owner)}."

    async def reply(self, command: Command, text: str, alert: Alert | None) -> None:
        """Reply ephemerally in the alert's thread; a response_url would put it into the channel."""
        if alert:
            await self._show(command.user, text, channel=alert.channel, thread=alert.thread)
        else:
            await self._show(command.user, text, response_url=command.response_url)

    async def _show(self, user: str, text: str, **where: str) -> None:
        try:
            await self.clients.slack.post_ephemeral(user, text, **where)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't reply to %s: %s", user, error)

    async def _cancel(self, command: Command, alert: Alert, current: dict[str, Snooze]) -> None:
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
            await self.reply(command, not_cancelled(alert, spared, current, self.now), alert)

    async def _snooze(self, command: Command, alert: Alert, current: dict[str, Snooze]) -> dict[str, Snooze]:
        refused = await self._snooze_denial(command, alert)
        self._write(alert.sweep, command, f"{alert.id}, {command.hours} h", refused)
        if refused:
            await self.reply(command, refused, alert)
            return current
        until = self.now + timedelta(hours=command.hours)
        snooze = Snooze(until=until, by=command.user, name=command.user_name)
        current = current | {item.key: snooze for item in alert.open}
        await SnoozeStore(self.clients).save(current, self.now)
        if alert.asked_by not in ("", command.user):
            await self._show(alert.asked_by, owner_answered(alert, snooze, command.hours))
        return current

    def _write(self, sweep: str, command: Command, about: str, refused: str) -> None:
        action = command.action
        entry = AuditEntry(at=self.now, user=command.user, action=action, about=about, refused=refused)
        write_entry(sweep, entry)

    async def _snooze_denial(self, command: Command, alert: Alert) -> str:
        """Return why the user can't snooze the alert; empty if allowed."""
        if alert.sweep:
            sweep = await find_sweep(self.clients, alert.sweep)
            return denial(command.user, Action.KEEP, sweep, self.clients.config) if sweep else GONE
        return self._pod_denial(command.user, alert.owner, alert.team, "snooze this warning")

    def _pod_denial(self, user: str, owner: str, team: str, what: str) -> str:
        """Return why the user can't do this about a pod outside sweeps; empty if allowed."""
        config = self.clients.config
        granted = granted_team(config.teams, user, config.self_assigned)
        if (granted and granted.name == team) or user == owner or user in config.admins:
            return ""
        who = mention(owner) if owner else "the pod's owner"
        members = f", a member of team {plain(team)}," if team else ""
        return f"Only {who}{members} or an admin can {what}."

    async def _utilization(self, alert: Alert) -> str:
        """Return current utilization, which may differ from that in the alert."""
        sweep = await find_sweep(self.clients, alert.sweep) if alert.sweep else None
        window = measurement_window(thresholds_of(sweep, self.clients.config.warnings))
        window = LOW_WINDOW if alert.kind.over_two_hours else window
        if not alert.about_gpus:
            return await self._cpu_utilization(alert, sweep, window)
        try:
            current = allocations(await self.source.pods(window), self.cluster)
        except NoGpuDataError as why:
            return f"GPU metrics are unavailable: {why}"
        has_prometheus = self.cluster == HOME_CLUSTER and self.clients.settings.prometheus_url
        source = "Prometheus" if has_prometheus else "dcgm-exporter"
        return utilization([current[item.key] for item in alert.open if item.key in current], window, source)

    async def _cpu_utilization(self, alert: Alert, sweep: SweepRecord | None, window: timedelta) -> str:
        if self.cpus is None:
            return NO_CPUS
        shown = {item.name for item in alert.open}
        running = await running_trials(self.clients, [sweep] if sweep else [])
        try:
            return await cpu_utilization(self.cpus, [each for each in running if each.name in shown], window)
        except NoGpuDataError as why:
            return f"{NO_CPUS.removesuffix('.')}: {why}"


async def find_sweep(clients: Clients, sweep_id: str) -> SweepRecord | None:
    """Return None for an unknown sweep and for one of a newer Sweepbot, which warns about it itself."""
    try:
        return await clients.store.get(sweep_id)
    except ValueError:
        return None


def thresholds_of(sweep: SweepRecord | None, default: IdleThresholds) -> IdleThresholds:
    """Return the default thresholds with those of the sweep's space file over them."""
    return replace(default, **sweep.plan.space.watch) if sweep and sweep.plan else default
