"""The clients of other systems that every part of a worker can use, passed as one value."""

import logging
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from slack_sdk.errors import SlackApiError

from bot.core.commands import Command
from bot.core.plan import HOME_CLUSTER
from bot.core.work_item import WorkItem
from bot.platform.clusters.connections import Clusters, RemoteCluster, no_clusters
from bot.platform.config.policy import Config, namespaces_in
from bot.platform.config.settings import Settings
from bot.platform.registry.auth import CloudLogin, Login
from bot.platform.registry.client import Registry
from bot.platform.repos.git import Git
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, Slack
from bot.platform.slack.message import Message
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.text.masking import Mask
from bot.text.terminal import as_shown
from k8s.api.cache import Caches
from k8s.api.client import KubernetesClient
from k8s.api.logs import LOG_LINES, tail

log = logging.getLogger(__name__)


def own_registry(settings: Settings) -> Registry:
    """Return a client of the registry of built images, whose logins `settings.mask` masks, renewed ones, too.

    Call it inside a running event loop.
    """
    host, cloud = settings.registry_api, settings.registry_identity

    async def from_file() -> Login | None:
        """Find the login by either name of the registry."""
        return settings.login(host) or settings.login(settings.image_registry)

    credentials: Callable[[], Awaitable[Login | None]] = from_file
    if cloud:
        credentials = CloudLogin(cloud, host, settings.mask.add)
    return Registry(host, insecure=settings.image_registry_plain_http, credentials=credentials)


@dataclass(kw_only=True)
class Clients:
    """`config` includes what admins set up in Slack (bot.sweep.channels.store).

    `cluster` is the main cluster, with all records, builds, and results. `trials` is the cluster of one
    sweep's trials: the main cluster, unless `of` returned these clients.
    """

    store: Store
    cluster: KubernetesClient
    registry: Registry
    git: Git
    slack: Slack
    settings: Settings
    config: Config
    queue: Queue
    capacity: CapacityStore
    now: Callable[[], datetime]
    caches: Caches = field(default_factory=Caches)  # filled by watches (bot.sweep.sweeps.informer)
    clusters: Clusters = field(default_factory=no_clusters)
    at: RemoteCluster | None = field(default=None, init=False, repr=False)  # set by `of`; None: at home

    @property
    def mask(self) -> Mask:
        """Masks this installation's secrets, and known forms of secrets, in text from other systems."""
        return self.settings.mask

    def of(self, cluster: str) -> Self:
        """Return these clients for sweeps whose trials run in this cluster."""
        at = None if cluster == HOME_CLUSTER else self.clusters.get(cluster, self.config)
        if at is self.at:
            return self
        found = copy(self)
        found.at, found.capacity = at, self.capacity.at(cluster)
        return found

    @property
    def trials(self) -> KubernetesClient:
        return self.at.api if self.at else self.cluster

    @property
    def trial_caches(self) -> Caches:
        return self.at.caches if self.at else self.caches

    def namespaces_elsewhere(self) -> tuple[tuple[KubernetesClient, str], ...]:
        """Return the namespaces for trials in other clusters than the main cluster, with the cluster."""
        home = self.settings.k8s_namespace
        remotes = self.clusters.all(self.config)
        return tuple(
            (each.api, name) for each in remotes for name in namespaces_in(each.config, home, self.config)
        )

    async def wake(self, sweep_id: str, *, after: timedelta = timedelta(0)) -> None:
        """Queue a reconcile of the sweep; several calls result in one."""
        await self.queue.add_after(WorkItem.sweep(sweep_id), after.total_seconds())

    async def answer(self, command: Command, item: str, message: Message | str) -> None:
        """Answer a command that waits for this work item. An answer that Slack rejects is only logged."""
        try:
            await self.slack.post_ephemeral(command.user, message, command.response_url)
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("Slack rejected the answer of %s: %s", item, error)
        await self.store.remove_commands(item, [command])

    async def tail(
        self, namespace: str, pod: str, container: str, lines: int = LOG_LINES, *, previous: bool = False
    ) -> str:
        """Return the last lines of a container's log in the trials' cluster, masked (k8s.api.logs.tail)."""

        def clean(log: str) -> str:
            return self.mask(as_shown(log))

        return await tail(self.trials, namespace, pod, container, lines, previous=previous, clean=clean)
