"""Reconcile the GPU warnings of all clusters, one after another, each by its own measurements."""

from dataclasses import dataclass
from datetime import timedelta

from redis.asyncio import Redis

from bot.clients import Clients
from bot.config.clusters import remote
from bot.core.plan import HOME_CLUSTER
from bot.gpus.dcgm_source import SampleStore, ScrapeSource
from bot.gpus.models import ITEM, Source
from bot.idle.monitor import IdleMonitor
from bot.idle.store import AlertStore


@dataclass(frozen=True)
class IdleMonitors:
    clients: Clients
    redis: Redis
    source: Source  # of the home cluster

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
        return IdleMonitor(self.clients.of(cluster), source, AlertStore(self.redis, cluster), cluster)
