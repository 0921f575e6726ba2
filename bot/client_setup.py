"""Connect the clients of other systems, for workers and for the commands of operators, or say why there is no
access to a cluster.
"""

import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial

from redis.asyncio import Redis
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.errors import UserError
from bot.core.metrics import measured
from bot.core.work_item import WorkItem
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.clients import own_registry
from bot.platform.clusters.connections import Clusters, Identities
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.settings import Settings
from bot.platform.repos.git import Git
from bot.platform.repos.git_commands import logins
from bot.platform.slack.client import Slack
from bot.platform.slack.rate_limit import RateLimiter
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.quiet import QuietHours
from bot.sweep.charts.drawing import Pictures
from bot.sweep.clients import SweepClients
from bot.sweep.results.experiments import MlflowExperiments
from bot.sweep.results.live import LiveValues
from bot.sweep.results.log_curves import LogReader
from bot.sweep.results.tracking_api import TrackingApi
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.api.remote import RemoteClient


async def connect_clients(
    settings: Settings, policy: LivePolicy, redis: Redis, web: AsyncWebClient, stack: AsyncExitStack
) -> SweepClients:
    """Return clients that are closed with `stack`.

    Raises UserError without access to a cluster, and without credentials.
    """
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415  see KubernetesClient.connect

    measure = partial(measured, "kubernetes", _is_answer)
    try:
        cluster = await KubernetesClient.connect(measure)
    except ConfigException as error:
        raise UserError(f"No access to a cluster: {error}. *Fix:* Set KUBECONFIG.") from None
    stack.push_async_callback(cluster.close)
    identities = Identities(cluster, settings.k8s_namespace)

    def connect(other: TrialCluster) -> RemoteClient:
        known = partial(identities.known, other.name)
        return RemoteClient(other.name, other.kubeconfig, other.context, known, measure)

    clusters = Clusters(connect)
    stack.push_async_callback(clusters.close)
    registry = own_registry(settings)
    stack.push_async_callback(registry.close)
    queue = Queue(redis)

    async def wake(sweep_id: str) -> None:
        await queue.add(WorkItem.sweep(sweep_id))

    store, now = Store(redis), partial(datetime.now, UTC)
    quiet = QuietHours(store, queue, lambda: clients.config.people, now)
    pictures = Pictures(wake, settings.mask)
    stack.push_async_callback(pictures.close)
    mlflow = settings.mlflow_tracking_uri
    clients = SweepClients(
        store=store,
        queue=queue,
        cluster=cluster,
        clusters=clusters,
        registry=registry,
        git=Git(settings.sweepbot_data / "git", logins(policy.config, os.environ)),
        slack=Slack(web, RateLimiter(redis), settings.mask, quiet),
        results=MlflowExperiments(mlflow, settings.mlflow_ui, wake, settings.katib_ui_url or ""),
        live=LiveValues(redis, TrackingApi(mlflow), LogReader(cluster), wake),
        settings=settings,
        config=policy.config,
        usage=HourlyStore(redis),
        capacity=CapacityStore(redis),
        pictures=pictures,
        now=now,
    )
    return clients


def _is_answer(error: Exception) -> bool:
    """Return whether the API server answered; "not found" and conflicts are ordinary answers."""
    return isinstance(error, ApiError) and not error.outage and error.status != 429
