"""Read what each cluster offers a new sweep: free GPUs (nodes, claims, and pods, read once for
several), prices, queue, or why it can't run there (team, registry, profile, no answer, no Training Operator);
`cluster_choice` chooses.

What fits no machine there, or can't run several nodes as configured, is refused before anything is built.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.measure.capacity.nodes import counted_pods, free_nodes
from bot.platform.clients import Clients
from bot.platform.config.clusters import TrialCluster, find_cluster
from bot.platform.config.policy import Config
from bot.platform.config.teams import granted_team, price_of, prices_for, team_of
from bot.platform.pod_health.cluster_events import list_if_allowed
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.launch.budget import MODEL_LABEL, offered
from bot.sweep.launch.capacity import capacity_refusal
from bot.sweep.launch.cluster_choice import Candidate, choose, pinned, placed, pull_refusal
from bot.sweep.launch.plan import Order, plan
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.katib.manifest import variables_of
from k8s.katib.pod_shape import PodShape
from k8s.katib.train_job import MAX_VARIABLES
from k8s.katib.trial_pod import placement
from k8s.nodes.devices import with_devices
from k8s.nodes.gpu_pods import GpuPod
from k8s.nodes.listed import list_devices, list_gpu_pods, list_machines, machines
from k8s.nodes.machines import Machine, fits
from k8s.nodes.scheduling import OpenNode, admits, read_open_node
from k8s.trial_kinds import JOB, TRAIN_JOB, TrialKind

log = logging.getLogger(__name__)
T = TypeVar("T")


async def planned(order: Order, clients: Clients) -> SweepPlan:
    """Return the plan for the order's cluster, which can run it.

    Raises UserError, ApiError, UnreachableError.
    """
    order = await with_cluster(order, clients)
    made = await run_in_parser_thread(plan, order, clients.settings)
    there = clients.of(made.cluster)
    await check_trial_kind(made, there)
    await check_capacity(order, made, there)
    return made


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
    peak = order.space.parallel * order.nodes * request.gpus
    return placed(order, *choose(found, peak, config.currency))


async def _candidate(cluster: TrialCluster, order: Order, clients: Clients) -> Candidate:
    team = granted_team(clients.config.teams, order.owner, clients.config.self_assigned)
    if not cluster.allows(team.name if team else ""):
        return Candidate(cluster=cluster, refusal="your team can't use it")
    if refusal := pull_refusal(cluster, order.space.image or clients.settings.image_registry):
        return Candidate(cluster=cluster, refusal=refusal)
    try:
        return await _measured(cluster, order, clients)
    except ClusterUnreachableError as failure:
        seen = f"hasn't answered since {failure.seen:%H:%M} UTC" if failure.seen else "doesn't answer"
        return Candidate(cluster=cluster, refusal=f"{seen}{f' ({failure.why})' if failure.fix else ''}")
    except (ApiError, UnreachableError) as error:
        log.warning("unknown free GPUs in cluster %s: %s", cluster.name, error)
        is_sick = cluster.name != HOME_CLUSTER and not (isinstance(error, ApiError) and error.permanent)
        return Candidate(cluster=cluster, refusal="its API server returns errors" if is_sick else "")


async def _measured(cluster: TrialCluster, order: Order, clients: Clients) -> Candidate:
    """Read nodes, pods with GPUs, and the queue. What is read of the whole cluster is shared for a while."""
    gpus, there = order.request.gpus, clients.of(cluster.name)
    all_nodes, open_nodes = await _shared(cluster, "Node", _nodes, clients)
    known = [*all_nodes, *clients.config.pools]
    if order.profile and not any(fits(order.shape, gpus, machine) for machine in known):
        return Candidate(cluster=cluster, refusal=f"no machine fits profile {order.profile}")
    namespace = cluster.namespace or order.namespace
    if order.nodes > 1 and (why := await kind_refusal(order.shape.multi_node, namespace, there)):
        return Candidate(cluster=cluster, refusal=why)
    queued = await _queued(namespace, order.queueing.queue, cluster, clients)
    if not gpus:
        return Candidate(cluster=cluster, waiting=queued)
    read = await _shared(cluster, "Pod", _gpu_pods, clients)
    pods = counted_pods(read, clients.config.elastic, cluster.name)
    free = await asyncio.to_thread(free_gpus, open_nodes, pods, order.shape, gpus)
    waiting = sum(pod.lacks_gpus for pod in pods)
    price = highest_price(open_nodes, order, clients.config)
    return Candidate(cluster=cluster, free=free, price=price, waiting=waiting + queued)


async def _shared(
    cluster: TrialCluster, kind: str, read: Callable[[KubernetesClient], Awaitable[T]], clients: Clients
) -> T:
    """Return what another sweep read within the last 30 seconds, unless the cluster has failed since."""
    reads, there = clients.clusters.reads, clients.of(cluster.name)
    if there.at and there.at.failure:
        reads.forget((cluster, kind))
    return await reads.get((cluster, kind), partial(read, there.trials))


async def _nodes(there: KubernetesClient) -> tuple[tuple[Machine, ...], tuple[OpenNode, ...]]:
    """Return all nodes, and those that admit pods."""
    nodes, devices = await there.list("Node", ""), await list_devices(there)
    opened = tuple(filter(None, map(read_open_node, with_devices(nodes, devices))))
    return machines(nodes, devices), opened


async def _gpu_pods(there: KubernetesClient) -> tuple[GpuPod, ...]:
    """Read claims with the pods: a pod would have no GPUs by a list from before it was created."""
    return await list_gpu_pods(there, await list_devices(there))


async def _queued(namespace: str, queue: str, cluster: TrialCluster, clients: Clients) -> int:
    """Return the Workloads that wait in Kueue's LocalQueue; 0 without one."""
    found = await list_if_allowed("LocalQueue", namespace, clients.of(cluster.name)) if queue else []
    waiting = (q.get("status", {}).get("pendingWorkloads") for q in found if q["metadata"]["name"] == queue)
    return sum(int(each or 0) for each in waiting)


