"""Measure free GPUs for all `parallel=auto` sweeps, and those that wait to start, first come, first served,
by a few reads for the whole cluster; name who waits for GPUs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.core.plan import HOME_CLUSTER
from bot.measure.capacity.nodes import NodeCapacity, capacity_on_nodes, counted_pods, measured, set_aside
from bot.measure.capacity.quotas import Queues, capacity_in_queue, held_on_nodes, read_queues
from bot.platform.config.policy import Config, all_namespaces
from bot.platform.config.teams import team_of
from bot.platform.storage.free_capacity import CapacityStore
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.kueue import Workload, read_workload, unfinished
from k8s.nodes.devices import Devices, with_devices
from k8s.nodes.gpu_pods import GpuPod, is_placeholder
from k8s.nodes.gpus import GPU_RESOURCE
from k8s.nodes.listed import list_devices, list_gpu_pods
from k8s.objects import OWNER_LABEL, SWEEP_LABEL, TEAM_LABEL, Manifest

log = logging.getLogger(__name__)

INTERVAL = 30.0  # seconds


@dataclass(frozen=True)
class CapacityMeasurer:
    """Measures for the sweeps that registered in the last minutes. Without any, nothing is read."""

    cluster: KubernetesClient
    store: CapacityStore
    namespace: str  # K8S_NAMESPACE
    config: Callable[[], Config]
    now: Callable[[], datetime]
    name: str = HOME_CLUSTER  # of the cluster

    async def measure(self, list_pods: Callable[[Devices], Awaitable[Collection[GpuPod]]]) -> None:
        """Store what is free for each sweep. `list_pods`: the unfinished ones with GPUs, in all namespaces.

        Raises ApiError, UnreachableError, RedisError.
        """
        now = self.now()
        requests = await self.store.requests(now)
        if not any(one.auto or not one.started for one in requests):
            return
        devices = await list_devices(self.cluster)
        pods = counted_pods(await list_pods(devices), self.config().elastic, self.name)
        nodes = await self._listed("Node", "")
        if nodes is not None:
            nodes = with_devices(nodes, devices)
        queues = await self._queues(requests) if any(one.queue for one in requests) else None
        before = await self.store.measured()
        found = await asyncio.to_thread(self._measured, requests, nodes, pods, queues, now)
        await self.store.save({sweep: _steady(free, before.get(sweep)) for sweep, free in found.items()})

    async def measure_listed(self) -> None:
        """Measure in a cluster whose pods aren't watched."""
        await self.measure(partial(list_gpu_pods, self.cluster))

    async def _queues(self, requests: Iterable[CapacityRequest]) -> Queues | None:
        """Read Kueue's queues; None if it isn't installed or its ClusterQueues can't be read.

        Another cluster can have one namespace for all its trials, which the main cluster doesn't have.
        """
        if (above := await self._listed("ClusterQueue", "")) is None:
            return None
        local, workloads = list[Manifest](), list[Workload]()
        known = all_namespaces(self.namespace, self.config())
        for namespace in dict.fromkeys((*known, *(one.namespace for one in requests))):
            local += await self._listed("LocalQueue", namespace) or ()
            workloads += map(read_workload, await self._listed("Workload", namespace, unfinished) or ())
        return read_queues(local, above, workloads, await self._listed("Cohort", "") or ())

    async def _listed(
        self, kind: str, namespace: str, only: Callable[[Manifest], bool] | None = None
    ) -> Iterable[Manifest] | None:
        """Return None if the kind doesn't exist or listing it is forbidden."""
        try:
            return await self.cluster.list(kind, namespace, only=only)
        except ApiError as error:
            if error.status not in {403, 404}:
                raise
            return None

    def _measured(
        self,
        requests: list[CapacityRequest],
        nodes: Iterable[Manifest] | None,
        pods: Collection[GpuPod],
        queues: Queues | None,
        now: datetime,
    ) -> dict[str, FreeCapacity]:
        started = [one for one in requests if one.since is None]
        waiting = sorted((one.since, one.sweep, one) for one in requests if one.since)
        on_nodes = measured(nodes, pods, started) if nodes is not None else None
        reserved = [pod for pod in pods if is_placeholder(pod.name)]
        running = {pod.labels.get(SWEEP_LABEL, "") for pod in pods if pod.gpus}
        # A sweep with a running trial starts fewer by itself while others of its trials wait.
        yielding = {one.sweep for one in requests} & running

        def free(one: CapacityRequest) -> FreeCapacity:
            return self._free(one, on_nodes, queues, reserved, yielding, now)

        found, before = dict[str, FreeCapacity](), [one.sweep for one in started]
        for _, _, one in waiting:  # first come, first served
            found[one.sweep] = replace(free(one), beside=tuple(before))
            before.append(one.sweep)
            if on_nodes is not None:
                set_aside(one, one.expects, on_nodes)
        # Last: a `parallel=auto` sweep doesn't grow into nodes that others wait for.
        return found | {one.sweep: free(one) for one in started}

    def _free(
        self,
        request: CapacityRequest,
        nodes: NodeCapacity | None,
        queues: Queues | None,
        reserved: Iterable[GpuPod],
        yielding: set[str],
        now: datetime,
    ) -> FreeCapacity:
        found = []
        if nodes is not None and GPU_RESOURCE.fullmatch(request.resource):  # of others, no pods are known
            held = held_on_nodes(request, queues, reserved) if request.queue and queues else {}
            found.append(capacity_on_nodes(request, nodes, yielding, self._who, now, held))
        if request.queue and queues:
            in_queue = capacity_in_queue(request, queues, yielding, self._who, now)
            found += [in_queue] if in_queue else []
        if not found:
            return FreeCapacity(at=now, gpus=request.gpus * request.pods, trials=None)
        tightest = max(found, key=lambda each: each.to_yield)
        least = min(each.trials or 0 for each in found)
        return replace(tightest, trials=least, steady=least, waiting=max(each.waiting for each in found))

    def _who(self, one: GpuPod | Workload) -> str:
        """Return who waits: a team, a sweep, or a namespace."""
        labels = one.labels if isinstance(one, GpuPod) else {SWEEP_LABEL: one.sweep}
        owner = labels.get(OWNER_LABEL, "")
        if team := labels.get(TEAM_LABEL) or team_of(self.config().teams, one.namespace, owner):
            return f"team {team}"
        sweep = labels.get(SWEEP_LABEL)
        return f"sweep {sweep}" if sweep else f"namespace {one.namespace}"


def _steady(free: FreeCapacity, before: FreeCapacity | None) -> FreeCapacity:
    """Return what was free in this measurement and in the one before."""
    known = before.trials if before and before.trials is not None else 0
    return replace(free, steady=min(free.trials or 0, known))
