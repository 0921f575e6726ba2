"""Answer `/sweep queue` from Kueue's Workloads: the job of one work item."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from slack_sdk.errors import SlackApiError

from bot.answers.queue_messages import QueueView, queues_text
from bot.clients import Clients
from bot.config.policy import all_namespaces, namespaces_in
from bot.core.work_item import QUEUE
from bot.health.cluster_events import list_if_allowed
from bot.slack.client import MessageRejectedError, NotInChannelError
from k8s.api.errors import ApiError, UnreachableError
from k8s.kueue import Workload, places, read_workload, unfinished
from k8s.objects import GPU, Manifest
from k8s.quantities import amount

log = logging.getLogger(__name__)


async def answer_commands(_: str, clients: Clients) -> None:
    """Answer all waiting requests, with one read. Raises ApiError and UnreachableError."""
    commands = await clients.store.commands(str(QUEUE))
    if not commands:
        return
    views = [
        view
        for namespace in all_namespaces(clients.settings.k8s_namespace, clients.config)
        for view in await _queues(namespace, clients)
    ]
    elsewhere, unreachable = await _elsewhere(clients)
    sweeps, policy = await clients.store.listed(), clients.config.queueing
    # In a thread: twenty thousand waiting Workloads take half a second.
    text = clients.mask(await asyncio.to_thread(queues_text, views + elsewhere, sweeps, policy, unreachable))
    for command in commands:
        try:
            await clients.slack.post_ephemeral(command.user, text, command.response_url)
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("Slack rejected the queue: %s", error)
        await clients.store.remove_commands(str(QUEUE), [command])


async def _elsewhere(clients: Clients) -> tuple[list[QueueView], list[str]]:
    """Return the queues of other clusters, and the names of clusters that don't answer."""
    views, unreachable = list[QueueView](), list[str]()
    for cluster in clients.clusters.all(clients.config):
        there, name = clients.of(cluster.config.name), cluster.config.name
        try:
            for namespace in namespaces_in(cluster.config, clients.settings.k8s_namespace, clients.config):
                views += [replace(view, cluster=name) for view in await _queues(namespace, there)]
        except (ApiError, UnreachableError) as error:
            log.warning("can't read the queues of cluster %s: %s", name, error)
            unreachable.append(name)
    return views, unreachable


async def _queues(namespace: str, clients: Clients) -> list[QueueView]:
    """Read each LocalQueue of a namespace; those without Workloads only if the configuration names them."""
    queues = {q["metadata"]["name"]: q for q in await list_if_allowed("LocalQueue", namespace, clients)}
    if not queues:
        return []
    above = {q["metadata"]["name"]: q for q in await list_if_allowed("ClusterQueue", "", clients)}
    workloads = await list_if_allowed("Workload", namespace, clients, only=unfinished)
    found = [read_workload(w) for w in workloads]
    named = {each.name for each in clients.config.queueing.queues} | {w.queue for w in found}
    return [
        await _view(name, queues[name], above, found, clients) for name in sorted(queues) if name in named
    ]


async def _view(
    name: str, queue: Manifest, above: Mapping[str, Manifest], found: list[Workload], clients: Clients
) -> QueueView:
    namespace = queue["metadata"]["namespace"]
    pending = await clients.trials.pending_workloads(namespace, name)
    return QueueView(
        name=name,
        namespace=namespace,
        workloads=tuple(w for w in found if w.queue == name and not w.finished),
        cluster_queue=queue["spec"]["clusterQueue"],
        order=None if pending is None else places(pending),
        borrowed=_borrowed(above.get(queue["spec"]["clusterQueue"], {})),
    )


def _borrowed(cluster_queue: Manifest) -> int:
    """Return the GPUs that a ClusterQueue borrows; 0 if unknown."""
    flavors = cluster_queue.get("status", {}).get("flavorsUsage") or ()
    return sum(
        int(amount(str(each.get("borrowed") or 0)))
        for flavor in flavors
        for each in flavor.get("resources") or ()
        if each["name"] == GPU
    )
