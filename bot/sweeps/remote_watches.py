"""Watch the clusters of trials beside the home cluster, each independently of the others."""

import asyncio
import itertools
from functools import partial

from bot.clients import Clients
from bot.clusters.connections import RemoteCluster
from bot.config.policy import namespaces_in
from bot.core.metrics import CLUSTER_RESPONSE, WATCH_FAILURES
from bot.sweeps.wakes import Wakes
from bot.sweeps.watched_kinds import watched_in_trials
from k8s.api.cache import Cache
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.objects import OURS

CLUSTERS_INTERVAL = 10.0  # seconds until a cluster or a namespace that was added is watched


class RemoteWatches:
    def __init__(self, clients: Clients, wakes: Wakes) -> None:
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
        cache = Cache(kind, namespace, self._wakes.add)
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
