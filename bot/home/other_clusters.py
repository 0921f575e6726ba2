"""Count free GPUs in clusters other than the home cluster, for `/gpus` and the Home tab."""

import asyncio
from collections import Counter
from datetime import datetime

from bot.clients import Clients
from bot.clusters.connections import RemoteCluster
from bot.gpus.models import ClusterGpus
from bot.slack.mrkdwn import local_time
from k8s.api.client import Manifests
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.nodes.gpu_pods import UNFINISHED_PODS
from k8s.nodes.gpus import concerns_gpus, read_holder, read_node


async def gpus_elsewhere(clients: Clients) -> tuple[ClusterGpus, ...]:
    """Read nodes and pods of each cluster, at the same time. Raises nothing."""
    return tuple(await asyncio.gather(*map(_measured, clients.clusters.all(clients.config))))


async def _measured(cluster: RemoteCluster) -> ClusterGpus:
    name = cluster.config.name
    try:
        nodes = await cluster.api.list("Node", "")
        pods = await cluster.api.list("Pod", "", fields=UNFINISHED_PODS, only=concerns_gpus)
    except ClusterUnreachableError as failure:
        return ClusterGpus(cluster=name, failure=_unseen(failure.seen))
    except (ApiError, UnreachableError) as error:
        denied = isinstance(error, ApiError) and error.status == 403
        why = "no permission to list nodes and pods" if denied else "its API server returns errors"
        return ClusterGpus(cluster=name, failure=why)
    free, total = await asyncio.to_thread(free_and_total, nodes, pods)
    return ClusterGpus(cluster=name, free=free, total=total)


def _unseen(seen: datetime | None) -> str:
    return f"hasn't answered since {local_time(seen)}" if seen else "doesn't answer"


def free_and_total(nodes: Manifests, pods: Manifests) -> tuple[int, int]:
    """Return the free and the allocatable GPUs of the nodes that are ready and not cordoned."""
    used = Counter[str]()
    for holder in filter(None, map(read_holder, pods)):
        used[holder.node] += holder.gpus
    found = [node for node in map(read_node, nodes) if node and node.ready and not node.cordoned]
    free = sum(max(0, node.allocatable - used[node.node]) for node in found)
    return free, sum(node.allocatable for node in found)
