"""Wake environments when their pods or StatefulSets change, and all of them when their watch begins."""

import asyncio
import logging

from redis.exceptions import RedisError

from bot.clients import Clients
from bot.environments.cluster import item
from k8s.api.cache import Cache, Change
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.objects import OURS

log = logging.getLogger(__name__)

WATCHED = ("Pod", "StatefulSet")
BATCH_SECONDS = 0.2  # further changes of the same environment are one wake
REDIS_RETRY = 1.0  # seconds
NAMESPACE_INTERVAL = 10.0  # seconds until a namespace that was configured meanwhile is watched


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
            cache = Cache(kind, namespace, self.add)
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
                await asyncio.sleep(REDIS_RETRY)
