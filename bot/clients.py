"""The clients of other systems that workers use, passed as one value."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

from bot.charts.drawing import Pictures
from bot.clusters.connections import Clusters, RemoteCluster, no_clusters
from bot.config.policy import Config, namespaces_in
from bot.config.settings import Settings
from bot.core.plan import HOME_CLUSTER
from bot.core.work_item import WorkItem
from bot.gpus.hourly_store import HourlyStore
from bot.registry.client import Registry
from bot.repos.git import Git
from bot.results.experiments import MlflowExperiments
from bot.results.live import LiveValues
from bot.results.store import ResultsStore
from bot.slack.client import Slack
from bot.storage.free_capacity import CapacityStore
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.text.masking import Mask
from bot.text.terminal import as_shown
from k8s.api.cache import Caches
from k8s.api.client import KubernetesClient
from k8s.api.logs import LOG_LINES, tail


@dataclass(kw_only=True)
class Clients:
    """`config` includes what admins set up in Slack (bot.channels.store).

    `cluster` is the home cluster, with all records, builds, and results. `trials` is the cluster of one
    sweep's trials: the home cluster, unless `of` returned these clients.
    """

    store: Store
    cluster: KubernetesClient
    registry: Registry
    git: Git
    slack: Slack
    results: MlflowExperiments
    live: LiveValues
    settings: Settings
    config: Config
    queue: Queue
    usage: HourlyStore
    capacity: CapacityStore
    pictures: Pictures
    now: Callable[[], datetime]
    caches: Caches = field(default_factory=Caches)  # filled by watches (bot.sweeps.informer)
    clusters: Clusters = field(default_factory=no_clusters)
    at: RemoteCluster | None = field(default=None, init=False, repr=False)  # set by `of`; None: at home

    @cached_property
    def mask(self) -> Mask:
        """Masks this installation's secrets, and known forms of secrets, in text from other systems."""
        return Mask(self.settings.secrets())

    def of(self, cluster: str) -> Self:
        """Return these clients for sweeps whose trials run in this cluster."""
        at = None if cluster == HOME_CLUSTER else self.clusters.get(cluster, self.config)
        if at is self.at:
            return self
        found = copy(self)
        found.at, found.capacity, found.usage = at, self.capacity.at(cluster), self.usage.at(cluster)
        return found

    @property
    def home(self) -> Self:
        return self.of(HOME_CLUSTER)

    @property
    def trials(self) -> KubernetesClient:
        return self.at.api if self.at else self.cluster

    @property
    def trial_caches(self) -> Caches:
        return self.at.caches if self.at else self.caches

    def namespaces_elsewhere(self) -> tuple[tuple[KubernetesClient, str], ...]:
        """Return the namespaces for trials in other clusters than the home cluster, with the cluster."""
        home = self.settings.k8s_namespace
        remotes = self.clusters.all(self.config)
        return tuple(
            (each.api, name) for each in remotes for name in namespaces_in(each.config, home, self.config)
        )

    @property
    def kept_results(self) -> ResultsStore:
        """The results of ended sweeps."""
        return ResultsStore(self.cluster, self.settings.k8s_namespace)

    async def wake(self, sweep_id: str, *, after: timedelta = timedelta(0)) -> None:
        """Queue a reconcile of the sweep; several calls result in one."""
        await self.queue.add_after(WorkItem.sweep(sweep_id), after.total_seconds())

    async def tail(
        self, namespace: str, pod: str, container: str, lines: int = LOG_LINES, *, previous: bool = False
    ) -> str:
        """Return the last lines of a container's log in the trials' cluster, masked (k8s.api.logs.tail)."""

        def clean(log: str) -> str:
            return self.mask(as_shown(log))

        return await tail(self.trials, namespace, pod, container, lines, previous=previous, clean=clean)
