"""Reconcile environments: make the cluster as a record wants, and redraw its message.

An environment is reconciled when its pods or StatefulSet change, and all are when their watch begins.

Every step is idempotent, because a worker can die at any call: objects have deterministic names, everything
but the home is owned by the StatefulSet or the Deployment, and a record that has changed meanwhile isn't
overwritten.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from redis.exceptions import RedisError

from bot.core.errors import UserError
from bot.platform.clients import Clients
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.storage.redis_client import REDIS_RETRY
from bot.workspaces.environments import cluster, diagnosis
from bot.workspaces.environments.cluster import item
from bot.workspaces.environments.diagnosis import Stage, deciding, durations, ready_pods, stage_of
from bot.workspaces.environments.message import Observed, message
from bot.workspaces.environments.record import Environment, EnvironmentRecord, Wanted
from bot.workspaces.environments.spec import address_of, service_url_of
from k8s.api.cache import Cache, Change
from k8s.api.client import Manifests
from k8s.api.errors import ApiError
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.objects import OURS, Manifest, ref_of
from k8s.slim import slim

log = logging.getLogger(__name__)

POLL = timedelta(seconds=10)  # while it starts or stops: events aren't watched
NOT_IN_CHANNEL = (
    "{} `{}` didn't start: Sweepbot can't post in that channel. *Fix:* Run `/invite @sweepbot` "
    "there (the app's name can differ), then start it again."
)

WATCHED = ("Pod", "StatefulSet")
BATCH_SECONDS = 0.2  # further changes of the same environment are one wake
NAMESPACE_INTERVAL = 10.0  # seconds until a namespace that was configured meanwhile is watched


@dataclass(frozen=True)
class EnvironmentReconciler:
    clients: Clients

    async def run(self, name: str) -> timedelta | None:
        """Reconcile once. Return when to do so again; None: when it changes."""
        if self.clients.config.environments is None:
            return None
        environment = await cluster.load(name, self.clients)
        if environment is None:
            return None
        if not environment.record.ts and environment.record.wanted is not Wanted.DELETED:
            environment = await self._open_message(environment)
        if environment.record.wanted is Wanted.DELETED:
            await self._delete(environment)
            return None
        environment = await self._scale(environment)
        return await self._report(environment)

    async def _open_message(self, environment: Environment) -> Environment:
        """Post the message before anything runs. In other channels, delete the environment instead."""
        record = environment.record
        shown = message(record, Observed())
        try:
            ts = await self.clients.slack.post(record.channel, shown)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't post the message of environment %s: %s", record.name, error)
            return await self._save(environment, record.delete(self.clients.now(), reason="no message"))
        return await self._save(environment, replace(record, ts=ts, shown=shown.fingerprint))

    async def _delete(self, environment: Environment) -> None:
        """Show that it is deleted, then delete it: afterwards nothing knows its message."""
        record = environment.record
        if record.ts:
            await self._show(record, Observed(has_home=await cluster.has_home(record, self.clients)))
        else:
            await self._tell(record.owner, NOT_IN_CHANNEL.format(record.noun.capitalize(), record.name))
        await self.clients.cluster.delete(ref_of(environment.manifest), uid=environment.uid)

    async def _scale(self, environment: Environment) -> Environment:
        record = environment.record
        if record.wanted is Wanted.STOPPED or environment.replicas:
            return environment
        before = await cluster.pods_of(record.name, self.clients)
        if any("deletionTimestamp" not in pod["metadata"] for pod in before):
            return environment  # its controller would keep the pod of the start before
        try:
            return await cluster.start_pod(environment, self.clients)
        except UserError as error:
            return await self._save(environment, record.stop(self.clients.now(), reason=str(error)))
        except ApiError as error:
            if not error.permanent:
                raise
            reason = f"the cluster rejected it ({self.clients.mask(error.message)})"
            return await self._save(environment, record.stop(self.clients.now(), reason=reason))

    async def _report(self, environment: Environment) -> timedelta | None:
        pods = await cluster.pods_of(environment.record.name, self.clients)
        seen = await self._observe(environment, pods)
        environment = await self._note(environment, seen)
        record = environment.record
        if (shown := message(record, seen)).fingerprint != record.shown:
            await self._show(record, seen)
            environment = await self._save(environment, replace(record, shown=shown.fingerprint))
        settled = seen.stage is Stage.READY if record.wanted is Wanted.RUNNING else not pods
        return None if settled else POLL

    async def _observe(self, environment: Environment, pods: Manifests) -> Observed:
        if environment.record.wanted is not Wanted.RUNNING:
            has_home = await cluster.has_home(environment.record, self.clients)
            return Observed(has_pod=bool(pods), has_home=has_home)
        seen = await self._observe_pod(environment, deciding(pods, environment.record.replicas))
        if environment.record.service is None:
            return seen
        config = cluster.configured(self.clients.config)
        address = address_of(environment.record, config)
        url, ready = service_url_of(environment.record.name, config), ready_pods(pods)
        return replace(seen, node="", ready=ready, address=address, url=url)

    async def _observe_pod(self, environment: Environment, pod: Manifest | None) -> Observed:
        leaving = pod is not None and "deletionTimestamp" in pod["metadata"]  # its successor comes afterwards
        is_ready = stage_of(pod, ()) is Stage.READY and not leaving
        if pod and is_ready and environment.record.ready_at:
            return _ready(pod, {})
        evidence = await diagnosis.collect(environment, pod, self.clients)
        if pod and is_ready:
            return _ready(pod, durations(pod, evidence.events, environment.record.since))
        stage = Stage.NODE if leaving else stage_of(pod, evidence.events)
        return Observed(stage=stage, problem=diagnosis.diagnose(evidence))

    async def _note(self, environment: Environment, seen: Observed) -> Environment:
        """Record when it became ready, and where it runs."""
        record = environment.record
        if record.wanted is not Wanted.RUNNING or seen.stage is not Stage.READY:
            return environment
        ready_at = record.ready_at or self.clients.now()
        after = replace(record, node=seen.node, ready_at=ready_at, took=record.took or seen.took)
        return environment if after == record else await self._save(environment, after)

    async def _tell(self, user: str, text: str) -> None:
        try:
            await self.clients.slack.post_ephemeral(user, text)
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't notify %s about an environment: %s", user, error)

    async def _show(self, record: EnvironmentRecord, seen: Observed) -> None:
        try:
            await self.clients.slack.update(record.channel, record.ts, message(record, seen))
        except (NotInChannelError, MessageRejectedError) as error:
            log.warning("can't update the message of environment %s: %s", record.name, error)

    async def _save(self, environment: Environment, record: EnvironmentRecord) -> Environment:
        return await cluster.save(environment, record, self.clients)


def _ready(pod: Manifest, took: dict[str, float]) -> Observed:
    node = str(pod["spec"].get("nodeName", ""))
    return Observed(stage=Stage.READY, node=node, took=took)


class EnvironmentInformer:
    """Its caches only show that something changed: reconciles read the API server."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._changed: set[str] = set()
        self._has_work = asyncio.Event()

    async def run(self) -> None:
        """Watch the configured namespace, also one that is configured later, until cancelled."""
        watched = set[str]()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake())
            while True:
                config = self._clients.config.environments
                if config and config.namespace not in watched:
                    watched.add(config.namespace)
                    self._watch(config.namespace, group)
                await asyncio.sleep(NAMESPACE_INTERVAL)

    def _watch(self, namespace: str, group: asyncio.TaskGroup) -> None:
        outage = Outage(self._clients.cluster, lambda: None)
        for kind in WATCHED:
            cache = Cache(kind, namespace, self.add, slim)
            watch = watch_forever(self._clients.cluster, cache, OURS, outage, on_fresh=lambda: None)
            group.create_task(watch)

    def add(self, change: Change) -> None:
        self._changed.add(change.group[1])
        self._has_work.set()

    async def _wake(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            names, self._changed = self._changed, set()
            try:
                for name in sorted(names):
                    await self._clients.queue.add(item(name))
                await asyncio.sleep(BATCH_SECONDS)
            except RedisError as error:
                log.warning("can't wake environments: %s", error)
                self._changed |= names
                self._has_work.set()
                await asyncio.sleep(REDIS_RETRY.seconds())
