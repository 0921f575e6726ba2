"""GPUs as the cluster tells of them: the pods that hold some, the nodes, and what dcgm-exporter measures."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.parser import text_string_to_metric_families

from k8s.objects import Manifest, parse_time

GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)")  # a MIG slice counts as one
EXPORTERS = {  # as the GPU operator, the exporter's own chart and GKE call it
    "nvidia-dcgm-exporter",
    "dcgm-exporter",
    "gke-managed-dcgm-exporter",
}
EXPORTER_PORT, EXPORTER_PATH = 9400, "metrics"
ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"  # 0 to 1, 0 to 100
XIDS = "DCGM_FI_DEV_XID_ERRORS"
SIDECARS = {"metrics-logger-and-collector", "metrics-collector"}  # Katib's, in every trial

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([numkKMGTPE]?i?)")
_UNITS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
_BINARY = {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
_LONGEST = 8192  # characters of a line; the parser takes quadratic time


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A pod that holds GPUs."""

    namespace: str
    pod: str
    node: str
    labels: dict[str, str]
    gpus: int
    started: datetime | None  # since when all its containers with GPUs run
    cpu_requested: float | None  # cores
    ram_requested: float | None  # bytes


@dataclass(frozen=True, kw_only=True)
class GpuNode:
    node: str
    physical: int
    allocatable: int
    ready: bool
    cordoned: bool


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one GPU did when it was asked; without a pod nobody holds it."""

    namespace: str
    pod: str
    device: str
    model: str
    share: float


@dataclass(frozen=True, kw_only=True)
class LastError:
    """Of one GPU since its exporter began: NVIDIA's Xid, 0 for none."""

    namespace: str
    pod: str
    device: str
    model: str
    code: int


def concerns_gpus(pod: Manifest) -> bool:
    """It asks for some, or says what they do."""
    return any(map(_gpus, pod["spec"]["containers"])) or is_exporter(pod)


def read_holder(pod: Manifest) -> Holder | None:
    """None: it asks for no GPU, has no node yet, or has ended, whatever is still to be read of it."""
    containers, status = pod["spec"]["containers"], pod.get("status", {})
    gpus = sum(_gpus(each) for each in containers)
    if not gpus or not pod["spec"].get("nodeName") or status.get("phase") not in {"Pending", "Running"}:
        return None
    training = [each for each in containers if each["name"] not in SIDECARS]
    return Holder(
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        node=pod["spec"]["nodeName"],
        labels=pod["metadata"].get("labels", {}),
        gpus=gpus,
        started=_started(status, {each["name"] for each in containers if _gpus(each)}),
        cpu_requested=_requested(training, "cpu"),
        ram_requested=_requested(training, "memory"),
    )


def wanted(pod: Manifest) -> int:
    """GPUs that it asks for and no node has room for."""
    waits = not pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Pending"
    return sum(_gpus(each) for each in pod["spec"]["containers"]) if waits else 0


def read_node(node: Manifest) -> GpuNode | None:
    """None: it has no GPUs and never had."""
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


def is_exporter(pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels", {})
    named = {labels.get("app"), labels.get("app.kubernetes.io/name")} & EXPORTERS
    return bool(named) and pod.get("status", {}).get("phase") == "Running"


def read_exporter(text: str) -> list[Reading]:
    """By the engine's counter, which knows MIG; by utilization, which does not, where that is missing."""
    found: dict[tuple[str, str, str], Reading] = {}
    for metric, reading in sorted(_readings(text), key=lambda each: each[0], reverse=True):
        key = (reading.namespace, reading.pod, reading.device)
        if metric == ENGINE or key not in found:
            found[key] = reading
    return list(found.values())


def read_errors(text: str) -> list[LastError]:
    return [
        LastError(
            namespace=said.get("namespace", ""),
            pod=said.get("pod", ""),
            device=_device(said),
            model=said.get("modelName", ""),
            code=round(value),
        )
        for _, said, value in _samples(text, XIDS)
    ]


def read_usage(metrics: Manifest) -> tuple[float, float]:
    """Cores and bytes that a pod uses, of a PodMetrics, without Katib's sidecar."""
    used = [each["usage"] for each in metrics["containers"] if each["name"] not in SIDECARS]
    return sum(amount(each["cpu"]) for each in used), sum(amount(each["memory"]) for each in used)


def amount(quantity: str) -> float:
    """A Kubernetes quantity as a number: `4Gi` is 4294967296.0, `12345678n` is 0.012345678."""
    match = _QUANTITY.fullmatch(quantity)
    if not match:
        raise ValueError(f"{quantity} is not a quantity")
    return float(match[1]) * (_UNITS | _BINARY)[match[2]]


def _gpus(container: Manifest) -> int:
    """Requests and limits of such resources are equal; either may be left out."""
    resources = container.get("resources", {})
    return _count({**resources.get("limits", {}), **resources.get("requests", {})})


def _count(sizes: Manifest) -> int:
    return sum(int(amount(size)) for name, size in sizes.items() if GPU_RESOURCE.fullmatch(name))


def _requested(containers: list[Manifest], resource: str) -> float | None:
    asked = [each.get("resources", {}).get("requests", {}).get(resource) for each in containers]
    return sum(amount(each) for each in asked if each) if any(asked) else None


def _started(status: Manifest, containers: set[str]) -> datetime | None:
    mine = [each for each in status.get("containerStatuses") or [] if each["name"] in containers]
    since = [parse_time(each.get("state", {}).get("running", {}).get("startedAt")) for each in mine]
    known = [each for each in since if each]
    return max(known) if known and len(known) == len(containers) else None


def _readings(text: str) -> Iterator[tuple[str, Reading]]:
    for metric, said, value in _samples(text, ENGINE, UTIL):
        slice_, profile = said.get("GPU_I_ID", ""), said.get("GPU_I_PROFILE", "")
        if slice_ and metric == UTIL:
            continue  # absent, or 0 whatever the slice does
        yield (
            metric,
            Reading(
                namespace=said.get("namespace", ""),
                pod=said.get("pod", ""),
                device="/".join(filter(None, (_device(said), slice_))),
                model=said.get("modelName", "") + f" MIG {profile}" * bool(profile),
                share=value / (1 if metric == ENGINE else 100),
            ),
        )


def _device(labels: dict[str, str]) -> str:
    """Its UUID; some relabeling drops that, then host and index."""
    host = labels.get("Hostname") or labels.get("hostname", "")
    return labels.get("UUID") or f"{host}:{labels.get('gpu', '')}"


def _samples(text: str, *names: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels, and value of each sample with one of these names.

    Line by line, because the parser gives up at the first one that it can't read. What is no number (NaN,
    Inf) or below zero says nothing.
    """
    for line in text.splitlines():
        if line.lstrip().startswith(names) and len(line) <= _LONGEST:
            try:
                [[sample]] = (family.samples for family in text_string_to_metric_families(line))
            except (ValueError, IndexError):
                continue
            if sample.name in names and math.isfinite(sample.value) and sample.value >= 0:
                yield sample.name, sample.labels, sample.value
