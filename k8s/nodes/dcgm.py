"""Read the metrics page of dcgm-exporter: utilization, SM activity, watts, memory, and Xid errors by DCGM's
field names, without impossible values; find its pods.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client.parser import text_string_to_metric_families

from k8s.objects import Manifest

EXPORTERS = {  # named by the GPU operator, the exporter's own chart, and GKE
    "nvidia-dcgm-exporter",
    "dcgm-exporter",
    "gke-managed-dcgm-exporter",
}
EXPORTER_PORT, EXPORTER_PATH = 9400, "metrics"
ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"  # 0 to 1, 0 to 100
SM, POWER, MEMORY = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED"
XIDS = "DCGM_FI_DEV_XID_ERRORS"
MOST = 1.1  # utilization; a GPU_UTIL of thousands of percent is a fault of DCGM, seen on idle GPUs, too
MIB_PER_GIB = 1024
# Fields of `Load`, divisors, and the most that a GPU can have: DCGM's values for unknown are far above.
LOAD = {SM: ("sm", 1, MOST), POWER: ("watts", 1, 1e5), MEMORY: ("memory", MIB_PER_GIB, 1e5)}
MAX_LINE = 8192  # characters; the parser takes quadratic time


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What shows how much a GPU computes: utilization also counts kernels that only wait. None: unknown."""

    sm: float | None = None  # SM activity: share of the multiprocessors with work, 0 to 1
    watts: float | None = None  # of the whole card, so never of a MIG slice
    memory: float | None = None  # in use, GiB


NO_LOAD = Load()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Utilization of one GPU; without a pod it is not allocated."""

    namespace: str
    pod: str
    device: str
    model: str
    share: float  # 0 to 1
    index: str = ""  # of the GPU in its node, from 0
    load: Load = NO_LOAD


@dataclass(frozen=True, kw_only=True)
class Xid:
    """A GPU's last error since its exporter started; a repeated error isn't visible."""

    device: str
    model: str = ""
    node: str
    namespace: str = ""  # of the pod that the GPU is allocated to
    pod: str = ""
    code: int  # 0: none


def is_exporter(pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels", {})
    named = {labels.get("app"), labels.get("app.kubernetes.io/name")} & EXPORTERS
    return bool(named) and pod.get("status", {}).get("phase") == "Running"


def read_exporter(text: str) -> list[Reading]:
    """Read the graphics engine's counter, which covers MIG; else utilization, which doesn't.

    The counter can read 0 for weeks while the GPU is busy, until its exporter restarts.
    """
    shares = defaultdict[tuple[str, str, str], dict[str, Reading]](dict)  # by namespace, pod, and device
    loads = defaultdict[tuple[str, str, str], dict[str, float]](dict)
    for metric, labels, value in _samples(text, ENGINE, UTIL, *LOAD):
        slice_ = labels.get("GPU_I_ID", "")
        if slice_ and metric in (UTIL, POWER):
            continue  # absent, always 0 for slices, or of the whole card
        key = labels.get("namespace", ""), labels.get("pod", ""), device_of(labels)
        if metric in LOAD:
            name, divisor, most = LOAD[metric]
            if value / divisor <= most:
                loads[key][name] = value / divisor
        elif (share := value / (1 if metric == ENGINE else 100)) <= MOST:
            namespace, pod, device = key
            index, model = labels.get("gpu", ""), model_of(labels)
            shares[key][metric] = Reading(
                namespace=namespace, pod=pod, device=device, model=model, share=share, index=index
            )
    found = ((key, _counted(each)) for key, each in shares.items())
    return [replace(reading, load=Load(**loads[key])) if key in loads else reading for key, reading in found]


def _counted(by_metric: dict[str, Reading]) -> Reading:
    engine = by_metric.get(ENGINE)
    return engine if engine and engine.share else by_metric.get(UTIL) or by_metric[ENGINE]


def read_errors(text: str, node: str) -> list[Xid]:
    return [
        Xid(
            namespace=labels.get("namespace", ""),
            pod=labels.get("pod", ""),
            node=node,
            device=gpu_of(labels),
            model=labels.get("modelName", ""),
            code=round(value),
        )
        for _, labels, value in _samples(text, XIDS)
    ]


def gpu_of(labels: Mapping[str, str]) -> str:
    """Return the UUID; host:index where relabeling has dropped it; "" if the labels name no GPU."""
    host, index = labels.get("Hostname") or labels.get("hostname", ""), labels.get("gpu", "")
    return labels.get("UUID") or (f"{host}:{index}" if host or index else "")


def device_of(labels: Mapping[str, str]) -> str:
    """Return the GPU, and behind a slash its MIG slice."""
    return "/".join(filter(None, (gpu_of(labels), labels.get("GPU_I_ID", ""))))


def model_of(labels: Mapping[str, str]) -> str:
    profile = labels.get("GPU_I_PROFILE", "")
    return labels.get("modelName", "") + f" MIG {profile}" * bool(profile)


def _samples(text: str, *names: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels, and value of each sample with one of these names.

    One line at a time, because the parser stops at the first that it can't read. NaN, Inf, and values below
    zero are skipped.
    """
    for line in text.splitlines():
        if line.lstrip().startswith(names) and len(line) <= MAX_LINE:
            try:
                [[sample]] = (family.samples for family in text_string_to_metric_families(line))
            except (ValueError, IndexError):
                continue
            if sample.name in names and math.isfinite(sample.value) and sample.value >= 0:
                yield sample.name, sample.labels, sample.value
