"""Read GPUs from pods that request them, and from nodes that have them: which names of resources and
DeviceClasses are GPUs, how their model is then named (whole ones, MIG slices by profile, or shares of a GPU
for several pods), and the CPU and memory that a pod requests or uses.

NVIDIA's device plugin offers each GPU several times for time-slicing and MPS (`replicas`). Nothing but the
number tells so everywhere: nodes have more GPUs to allocate than their exporter has devices.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from k8s.nodes.dcgm import is_exporter
from k8s.objects import CLASS_PREFIX, Manifest, condition
from k8s.pods import COLLECTORS
from k8s.quantities import any_amount

GPU_CLASS = re.compile(r"(gpu|mig)[.-]([a-z0-9.-]{0,240}[a-z0-9])")  # names of DeviceClasses
GPU_RESOURCE = re.compile(  # a MIG slice counts as one
    rf"nvidia\.com/(gpu(\.shared)?|mig-.+)|{re.escape(CLASS_PREFIX)}{GPU_CLASS.pattern}"
)
UNALLOCATABLE = "cannot allocate all claims"  # the scheduler's words for a node with too few free devices
SHARE = re.compile(r" shared 1/(\d+)$")  # behind the model's name
PROFILE = re.compile(r"nvidia[._]com[/_]mig[-_](.+?)(?:[._]shared)?")  # also as kube-state-metrics spells it
SLICE = " MIG "  # between the model's name and its profile


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


def read_node(node: Manifest) -> GpuNode | None:
    """Return None for a node whose capacity has no GPUs."""
    status = node.get("status", {})
    if not (physical := _count(status.get("capacity", {}))):
        return None
    return GpuNode(
        node=node["metadata"]["name"],
        physical=physical,
        allocatable=_count(status.get("allocatable", {})),
        ready=bool(condition(node, "Ready")),
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


@dataclass(frozen=True)
class NodeDevices:
    """The devices that a node's exporter reports."""

    models: Mapping[str, int] = field(default_factory=dict)  # number by model, a slice's with its profile
    complete: bool = False  # none is left out, such as free ones by relabeling

    @classmethod
    def of(cls, counted: Mapping[tuple[str, str], int]) -> "NodeDevices":
        """`counted`: devices by model and index; NVIDIA counts from 0, so a gap is a GPU left out."""
        models = Counter[str]()
        for (model, _), number in counted.items():
            models[model] += number
        indexes = {index for _, index in counted}
        has_all = indexes == {str(number) for number in range(len(indexes))}
        one_each = all(number == 1 for (model, _), number in counted.items() if SLICE not in model)
        return cls(models, has_all and one_each)

    def model(self, resource: str, total: int) -> str:
        """Return the model of what the node offers as `resource`, `total` times; "" if unknown."""
        found = PROFILE.fullmatch(resource)
        wanted = _spelled(found[1]) if found else ""
        slices = {model: number for model, number in self.models.items() if SLICE in model}
        fits = {model: number for model, number in self.models.items() if _profile(model) == wanted}
        if not found and slices and (not fits or sum(fits.values()) != total == sum(slices.values())):
            fits = slices  # MIG strategy "single": slices are requested like whole GPUs
        if not fits:
            return ""
        model, number = max(fits, key=lambda each: fits[each]), sum(fits.values())
        # Exporters needn't have the slices that are free.
        countable = self.complete if SLICE not in model else resource.endswith("shared")
        is_multiple = total > number and total % number == 0
        return f"{model} shared 1/{total // number}" if countable and is_multiple else model


def _profile(model: str) -> str:
    return _spelled(model.partition(SLICE)[2])


def _spelled(profile: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", profile.lower())


def is_shared(model: str) -> bool:
    return bool(SHARE.search(model))


def with_share(model: str, offered: str) -> str:
    """Return a device's model as a share of it, if the node offers shares."""
    found = SHARE.search(offered)
    return model + found[0] if found else model


def is_whole(model: str) -> bool:
    return SLICE not in model and not is_shared(model)
