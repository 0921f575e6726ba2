"""Collect GPU use in each cluster of trials beside the home cluster, each under a lease of its own."""

import asyncio
from functools import partial

from redis.asyncio import Redis

from bot.clusters.connections import Clusters, RemoteCluster
from bot.config.policy import namespaces_in
from bot.config.settings import Settings
from bot.gpus.collector import Now, ReadConfig, UsageCollector
from bot.gpus.dcgm_source import SampleStore, ScrapeSource

INTERVAL = 10.0  # seconds until a cluster that was added is measured


class RemoteUsage:
    def __init__(
        self, redis: Redis, clusters: Clusters, settings: Settings, config: ReadConfig, now: Now
    ) -> None:
        self._redis, self._clusters, self._settings = redis, clusters, settings
        self._config, self._now = config, now
        self._running: dict[RemoteCluster, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        try:
            while True:
                self.follow()
                await asyncio.sleep(INTERVAL)
        finally:
            self._stop(set(self._running))

    def follow(self) -> None:
        configured = set(self._clusters.all(self._config()))
        for each in configured - self._running.keys():
            self._running[each] = asyncio.create_task(self.collector(each).run())
        self._stop(self._running.keys() - configured)

    def collector(self, cluster: RemoteCluster) -> UsageCollector:
        name, home = cluster.config.name, self._settings.k8s_namespace

        def namespaces() -> tuple[str, ...]:
            return namespaces_in(cluster.config, home, self._config())

        source = ScrapeSource(SampleStore(self._redis, name), self._now)
        collect = partial(UsageCollector, self._redis, cluster.api, source, self._settings, self._config)
        return collect(self._now, name=name, namespaces=namespaces)

    def _stop(self, clusters: set[RemoteCluster]) -> None:
        for each in clusters:
            self._running.pop(each).cancel()
