"""Keep each worker's caches of all clusters current by watches, wake sweeps when they change, and resync all;
show probes whether the watches get answers.

Every worker watches. One of them, under a lease, wakes sweeps and runs the resync; the others wake what it
misses (`bot.sweep.sweeps.wakes`). If a worker reconciles a sweep before its own caches show a change, it
wakes the sweep again when they do; the queue has a sweep once, no matter how many workers wake it.
"""

import asyncio
import itertools
import logging
import math
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.metrics import CLUSTER_RESPONSE, WATCH_FAILURES, WATCH_RESPONSE
from bot.platform.clusters.connections import RemoteCluster
from bot.platform.config.policy import Config, all_namespaces, namespaces_in
from bot.platform.runtime.probes import ProbeFailedError
from bot.platform.storage.leader import lead
from bot.sweep.clients import SweepClients
from bot.sweep.model import engine
from bot.sweep.sweeps.durable_record import recover
from bot.sweep.sweeps.wakes import Wakes
from k8s.api.cache import Cache
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.outage import Outage
from k8s.api.watch import SILENCE, watch_forever
from k8s.objects import OURS
from k8s.slim import slim
from k8s.trial_kinds import JOB

WATCHED_BUILD_KINDS = ("Pod", JOB.kind)  # in the namespace of builds
WATCHED_KINDS = (*WATCHED_BUILD_KINDS, *engine.WATCHED)


def watched_in_trials(config: Config) -> tuple[str, ...]:
    """Return the kinds in each namespace of trials.

    Those that only an earlier configuration used aren't watched: their sweeps are woken by pods and trials.
    """
    return tuple(dict.fromkeys((*WATCHED_KINDS, config.trials.multi_node.kind)))


CLUSTERS_INTERVAL = 10.0  # seconds until a cluster or a namespace that was added is watched


class RemoteWatches:
    def __init__(self, clients: SweepClients, wakes: Wakes) -> None:
        self._clients, self._wakes = clients, wakes
        self._watching: dict[RemoteCluster, list[asyncio.Task[None]]] = {}
        self._outages: dict[RemoteCluster, Outage] = {}

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        try:
            while True:
                self.follow()
                self._clients.clusters.close_unused(self._clients.config)
                await asyncio.sleep(CLUSTERS_INTERVAL)
        finally:
            self._stop(set(self._watching))

    def follow(self) -> None:
        """Start the watches that the configuration adds, and stop those of clusters that it removes."""
        config, home = self._clients.config, self._clients.settings.k8s_namespace
        configured = self._clients.clusters.all(config)
        for each in configured:
            watched = {(cache.kind, cache.namespace) for cache in each.caches}
            places = itertools.product(watched_in_trials(config), namespaces_in(each.config, home, config))
            for kind, namespace in dict.fromkeys(places):
                if (kind, namespace) not in watched:
                    self._watch(each, kind, namespace)
        self._stop(self._watching.keys() - set(configured))

    def _watch(self, cluster: RemoteCluster, kind: str, namespace: str) -> None:
        cache = Cache(kind, namespace, self._wakes.add, slim)
        cluster.caches.add(cache)
        outage = self._outages.setdefault(cluster, Outage(cluster.api, lambda: None))
        answered = CLUSTER_RESPONSE.labels(cluster.config.name).set_to_current_time
        failed = partial(WATCH_FAILURES.labels(kind).inc, 1)
        watch = watch_forever(cluster.api, cache, OURS, outage, on_fresh=answered, on_failed=failed)
        self._watching.setdefault(cluster, []).append(asyncio.create_task(watch))

    def _stop(self, clusters: set[RemoteCluster]) -> None:
        for each in clusters:
            for task in self._watching.pop(each):
                task.cancel()
            self._outages.pop(each, None)


log = logging.getLogger(__name__)

RESYNC_LEASE = 15.0  # seconds
RESYNC_INTERVAL = timedelta(minutes=5)
STALE_AFTER = 1.1 * SILENCE  # seconds without a response from the API server
FIRST_LIST_TIMEOUT = 10.0  # seconds without progress; then reconciles start without complete caches
NAMESPACES_INTERVAL = 10.0  # seconds until a namespace that was added is watched
LISTS_TIMEOUT = 60.0  # seconds; then they do in any case


