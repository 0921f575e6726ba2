"""Read the cluster's machines, to refuse what fits none of them before anything is built."""

import logging
from functools import partial

from bot.clients import Clients
from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.launch.capacity import capacity_refusal
from bot.launch.plan import Order
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.nodes.machines import Machine, read_machine

log = logging.getLogger(__name__)


async def check_capacity(order: Order, plan: SweepPlan, clients: Clients) -> SweepPlan:
    """Return the plan if a machine or a pool can run its trials, or if nothing is known about them.

    Raises UserError, ApiError, UnreachableError.
    """
    if not plan.profile:
        return plan
    nodes = await _nodes(clients)
    if nodes is None:
        return plan
    if refusal := capacity_refusal(order.request, plan, order.owner, clients.config, nodes):
        raise UserError(refusal, field="gpus")
    return plan


async def _nodes(clients: Clients) -> tuple[Machine, ...] | None:
    """Return all nodes, shared with other sweeps for a while; None without the permission to list them."""
    where = clients.at.config if clients.at else HOME_CLUSTER
    try:
        return await clients.clusters.reads.get((where, "Machine"), partial(_machines, clients.trials))
    except ApiError as error:
        if error.status != 403:
            raise
        log.info("capacity unchecked: no permission to list nodes")
        return None


async def _machines(cluster: KubernetesClient) -> tuple[Machine, ...]:
    return tuple(map(read_machine, await cluster.list("Node", "")))
