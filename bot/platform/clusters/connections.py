"""Connect to the clusters of trials beside the main cluster, as the current configuration names them; share
reads of them, and store which cluster each name meant first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from bot.platform.config.clusters import TrialCluster, find_cluster, remote
from bot.platform.config.policy import Config
from bot.platform.storage.configmaps import ConfigMapStore
from k8s.api.cache import Caches
from k8s.api.client import KubernetesClient
from k8s.api.errors import ClusterUnreachableError
from k8s.api.remote import RemoteClient

Connect = Callable[[TrialCluster], KubernetesClient]  # connects with the first call

T = TypeVar("T")
RETENTION = 30.0  # seconds


class SharedReads:
    """`retention`: seconds for which a result is returned again. A failed read isn't kept."""

    def __init__(self, retention: float = RETENTION) -> None:
        self._retention = retention
        self._reads: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the latest read of `what`, or of a new one. Raises what it raises.

        A caller that is cancelled doesn't end it for the others.
        """
        if what not in self._reads:
            task = asyncio.ensure_future(read())
            self._reads[what] = task
            task.add_done_callback(lambda _: self._keep(what, task))
        found: T = await asyncio.shield(self._reads[what])
        return found

    def forget(self, what: Hashable) -> None:
        self._reads.pop(what, None)

    def _keep(self, what: Hashable, task: asyncio.Future[Any]) -> None:
        # exception() also takes the error of a read whose callers are all gone, which asyncio would log.
        if task.cancelled() or task.exception():
            self._drop(what, task)
        else:
            asyncio.get_running_loop().call_later(self._retention, self._drop, what, task)

    def _drop(self, what: Hashable, task: asyncio.Future[Any]) -> None:
        if self._reads.get(what) is task:
            del self._reads[what]


@dataclass(frozen=True, kw_only=True, eq=False)
class RemoteCluster:
    config: TrialCluster
    api: KubernetesClient
    caches: Caches = field(default_factory=Caches)  # filled by watches (bot.sweep.sweeps.informer)

    @property
    def failure(self) -> ClusterUnreachableError | None:
        """Why the last call failed; None if it was answered, and before the first one."""
        return self.api.failure if isinstance(self.api, RemoteClient) else None

    @property
    def answers(self) -> bool:
        return isinstance(self.api, RemoteClient) and self.api.seen is not None and not self.api.failure


class Clusters:
    """One connection per entry of the configuration; a changed entry gets another one.

    `reads`: of all clusters, by name.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: dict[TrialCluster, RemoteCluster] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.reads = SharedReads()

    def get(self, name: str, config: Config) -> RemoteCluster:
        """Return a cluster; one that was removed from the configuration never answers."""
        found = find_cluster(remote(config.clusters), name)
        if found is None:
            unknown = TrialCluster(name=name)
            return RemoteCluster(config=unknown, api=RemovedCluster(name))
        if found not in self._open:
            self._open[found] = RemoteCluster(config=found, api=self._connect(found))
        return self._open[found]

    def all(self, config: Config) -> tuple[RemoteCluster, ...]:
        return tuple(self.get(each.name, config) for each in remote(config.clusters))

    def close_unused(self, config: Config) -> None:
        """Close the connections of entries that were changed or removed, after the calls of their users."""
        for entry in self._open.keys() - set(remote(config.clusters)):
            api = self._open.pop(entry).api
            if isinstance(api, RemoteClient):
                task = asyncio.create_task(api.close_when_idle())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for each in self._open.values():
            await each.api.close()


class RemovedCluster(KubernetesClient):
    """Stands for a cluster that the configuration no longer names, and where sweeps can still run."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def _api(self) -> NoReturn:
        fix = f"Add `{self._name}` to `clusters:` again."
        raise ClusterUnreachableError(self._name, "it isn't in `clusters:` anymore", fix=fix)


def no_clusters() -> Clusters:
    """Return what a process without access to other clusters has."""
    return Clusters(lambda each: RemovedCluster(each.name))


NAME = "sweepbot-clusters"


class Identities:
    """A ConfigMap in the main cluster: cluster -> uid. Methods raise ApiError and UnreachableError."""

    def __init__(self, home: KubernetesClient, namespace: str) -> None:
        self._store = ConfigMapStore[str](home, namespace, NAME)

    async def stored(self, cluster: str, uid: str) -> str:
        """Return the uid that was stored first for this cluster; this one if there is none."""
        return (await self._store.read()).values.get(cluster, uid)

    async def known(self, cluster: str, uid: str) -> str:
        """Return the uid that was stored first for this cluster; store this one if there is none."""
        if stored := await self.stored(cluster, ""):
            return stored
        await self._store.write({cluster: uid})
        return uid
