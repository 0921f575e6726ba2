"""Read pods and nodes as the scheduler counts them: requests, placement, priority, and nomination. Pure.

Sizes are whole thousandths, so that sums are exact: requests are rounded up, what a node has is rounded down.
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from k8s.nodes.gpus import GPU_RESOURCE
from k8s.nodes.machines import BLOCKING, PASSING_TAINTS, PLACEMENT, can_run
from k8s.objects import SWEEP_LABEL, Manifest, condition
from k8s.quantities import any_amount

Sizes = Mapping[str, int]  # resource -> thousandths
PODS = "pods"  # a node also limits their number
HASH = "pod-template-hash"
NEVER = "Never"  # preemptionPolicy
DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(frozen=True, kw_only=True)
class ScheduledPod:
    """An unfinished pod: one that runs, terminates, or waits for a node."""

    namespace: str
    name: str
    node: str = ""  # "": none yet
    nominated: str = ""  # the node where the scheduler preempts others for it
    terminating: bool = False  # its resources are still allocated
    priority: int = 0
    preempts: bool = True  # by itself: the scheduler nominates a node when that helps
    waits: bool = False  # unschedulable, because nodes have too little free
    needs: Sizes
    gpus: int = 0
    placement: Manifest = field(default_factory=dict)  # the parts of its spec that exclude nodes
    deployment: str = ""  # of its ReplicaSet
    sweep: str = ""
    ready: bool = False
    created: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class OpenNode:
    """A node that is ready and not cordoned."""

    name: str
    sizes: Sizes  # allocatable
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Manifest, ...] = ()


def read_scheduled(pod: Manifest) -> ScheduledPod | None:
    """Return None for a pod that has finished. Raises ValueError for sizes that aren't quantities."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if status.get("phase") in {"Succeeded", "Failed"}:
        return None
    needs, labels = pod_needs(spec), meta.get("labels") or {}
    return ScheduledPod(
        namespace=meta["namespace"],
        name=meta["name"],
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        terminating="deletionTimestamp" in meta,
        priority=spec.get("priority") or 0,
        preempts=_preempts(spec),
        waits=_waits(pod),
        needs=needs,
        gpus=gpu_count(needs),
        placement={} if spec.get("nodeName") else placement(spec),
        deployment=_deployment(meta, labels),
        sweep=labels.get(SWEEP_LABEL, ""),
        ready=bool(condition(pod, "Ready")),
        created=meta.get("creationTimestamp") or "",
    )


def pod_needs(spec: Manifest) -> Sizes:
    """Return what a pod with this spec takes from a node, as the scheduler computes it.

    Init containers run one after another before the others, except those that restart, which keep running
    (https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers).
    What the pod itself requests counts in place of their sum, on by default since Kubernetes 1.34.
    """
    total: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for each in spec.get("initContainers") or ():
        mine = _requests(each)
        if each.get("restartPolicy") == "Always":
            total += mine
            peak |= total
        else:
            peak |= total + mine
    for each in spec["containers"]:
        total += _requests(each)
    found = Counter({**(total | peak), **_requests(spec)}) + _sizes(spec.get("overhead") or {})
    return {**found, PODS: 1000}


def gpu_count(needs: Sizes) -> int:
    return sum(size for name, size in needs.items() if GPU_RESOURCE.fullmatch(name)) // 1000


def gpu_resource(needs: Sizes) -> str:
    """Return the name of the GPUs, such as that of a MIG profile; "" if there are none."""
    return next((name for name in needs if GPU_RESOURCE.fullmatch(name)), "")


def placement(spec: Manifest) -> Manifest:
    """Return the parts of a pod's spec that exclude nodes."""
    return {key: spec[key] for key in PLACEMENT if spec.get(key)}


def read_open_node(node: Manifest) -> OpenNode | None:
    """Return None for a node that isn't ready, is cordoned, is being deleted, or is short of something."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    if spec.get("unschedulable") or "deletionTimestamp" in meta or not condition(node, "Ready"):
        return None
    if any(t["effect"] in BLOCKING and PASSING_TAINTS.match(t["key"]) for t in spec.get("taints") or ()):
        return None
    there = (status.get("allocatable") or {}).items()
    sizes = {name: _thousandths(str(size), up=False) for name, size in there}
    labels, taints = meta.get("labels") or {}, spec.get("taints") or ()
    return OpenNode(name=meta["name"], sizes=sizes, labels=labels, taints=tuple(taints))


def admits(node: OpenNode, where: Manifest, resource: str = "") -> bool:
    """Return whether selector, node affinity, and taints admit a pod with this placement.

    Args:
        resource: a taint of this name doesn't count: an admission plugin can tolerate it in new pods.
    """
    return can_run(where, node.labels, node.taints, resource)


def _requests(container: Manifest) -> Counter[str]:
    """Without requests, the API server copies the limits; templates don't have them yet."""
    resources = container.get("resources") or {}
    return _sizes({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sizes(found: Manifest) -> Counter[str]:
    return Counter({name: _thousandths(str(size), up=True) for name, size in found.items()})


@lru_cache(maxsize=4096)
def _thousandths(quantity: str, *, up: bool) -> int:
    size = any_amount(quantity) * 1000
    return math.ceil(size) if up else math.floor(size)


def _waits(pod: Manifest) -> bool:
    """Return whether more free resources would help: they don't help with an unbound claim."""
    found = condition(pod, "PodScheduled", "False")
    message = found.get("message") or ""
    helps = not message or "Insufficient " in message or "Too many pods" in message
    return found.get("reason") == "Unschedulable" and helps


def _preempts(spec: Manifest) -> bool:
    """Return False for pods of other schedulers, such as Volcano: they preempt only among their own pods."""
    scheduler = spec.get("schedulerName") or DEFAULT_SCHEDULER
    return spec.get("preemptionPolicy") != NEVER and scheduler == DEFAULT_SCHEDULER


def _deployment(meta: Manifest, labels: Mapping[str, str]) -> str:
    """Return the Deployment's name: its ReplicaSets have it as a prefix of the template's hash."""
    suffix = f"-{labels.get(HASH, '')}"
    for each in meta.get("ownerReferences") or ():
        if each["kind"] == "ReplicaSet" and each["name"].endswith(suffix) and suffix != "-":
            return str(each["name"]).removesuffix(suffix)
    return ""
