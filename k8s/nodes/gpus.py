"""Read GPUs from pods that request them, and from nodes that have them: which names of resources and
DeviceClasses are GPUs, since when a pod has them, and the CPU and memory that it requests or uses.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from k8s.nodes.dcgm import is_exporter
from k8s.objects import CLASS_PREFIX, Manifest, parse_time
from k8s.pods import COLLECTORS
from k8s.quantities import any_amount

GPU_CLASS = re.compile(r"(gpu|mig)[.-]([a-z0-9.-]{0,240}[a-z0-9])")  # names of DeviceClasses
GPU_RESOURCE = re.compile(  # a MIG slice counts as one
    rf"nvidia\.com/(gpu(\.shared)?|mig-.+)|{re.escape(CLASS_PREFIX)}{GPU_CLASS.pattern}"
)
UNALLOCATABLE = "cannot allocate all claims"  # the scheduler's words for a node with too few free devices


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A pod to which GPUs are allocated."""

    namespace: str
    pod: str
    node: str
    labels: dict[str, str]
    gpus: int
    started: datetime | None  # when the last of its containers with GPUs started; None: not all run
    pod_started: datetime | None = None  # if one of these has restarted; None: none has
    cpu_requested: float | None  # cores
    ram_requested: float | None  # bytes


@dataclass(frozen=True, kw_only=True)
class GpuNode:
    node: str
    physical: int
    allocatable: int
    ready: bool
    cordoned: bool


def concerns_gpus(pod: Manifest) -> bool:
    """Return whether a pod requests GPUs, has a claim, or exports their metrics."""
    spec = pod["spec"]
    return bool(spec.get("resourceClaims")) or any(map(gpus_of, spec["containers"])) or is_exporter(pod)


def read_holder(pod: Manifest) -> Holder | None:
    """Return None for a pod without GPUs or node, and for one that has finished."""
    containers, status = pod["spec"]["containers"], pod.get("status", {})
    gpus = sum(gpus_of(each) for each in containers)
    if not gpus or not pod["spec"].get("nodeName") or status.get("phase") not in {"Pending", "Running"}:
        return None
    training = [each for each in containers if each["name"] not in COLLECTORS]
    with_gpus = {each["name"] for each in containers if gpus_of(each)}
    return Holder(
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        node=pod["spec"]["nodeName"],
        labels=pod["metadata"].get("labels", {}),
        gpus=gpus,
        started=_started(status, with_gpus),
        pod_started=parse_time(status.get("startTime")) if _restarted(status, with_gpus) else None,
        cpu_requested=requested(training, "cpu"),
        ram_requested=requested(training, "memory"),
    )


def wanted(pod: Manifest) -> int:
    """Return how many GPUs a pending pod without a node requests."""
    waits = not pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Pending"
    return sum(gpus_of(each) for each in pod["spec"]["containers"]) if waits else 0


def read_node(node: Manifest) -> GpuNode | None:
    """Return None for a node whose capacity has no GPUs."""
    status = node.get("status", {})
    if not (physical := _count(status.get("capacity", {}))):
        return None
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return GpuNode(
        node=node["metadata"]["name"],
        physical=physical,
        allocatable=_count(status.get("allocatable", {})),
        ready=ready,
        cordoned=bool(node.get("spec", {}).get("unschedulable")),
    )


def node_sizes(node: Manifest) -> dict[str, tuple[int, int]]:
    """Return a node's physical and allocatable GPUs, by resource."""
    status = node.get("status", {})
    left = status.get("allocatable", {})
    return {
        name: (size, _count({name: left.get(name, 0)}))
        for name, quantity in status.get("capacity", {}).items()
        if (size := _count({name: quantity}))
    }


def read_usage(metrics: Manifest) -> tuple[float, float]:
    """Return the cores and bytes that a pod uses, without Katib's sidecar. Raises ValueError."""
    used = [each["usage"] for each in metrics["containers"] if each["name"] not in COLLECTORS]
    return _sum(each["cpu"] for each in used), _sum(each["memory"] for each in used)


def _sum(quantities: Iterable[str]) -> float:
    return float(sum(any_amount(str(each)) for each in quantities))


def gpus_of(container: Manifest) -> int:
    """Return the GPUs of a container; requests and limits are equal, and either can be omitted."""
    resources = container.get("resources", {})
    return _count({**resources.get("limits", {}), **resources.get("requests", {})})


def gpu_sizes(pod: Manifest) -> dict[str, int]:
    """Return the GPUs that a pod requests, by resource."""
    return {name: size for name, size in device_sizes(pod["spec"]).items() if GPU_RESOURCE.fullmatch(name)}


def device_sizes(spec: Manifest) -> dict[str, int]:
    """Return what a pod requests of device plugins, by resource: GPUs of all kinds, network adapters."""
    found: dict[str, int] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources", {})
        for name, size in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            if "/" in name:  # Kubernetes' own have no domain
                found[name] = found.get(name, 0) + int(any_amount(str(size)))
    return found


def _count(sizes: Manifest) -> int:
    return sum(int(any_amount(str(size))) for name, size in sizes.items() if GPU_RESOURCE.fullmatch(name))


def requested(containers: list[Manifest], resource: str, of: str = "requests") -> float | None:
    """Return the sum of these containers' `requests` or `limits`; None if none has any. Raises ValueError."""
    requests = [each.get("resources", {}).get(of, {}).get(resource) for each in containers]
    return _sum(filter(None, requests)) if any(requests) else None


def _restarted(status: Manifest, containers: set[str]) -> bool:
    statuses = status.get("containerStatuses") or []
    return any(each.get("restartCount") for each in statuses if each["name"] in containers)


def _started(status: Manifest, containers: set[str]) -> datetime | None:
    mine = [each for each in status.get("containerStatuses") or [] if each["name"] in containers]
    since = [parse_time(each.get("state", {}).get("running", {}).get("startedAt")) for each in mine]
    known = [each for each in since if each]
    return max(known) if known and len(known) == len(containers) else None
