"""Measure room on the nodes: free GPUs, and pods that wait for GPUs. Pure.

Waiting pods are placed first, the largest first, each on the fullest node that fits. What is left is free.
A pod that no node could run, even an empty one, waits for something else and doesn't count.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.core.pace import Room, Want
from k8s.gpu_pods import GpuPod
from k8s.gpus import GPU_RESOURCE
from k8s.node_matching import can_run
from k8s.objects import SWEEP_LABEL, Manifest
from k8s.quantities import amount

PATIENCE = timedelta(minutes=1)  # a pod that has waited for less may be about to start
MAX_WAITING = 300  # pods, the oldest; more of them change no decision


@dataclass(kw_only=True)
class Node:
    """A node that accepts pods. `free` changes while waiting pods are placed."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    sizes: Mapping[str, int]  # allocatable GPUs by resource
    free: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """GPUs that a waiting pod lacks."""

    pod: GpuPod
    resource: str
    gpus: int  # that it requests
    lacks: int  # of these; 0: a node has room for it
    nodes: frozenset[str]  # that could run it


@dataclass(frozen=True, kw_only=True)
class NodeRoom:
    """What the nodes offer all sweeps."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[GpuPod, ...] = ()
    waiting: tuple[Shortage, ...] = ()
    known: dict[str, list[Node]] = field(default_factory=dict)  # by placement


def measured(nodes: Iterable[Manifest], pods: Collection[GpuPod]) -> NodeRoom:
    """Read the nodes, and place the waiting pods."""
    room = NodeRoom(nodes=tuple(_free_nodes(nodes, pods)), pods=tuple(pods))
    oldest = sorted((pod for pod in pods if pod.wanted), key=lambda pod: str(pod.created))[:MAX_WAITING]
    largest = sorted(oldest, key=lambda pod: -pod.wanted)
    placed = [found for pod in largest if (found := _placed(pod, room))]
    return NodeRoom(nodes=room.nodes, pods=room.pods, waiting=tuple(placed), known=room.known)


def _free_nodes(nodes: Iterable[Manifest], pods: Iterable[GpuPod]) -> Iterable[Node]:
    used: dict[tuple[str, str], int] = {}
    for pod in pods:
        for resource, gpus in pod.sizes.items() if pod.holder else ():
            used[pod.node, resource] = used.get((pod.node, resource), 0) + gpus
    for node in nodes:
        name, status, spec = node["metadata"]["name"], node.get("status", {}), node.get("spec", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        there = status.get("allocatable", {}).items()
        sizes = {each: int(amount(str(size))) for each, size in there if GPU_RESOURCE.fullmatch(each)}
        if ready and sizes and not spec.get("unschedulable"):
            yield Node(
                name=name,
                labels=node["metadata"].get("labels") or {},
                taints=tuple(spec.get("taints") or ()),
                sizes=sizes,
                free={each: max(0, size - used.get((name, each), 0)) for each, size in sizes.items()},
            )


def _placed(pod: GpuPod, room: NodeRoom) -> Shortage | None:
    """Take a waiting pod's GPUs from the fullest node with room, or what the emptiest has.

    Return None if no node could run it, even an empty one.
    """
    resource, gpus = next(iter(pod.sizes.items()), ("", 0))
    nodes = [node for node in _candidates(pod.spec, resource, room) if node.sizes.get(resource, 0) >= gpus]
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
    names = frozenset(each.name for each in nodes)
    return Shortage(pod=pod, resource=resource, gpus=gpus, lacks=lacks, nodes=names)


def _candidates(pod: Manifest, resource: str, room: NodeRoom) -> list[Node]:
    """Return the nodes on which a pod can run; computed once for pods that are alike."""
    key = json.dumps([resource, pod], sort_keys=True)
    if key not in room.known:
        room.known[key] = [node for node in room.nodes if can_run(pod, node.labels, node.taints, resource)]
    return room.known[key]


def room_for(
    want: Want,
    nodes: NodeRoom,
    yielding: Collection[str],
    name: Callable[[GpuPod], str],
    now: datetime,
    held: Mapping[str, int],
) -> Room:
    """Return a sweep's room on the nodes.

    Args:
        yielding: sweeps that give way by themselves, so that nobody else has to for them.
        name: who a pod belongs to, for users.
        held: GPUs by node that are reserved for the sweep's queue.
    """
    places = _candidates(want.pod, want.resource, nodes)
    slots = sum((node.free.get(want.resource, 0) + held.get(node.name, 0)) // want.gpus for node in places)
    mine = {pod.node for pod in nodes.pods if pod.holder and pod.labels.get(SWEEP_LABEL) == want.sweep}
    old = [each for each in nodes.waiting if _has_waited(each.pod, now)]
    own = [each for each in old if each.pod.labels.get(SWEEP_LABEL) == want.sweep]
    others = [
        each
        for each in old
        if each.lacks
        and each.resource == want.resource
        and each.nodes & mine
        and each.pod.labels.get(SWEEP_LABEL) not in {want.sweep, *yielding}
    ]
    who, wanted = _largest(others, name)
    size = want.gpus * want.pods
    return Room(
        at=now,
        gpus=size,
        now=slots // want.pods,
        fits=slots // want.pods,
        waiting=-(-len(own) // want.pods),
        short=-(-sum(each.lacks for each in others) // size),
        who=who,
        wanted=wanted,
    )


def _has_waited(pod: GpuPod, now: datetime) -> bool:
    return pod.created is not None and now - pod.created >= PATIENCE


def _largest(others: Sequence[Shortage], name: Callable[[GpuPod], str]) -> tuple[str, int]:
    """Return who waits for the most GPUs, and for how many."""
    sums: dict[str, int] = {}
    for each in others:
        who = name(each.pod)
        sums[who] = sums.get(who, 0) + each.gpus
    return max(sums.items(), key=lambda item: item[1], default=("", 0))