def free_gpus(nodes: Iterable[OpenNode], pods: Iterable[GpuPod], shape: PodShape, gpus: int) -> int:
    """Return the GPUs that trials with `gpus` GPUs each could get at once on the nodes that admit them."""
    where = placement(shape, gpus)
    return sum(
        node.free.get(shape.resource, 0) // gpus * gpus
        for node in free_nodes(nodes, pods)
        if admits(node.open, where, shape.resource)
    )


def highest_price(nodes: Iterable[OpenNode], order: Order, config: Config) -> float | None:
    """Return the highest price of a GPU-hour on the nodes that admit the order's trials; None if unknown."""
    gpus, resource = order.request.gpus, order.shape.resource
    where = placement(order.shape, gpus)
    able = (each for each in nodes if each.sizes.get(resource, 0) >= 1000 * gpus)
    models = {node.labels.get(MODEL_LABEL, "") for node in able if admits(node, where, resource)}
    prices = prices_for(config.prices, order.team or team_of(config.teams, order.namespace, order.owner))
    found = [price_of(prices, offered(model, resource)) for model in models]
    return None if None in found else max(filter(None, found), default=0.0 if found else None)


async def check_capacity(order: Order, plan: SweepPlan, clients: Clients) -> None:
    """Raise UserError if no machine and no pool can run the trials; ApiError and UnreachableError, too."""
    if not (plan.profile or plan.gpus):
        return
    where = clients.at.config if clients.at else HOME_CLUSTER
    try:  # shared with other sweeps for a while
        nodes = await clients.clusters.reads.get((where, "Machine"), partial(list_machines, clients.trials))
    except ApiError as error:
        if error.status != 403:
            raise
        log.info("capacity unchecked: no permission to list nodes")
        return
    if refusal := capacity_refusal(order.request, plan, order.owner, clients.config, nodes):
        raise UserError(refusal, field="gpus")


async def check_trial_kind(plan: SweepPlan, clients: Clients) -> None:
    """Raise UserError if the plan's cluster can't run its trials as this kind. Raises ApiError, too."""
    _check_variables(plan)
    namespace = plan.experiment_ref.namespace
    if why := await kind_refusal(plan.trial_kind, namespace, clients):
        raise UserError(
            f"nodes={plan.nodes} can't run: `trials.multi_node` makes the trials {plan.trial_kind.kind}s, "
            f"but {why}. *Fix:* Ask an admin to fix this, or to set `multi_node: job`.",
            field="nodes",
        )


def _check_variables(plan: SweepPlan) -> None:
    """Raise UserError if the API server would reject each TrainJob, after the build."""
    if plan.trial_kind is not TRAIN_JOB:
        return
    count = len(variables_of(plan.experiment))
    if count > MAX_VARIABLES:
        has_flags = plan.space.flags is FlagStyle.ENV
        fix = "Pass parameters as arguments, without `flags: env`" if has_flags else "Use fewer `secrets:`"
        raise UserError(
            f"nodes={plan.nodes} can't run: its trials are TrainJobs, and a TrainJob can have at most "
            f"{MAX_VARIABLES} variables. This sweep has {count}, those of Sweepbot included. *Fix:* "
            f"{fix}, or remove variables from `env:`.",
            field="space",
        )


async def kind_refusal(kind: TrialKind, namespace: str, clients: Clients) -> str:
    """Return why trials of this kind can't run in the cluster; "" if they can.

    Raises UnreachableError, and ApiError for what another attempt can change.
    """
    if kind is JOB:
        return ""
    try:
        # The selector matches none: only whether the API server serves the kind counts.
        await clients.trials.list(kind.kind, namespace, labels=f"{kind.label}=none")
    except ApiError as error:
        if error.status == 404:
            return f"{kind.operator} isn't installed in the cluster"
        if error.status == 403:
            return f"Sweepbot has no permission to list {kind.kind}s"
        raise
    return ""