class SweepInformer:
    def __init__(self, redis: Redis, clients: SweepClients) -> None:
        self._redis, self._clients = redis, clients
        self._answered: dict[tuple[str, str], float] = {}  # (kind, namespace) -> when; empty: not started
        self._suspected, self._recovered = asyncio.Event(), asyncio.Event()
        self._outage = Outage(clients.cluster, self._recovered.set)
        self.wakes = Wakes(clients)
        self._add_caches()

    async def run(self) -> None:
        """Watch and wake until cancelled; then another worker takes over the resync."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.wakes.run())
            group.create_task(self._probe())
            group.create_task(self._lead())
            group.create_task(self._follow_all(group))
            group.create_task(RemoteWatches(self._clients, self.wakes).run())

    async def listed(self, stop: asyncio.Event, within: float = LISTS_TIMEOUT) -> None:
        """Wait until the caches are complete for the first time, or until `stop`.

        Gives up after `within` seconds, and after 10 s in which no list has come further. Reconciles before
        that read the API server, three lists for each sweep, and 1,000 sweeps then keep it from answering the
        lists of the watches.
        """
        waits = [asyncio.ensure_future(each) for each in (self._clients.caches.listed(), stop.wait())]
        until = monotonic() + within
        while (since := monotonic()) < until:
            done, _ = await asyncio.wait(
                waits, timeout=FIRST_LIST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
            if done or not self._has_progressed(since):
                break
        for each in waits:
            each.cancel()

    def _has_progressed(self, since: float) -> bool:
        """Return whether the API server has sent a page of a first list."""
        unlisted = [cache for cache in self._clients.caches if not cache.listed.is_set()]
        return any(self._answered.get((cache.kind, cache.namespace), 0) >= since for cache in unlisted)

    def suspect(self) -> None:
        """Report a call that failed as if the API server were down; retry all failed items once it is back.

        Watches alone would notice too late that etcd is down: their streams stay open.
        """
        self._suspected.set()

    async def fresh(self) -> str:
        """Return how long the quietest watch of the installation's namespace has had no response.

        Raises ProbeFailedError if that is longer than in a cluster without changes. A watch of another
        namespace, or of a kind that isn't part of Katib or Kubernetes, that fails is only logged.
        """
        if not self._answered:
            return "not started"
        home = self._clients.settings.k8s_namespace
        kind, answered = min(
            (
                (kind, at)
                for (kind, place), at in self._answered.items()
                if place == home and kind in WATCHED_KINDS
            ),
            key=lambda item: item[1],
        )
        silent = monotonic() - answered
        if silent > STALE_AFTER:
            raise ProbeFailedError(f"no response about {kind} in {home} for {silent:.0f} s")
        return f"watching; last response {silent:.0f} s ago"

    def _watched(self) -> dict[tuple[str, str], None]:
        settings, config = self._clients.settings, self._clients.config
        trials = itertools.product(watched_in_trials(config), all_namespaces(settings.k8s_namespace, config))
        return dict.fromkeys((*trials, *((kind, settings.builds_in) for kind in WATCHED_BUILD_KINDS)))

    def _add_caches(self) -> None:
        known = {(cache.kind, cache.namespace) for cache in self._clients.caches}
        for kind, namespace in self._watched():
            if (kind, namespace) not in known:
                self._clients.caches.add(Cache(kind, namespace, self.wakes.add, slim))

    async def _follow_all(self, group: asyncio.TaskGroup) -> None:
        """Watch the configured namespaces, and those that a changed configuration adds.

        A removed one is watched until the process ends: sweeps can still run there.
        """
        while True:
            self._add_caches()
            for cache in self._clients.caches:
                if (cache.kind, cache.namespace) not in self._answered:
                    self._answered[cache.kind, cache.namespace] = monotonic()
                    group.create_task(self._follow(cache))
            await asyncio.sleep(NAMESPACES_INTERVAL)

    async def _follow(self, cache: Cache) -> None:
        def answered() -> None:
            self._answered[cache.kind, cache.namespace] = monotonic()
            WATCH_RESPONSE.labels(cache.kind, cache.namespace).set_to_current_time()

        failed = WATCH_FAILURES.labels(cache.kind).inc
        await watch_forever(
            self._clients.cluster, cache, OURS, self._outage, on_fresh=answered, on_failed=failed
        )

    async def _probe(self) -> None:
        while True:
            await self._suspected.wait()
            if await self._outage.over(None):
                with suppress(RedisError):  # the leader's watches can have missed it; it resyncs in minutes
                    await self._clients.queue.hurry()
            self._suspected.clear()

    async def _lead(self) -> None:
        await self.listed(asyncio.Event(), math.inf)
        self.wakes.leads = False
        while True:
            await lead(self._redis, "sweepbot:resync", RESYNC_LEASE, self._resync_and_wake)

    async def _resync_and_wake(self) -> None:
        self.wakes.leads = True
        try:
            await self._resync()
        finally:
            self.wakes.leads = False

    async def _resync(self) -> None:
        """Wake unfinished sweeps, in case a watch missed a change, and restore those that Redis lost.

        At the end of an outage, do so at once, and make all failed items ready.
        """
        while True:
            self._recovered.clear()
            again = RESYNC_INTERVAL
            try:
                await self._clients.queue.hurry()
                await recover(self._clients)
            except (ApiError, UnreachableError, RedisError) as error:
                log.warning("can't list unfinished sweeps: %s", error)
                if isinstance(error, ApiError) and error.throttled:
                    again = timedelta(seconds=error.wait)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._recovered.wait(), again.total_seconds())
