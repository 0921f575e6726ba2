"""Measure free GPUs on the nodes, and pods that wait for GPUs. Pure.

Waiting pods are placed first, the largest first, each on the fullest node that fits. What is left is free.
A pod that waits for something else, or that no node could run, even an empty one, doesn't count.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.core.plan import HOME_CLUSTER
from bot.platform.config.elastic import ElasticDeployment, is_elastic
from k8s.nodes.gpu_pods import GpuPod
from k8s.nodes.gpus import GPU_RESOURCE
from k8s.nodes.scheduling import OpenNode, admits, read_open_node
from k8s.objects import SWEEP_LABEL, Manifest

WAIT_THRESHOLD = timedelta(minutes=1)  # a pod that has waited for less can be about to start
MAX_WAITING = 300  # pods, the oldest; more of them change no decision


@dataclass(kw_only=True)
class Node:
    """A node that accepts pods. `free` changes while waiting pods are placed."""

    open: OpenNode
    free: dict[str, int]  # GPUs by resource


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """GPUs that a waiting pod lacks."""

    pod: GpuPod
    resource: str
    gpus: int  # that it requests
    lacks: int  # of these; 0: it fits on a node
    nodes: frozenset[str]  # that could run it


@dataclass(frozen=True, kw_only=True)
class NodeCapacity:
    """What the nodes offer all sweeps."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[GpuPod, ...] = ()
    waiting: tuple[Shortage, ...] = ()
    known: dict[str, list[Node]] = field(default_factory=dict)  # by placement


def counted_pods(
    pods: Iterable[GpuPod], elastic: Collection[ElasticDeployment], cluster: str
) -> tuple[GpuPod, ...]:
    """Return the pods whose GPUs aren't free for trials, and those that wait for GPUs with them.

    Elastic replicas, which are in the main cluster, don't count: trials preempt them, and don't wait for
    them.
    """
    if cluster != HOME_CLUSTER or not elastic:
        return tuple(pods)
    return tuple(pod for pod in pods if not is_elastic(elastic, pod.namespace, pod.name))


def measured(
    nodes: Iterable[Manifest], pods: Collection[GpuPod], requests: Iterable[CapacityRequest] = ()
) -> NodeCapacity:
    """Read the nodes, and place the waiting pods and those that sweeps of several nodes expect."""
    opened = filter(None, map(read_open_node, nodes))
    found = NodeCapacity(nodes=tuple(free_nodes(opened, pods)), pods=tuple(pods))
    oldest = sorted((pod for pod in pods if pod.lacks_gpus), key=lambda pod: str(pod.created))[:MAX_WAITING]
    largest = sorted(oldest, key=lambda pod: -pod.wanted)
    placed = [one for pod in largest if (one := _placed(pod, found))]
    there = Counter(pod.labels.get(SWEEP_LABEL, "") for pod in pods)
    for each in requests:
        set_aside(each, each.expects - there[each.sweep], found)
    return NodeCapacity(nodes=found.nodes, pods=found.pods, waiting=tuple(placed), known=found.known)


