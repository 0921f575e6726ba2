"""Read the metrics page of dcgm-exporter (Prometheus exposition format), and find its pods."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from k8s.objects import Manifest

EXPORTERS = {  # named by the GPU operator, the exporter's own chart, and GKE
    "nvidia-dcgm-exporter",
    "dcgm-exporter",
    "gke-managed-dcgm-exporter",
}
EXPORTER_PORT, EXPORTER_PATH = 9400, "metrics"
ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"  # 0 to 1, 0 to 100
XIDS = "DCGM_FI_DEV_XID_ERRORS"
MAX_LINE = 8192  # characters; the parser takes quadratic time


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Utilization of one GPU; without a pod it is not allocated."""

    namespace: str
    pod: str
    device: str
    model: str
    share: float  # 0 to 1


@dataclass(frozen=True, kw_only=True)
class LastError:
    """The last error of one GPU since its exporter started."""

    namespace: str
    pod: str
    device: str
    model: str
    code: int  # NVIDIA's Xid; 0: no error


def is_exporter(pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels", {})
    named = {labels.get("app"), labels.get("app.kubernetes.io/name")} & EXPORTERS
    return bool(named) and pod.get("status", {}).get("phase") == "Running"


def read_exporter(text: str) -> list[Reading]:
    """Read the graphics engine's counter, which covers MIG; else utilization, which doesn't."""
    found: dict[tuple[str, str, str], Reading] = {}
    for metric, reading in sorted(_readings(text), key=lambda each: each[0], reverse=True):
        key = (reading.namespace, reading.pod, reading.device)
        if metric == ENGINE or key not in found:
            found[key] = reading
    return list(found.values())


def read_errors(text: str) -> list[LastError]:
    return [
        LastError(
            namespace=label_set.get("namespace", ""),
            pod=label_set.get("pod", ""),
            device=_device(label_set),
            model=label_set.get("modelName", ""),
            code=round(value),
        )
        for _, label_set, value in _samples(text, XIDS)
    ]


def _readings(text: str) -> Iterator[tuple[str, Reading]]:
    for metric, label_set, value in _samples(text, ENGINE, UTIL):
        slice_, profile = label_set.get("GPU_I_ID", ""), label_set.get("GPU_I_PROFILE", "")
        if slice_ and metric == UTIL:
            continue  # absent, or always 0 for slices
        yield (
            metric,
            Reading(
                namespace=label_set.get("namespace", ""),
                pod=label_set.get("pod", ""),
                device="/".join(filter(None, (_device(label_set), slice_))),
                model=label_set.get("modelName", "") + f" MIG {profile}" * bool(profile),
                share=value / (1 if metric == ENGINE else 100),
            ),
        )


def _device(labels: dict[str, str]) -> str:
    """Return the UUID; host and index where relabeling has dropped it."""
    host = labels.get("Hostname") or labels.get("hostname", "")
    return labels.get("UUID") or f"{host}:{labels.get('gpu', '')}"


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
