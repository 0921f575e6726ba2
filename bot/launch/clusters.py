"""Find the cluster of a new sweep: look at each that the configuration allows, and choose one."""

import asyncio
import logging
from collections import Counter
from functools import partial

from bot.clients import Clients
from bot.config.clusters import TrialCluster, find_cluster
from bot.config.teams import granted_team
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.health.cluster_events import list_if_allowed
from bot.launch.cluster_choice import Candidate, choose, pinned, placed, pull_refusal
from bot.launch.machines import check_capacity
from bot.launch.plan import Order, plan
from bot.runtime.parser_thread import run_in_parser_thread
from k8s.client import Manifests
from k8s.errors import ApiError, ClusterAwayError, UnreachableError
from k8s.gpus import concerns_gpus, gpu_sizes
from k8s.katib.trial_pod import PodShape
from k8s.machines import barriers, fits, read_machine
from k8s.objects import Manifest
from k8s.quantities import amount

log = logging.getLogger(__name__)

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


async def planned(order: Order, clients: Clients) -> SweepPlan:
    """Return the plan for the order's cluster, which can run it.

    Raises UserError, ApiError, UnreachableError.
    """
    order = await with_cluster(order, clients)
    made = await run_in_parser_thread(plan, order, clients.settings)
    return await check_capacity(order, made, clients.of(made.cluster))


async def with_cluster(order: Order, clients: Clients) -> Order:
    """Return the order with its cluster, and its namespace there. Without `clusters:`, return it unchanged.

    Raises UserError if no cluster, or not the one that the request names, can run it.
    """
    config, request = clients.config, order.request
    if not config.clusters:
        return order
    if request.cluster and (named := find_cluster(config.clusters, request.cluster)):
        pinned(await _candidate(named, order, clients))
        return placed(order, named, "")
    found = await asyncio.gather(*(_candidate(each, order, clients) for each in config.clusters))
    return placed(order, *choose(found, order.space.parallel * request.nodes * request.gpus))


async def _candidate(cluster: TrialCluster, order: Order, clients: Clients) -> Candidate:
    if refusal := _refusal(cluster, order, clients):
        return Candidate(cluster=cluster, refusal=refusal)
    try:
        return await _measured(cluster, order, clients)
    except ClusterAwayError as away:
        seen = f"hasn't been seen since {away.seen:%H:%M} UTC" if away.seen else "doesn't answer"
        return Candidate(cluster=cluster, refusal=f"{seen}{f' ({away.why})' if away.fix else ''}")
    except (ApiError, UnreachableError) as error:
        log.warning("unknown free GPUs in cluster %s: %s", cluster.name, error)
        is_sick = cluster.name != HOME_CLUSTER and not (isinstance(error, ApiError) and error.permanent)
        return Candidate(cluster=cluster, refusal="its API server fails" if is_sick else "")


def _refusal(cluster: TrialCluster, order: Order, clients: Clients) -> str:
    config, settings = clients.config, clients.settings
    team = granted_team(config.teams, order.owner, config.self_assigned)
    if not cluster.allows(team.name if team else ""):
        return "not for your team"
    return pull_refusal(cluster, order.space.image or settings.image_registry)


async def _measured(cluster: TrialCluster, order: Order, clients: Clients) -> Candidate:
    """Read nodes, pods with GPUs, and the queue: three requests, to this cluster alone.

    Sweeps that are planned at the same time share what is listed of the whole cluster.
    """
    gpus, shared, there = order.request.gpus, clients.clusters.reads, clients.of(cluster.name).trials
    nodes = await shared.get((cluster.name, "Node"), partial(there.list, "Node", ""))
    machines = [*map(read_machine, nodes), *clients.config.pools]
    if order.profile and not any(fits(order.shape, gpus, machine) for machine in machines):
        return Candidate(cluster=cluster, refusal=f"no machine fits profile {order.profile}")
    namespace = cluster.namespace or order.namespace
    queued = await _queued(namespace, order.queueing.queue, cluster, clients)
    if not gpus:
        return Candidate(cluster=cluster, waiting=queued)
    list_pods = partial(there.list, "Pod", "", fields=UNFINISHED, only=concerns_gpus)
    pods = await shared.get((cluster.name, "Pod"), list_pods)
    waiting = sum(not pod["spec"].get("nodeName") for pod in pods)
    free = await asyncio.to_thread(free_gpus, nodes, pods, order.shape, gpus)
    return Candidate(cluster=cluster, free=free, waiting=waiting + queued)


async def _queued(namespace: str, queue: str, cluster: TrialCluster, clients: Clients) -> int:
    """Return the Workloads that wait in Kueue's LocalQueue; 0 without one."""
    found = await list_if_allowed("LocalQueue", namespace, clients.of(cluster.name)) if queue else []
    waiting = (q.get("status", {}).get("pendingWorkloads") for q in found if q["metadata"]["name"] == queue)
    return sum(int(each or 0) for each in waiting)


def free_gpus(nodes: Manifests, pods: Manifests, shape: PodShape, gpus: int) -> int:
    """Return the GPUs that trials with `gpus` GPUs each could get at once on nodes that take such trials."""
    used = Counter[str]()
    for pod in pods:
        used[pod["spec"].get("nodeName", "")] += gpu_sizes(pod).get(shape.resource, 0)
    return sum(
        max(0, _allocatable(node, shape.resource) - used[node["metadata"]["name"]]) // gpus * gpus
        for node in nodes
        if _takes_pods(node) and not barriers(shape, gpus, read_machine(node))
    )


def _takes_pods(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not node.get("spec", {}).get("unschedulable")


def _allocatable(node: Manifest, resource: str) -> int:
    return int(amount(str(node.get("status", {}).get("allocatable", {}).get(resource, 0))))