def free_nodes(nodes: Iterable[OpenNode], pods: Iterable[GpuPod]) -> Iterator[Node]:
    """Return the nodes with GPUs. The GPUs of pods with a node are allocated; waiting pods have none."""
    used: dict[tuple[str, str], int] = {}
    for pod in pods:
        for resource, gpus in pod.sizes.items() if pod.gpus else ():
            used[pod.node, resource] = used.get((pod.node, resource), 0) + gpus
    for node in nodes:
        sizes = {each: size // 1000 for each, size in node.sizes.items() if GPU_RESOURCE.fullmatch(each)}
        free = {each: max(0, size - used.get((node.name, each), 0)) for each, size in sizes.items()}
        if sizes:
            yield Node(open=node, free=free)


def _placed(pod: GpuPod, capacity: NodeCapacity) -> Shortage | None:
    """Take a waiting pod's GPUs from the fullest node where it fits, or what the emptiest has.

    Return None if no node could run it, even an empty one.
    """
    resource, gpus = next(iter(pod.sizes.items()))
    nodes = [node for node in _candidates(pod.spec, resource, capacity) if _holds(node.open, pod)]
    if not (nodes and gpus):
        return None
    fitting = [node for node in nodes if node.free[resource] >= gpus]
    node = (
        min(fitting, key=lambda each: each.free[resource])
        if fitting
        else max(nodes, key=lambda each: each.free[resource])
    )
    lacks = max(0, gpus - node.free[resource])
    node.free[resource] -= gpus - lacks
    names = frozenset(each.open.name for each in nodes)
    return Shortage(pod=pod, resource=resource, gpus=gpus, lacks=lacks, nodes=names)


def set_aside(request: CapacityRequest, pods: int, capacity: NodeCapacity) -> None:
    """Take the GPUs of so many pods that don't exist yet from the nodes where they fit."""
    places, size = _candidates(request.pod, request.resource, capacity), request.gpus
    for _ in range(min(pods, MAX_WAITING)):
        fitting = [node for node in places if node.free.get(request.resource, 0) >= size]
        if not fitting:
            return
        min(fitting, key=lambda each: each.free[request.resource]).free[request.resource] -= size


def _holds(node: OpenNode, pod: GpuPod) -> bool:
    """Return whether the pod fits on the node while nothing else runs there."""
    return all(node.sizes.get(name, 0) >= size for name, size in pod.needs.items())


def _candidates(pod: Manifest, resource: str, capacity: NodeCapacity) -> list[Node]:
    """Return the nodes on which a pod can run; computed once for pods that are alike."""
    key = json.dumps([resource, pod])
    if key not in capacity.known:
        capacity.known[key] = [node for node in capacity.nodes if admits(node.open, pod, resource)]
    return capacity.known[key]


def capacity_on_nodes(
    request: CapacityRequest,
    nodes: NodeCapacity,
    yielding: Collection[str],
    name: Callable[[GpuPod], str],
    now: datetime,
    held: Mapping[str, int],
) -> FreeCapacity:
    """Return what the nodes have free for a sweep.

    Args:
        yielding: sweeps that release GPUs by themselves, so that no other sweep has to for them.
        name: who a pod belongs to, for users.
        held: GPUs by node that are reserved for the sweep's queue.
    """
    places = _candidates(request.pod, request.resource, nodes)
    slots = sum(
        (node.free.get(request.resource, 0) + held.get(node.open.name, 0)) // request.gpus for node in places
    )
    mine = {pod.node for pod in nodes.pods if pod.gpus and pod.labels.get(SWEEP_LABEL) == request.sweep}
    old = [each for each in nodes.waiting if each.pod.created and now - each.pod.created >= WAIT_THRESHOLD]
    own = [each for each in old if each.pod.labels.get(SWEEP_LABEL) == request.sweep]
    others = [
        each
        for each in old
        if each.lacks
        and each.resource == request.resource
        and each.nodes & mine
        and each.pod.labels.get(SWEEP_LABEL) not in {request.sweep, *yielding}
    ]
    who, requested = _largest(others, name)
    size = request.gpus * request.pods
    return FreeCapacity(
        at=now,
        gpus=size,
        trials=slots // request.pods,
        steady=slots // request.pods,
        waiting=-(-len(own) // request.pods),
        to_yield=-(-sum(each.lacks for each in others) // size),
        who=who,
        requested=requested,
    )


def _largest(others: Sequence[Shortage], name: Callable[[GpuPod], str]) -> tuple[str, int]:
    """Return who waits for the most GPUs, and for how many."""
    sums: dict[str, int] = {}
    for each in others:
        who = name(each.pod)
        sums[who] = sums.get(who, 0) + each.gpus
    return max(sums.items(), key=lambda item: item[1], default=("", 0))
