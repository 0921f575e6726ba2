"""A sweep in memory whose trials run in the cluster west; records and results are in the main cluster."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.clusters.connections import Clusters
from bot.platform.config.clusters import TrialCluster
from bot.platform.storage.free_capacity import CapacityStore
from bot.sweep.sweeps.informer import RemoteWatches, SweepInformer
from k8s.api.errors import ClusterUnreachableError
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import NOW, REQUEST
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, SimulatedSweep

CLUSTERS = (TrialCluster(name="main"), TrialCluster(name="west", kubeconfig="/west"))
IN_WEST = {"sweep": {"request": replace(REQUEST, cluster="west")}, "image": True}


class RemoteCluster:
    """Fails as k8s.api.remote does while `away`."""

    def __init__(self, store: kubernetes.Store) -> None:
        self._inner, self.away = DirectCluster(store), False

    async def is_ready(self) -> bool:
        return not self.away

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise ClusterUnreachableError("west", "no route to host", seen=NOW)
        return getattr(self._inner, name)


class TwoClusters(SimulatedSweep):
    """`kubernetes`, with Katib and the controllers, is west; `home` has neither."""

    def __init__(self, redis: Redis, clock: Clock, **scenario: Any) -> None:
        super().__init__(redis, clock, **scenario)
        self.home, self.west = kubernetes.Store(), RemoteCluster(self.kubernetes)
        self.home.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
        self.cluster = DirectCluster(self.home)
        west: Any = CrashingWest(self.west, clock)
        self.clients = replace(
            self.clients,
            cluster=CrashingProxy(self.cluster, clock),
            clusters=Clusters(lambda _: west),
            config=replace(self.clients.config, clusters=CLUSTERS),
            now=lambda: self.time,
            capacity=CapacityStore(redis),
            usage=HourlyStore(redis),
        )
        self.time = NOW

    async def round(self, *args: Any, **kwargs: Any) -> None:
        await super().round(*args, **kwargs)
        self.time += timedelta(minutes=1)

    def cut(self, *, away: bool = True) -> None:
        """Make west unreachable, or reachable again. Its watches notice at once."""
        self.west.away = away
        for cache in self.clients.clusters.get("west", self.clients.config).caches:
            cache.complete = not away

    def watches(self) -> list[Any]:
        direct = replace(self.clients, cluster=self.cluster)
        self.informer = SweepInformer(self.redis, direct)
        self.remote = RemoteWatches(direct, self.informer.wakes)
        follow = [self.informer._follow(cache) for cache in self.clients.caches]
        return [*follow, self.remote.run()]


class CrashingWest(CrashingProxy):
    """Reads `away` when a call is made, as the client does. Watches are never part of a crash."""

    def __getattr__(self, name: str) -> Any:
        if name in {"pages", "watch", "is_ready"}:
            return getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await getattr(self._inner, name)(*args, **kwargs)
            finally:
                self._clock.tick()

        return call
