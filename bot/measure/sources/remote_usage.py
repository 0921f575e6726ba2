"""Collect and read GPU use in clusters beside the main cluster, each under a lease of its own."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from redis.asyncio import Redis

from bot.measure.gpus.models import HALF_HOUR, NodeUse, NoGpuDataError, Snapshot
from bot.measure.sources.collector import Now, ReadConfig, UsageCollector
from bot.measure.sources.dcgm_source import SampleStore, ScrapeSource
from bot.platform.clusters.connections import Clusters, RemoteCluster
from bot.platform.config.clusters import remote
from bot.platform.config.policy import Config, namespaces_in
from bot.platform.config.settings import Settings

INTERVAL = 10.0  # seconds until a cluster that was added is measured

Snapshots = Mapping[str, Snapshot | None]  # by cluster; None: no GPU data


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


async def snapshots_elsewhere(config: Config, redis: Redis, now: Callable[[], datetime]) -> Snapshots:
    """Return the latest snapshot of each cluster but the main cluster; its nodes are `cluster/node`."""

    async def measured(cluster: str) -> Snapshot | None:
        try:
            found = await ScrapeSource(SampleStore(redis, cluster), now).snapshot(HALF_HOUR)
        except NoGpuDataError:
            return None
        return _named(cluster, found)

    names = [each.name for each in remote(config.clusters)]
    return dict(zip(names, await asyncio.gather(*map(measured, names)), strict=True))


def nodes_of(snapshots: Snapshots) -> tuple[NodeUse, ...]:
    return tuple(node for each in snapshots.values() if each for node in each.nodes)


def _named(cluster: str, snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        nodes=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.nodes),
        pods=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.pods),
    )
