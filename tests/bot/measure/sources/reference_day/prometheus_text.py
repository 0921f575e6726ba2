"""The busy day as Prometheus would have scraped it, in the text that `promtool` makes blocks from."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cache

from tests.bot.measure.sources.reference_day import cluster

Sample = tuple[str, dict[str, object], float]
GPU = {"resource": "nvidia_com_gpu", "unit": "integer"}


def openmetrics(start: datetime, *, honoured: bool) -> str:
    """`honoured`: scraped with honorLabels, so that a metric's own pod is `pod` and not `exported_pod`."""
    families: dict[str, list[str]] = defaultdict(list)
    for tick in range(cluster.PHASE, 24 * 3600, cluster.SCRAPE):
        hour, at = tick / 3600, start.timestamp() + tick
        for name, labels, value in (*of_exporters(hour), *of_states(hour, start), *of_kubelets(hour)):
            pairs = _pairs(tuple(labels.items()), honoured)
            families[name].append(
                f"{name}{{{pairs}}} {value:g} {at:.3f}"
                if value < 1e6
                else f"{name}{{{pairs}}} {value!r} {at:.3f}"
            )
    text = [line for name, lines in families.items() for line in (f"# TYPE {name} unknown", *lines)]
    return "\n".join([*text, "# EOF", ""])


@cache  # each series has up to 2,880 samples
def _pairs(labels: tuple[tuple[str, object], ...], honoured: bool) -> str:
    scraped = _scraped(dict(labels), honoured).items()
    return ",".join(f'{key}="{each}"' for key, each in scraped if each != "")


def _scraped(labels: dict[str, object], honoured: bool) -> dict[str, object]:
    """Merge the target's labels as Prometheus does; with honor_labels, an empty label removes one."""
    target = {key[1:]: value for key, value in labels.items() if key.startswith("_")}
    own = {key: value for key, value in labels.items() if not key.startswith("_")}
    if honoured:
        return target | own
    return own | {f"exported_{key}": own[key] for key in target if own.get(key, "") != ""} | target


def of_exporters(hour: float) -> Iterator[Sample]:
    for node in cluster.PHYSICAL:
        for exporter in cluster.exporters(node, hour):
            target = {"_namespace": "gpu-operator", "_pod": exporter, "_instance": exporter}
            host = {"hostname" if "new" in exporter else "Hostname": node}
            for namespace, pod, gpu, share in cluster.readings(node, hour):
                uuid, _, slice_ = gpu.partition("/")
                labels = target | host | {"UUID": uuid, "gpu": uuid[-1], "modelName": cluster.MODELS[node]}
                if pod:  # else newer exporters leave these labels out
                    labels |= {"namespace": namespace, "pod": pod, "container": "main"}
                if slice_:
                    labels |= {"GPU_I_ID": slice_, "GPU_I_PROFILE": cluster.SLICE}
                if cluster.profiled(node, hour):
                    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, share
                for metric, value in cluster.loads(node, hour, share).items():
                    yield metric, labels, value
                yield "DCGM_FI_DEV_XID_ERRORS", labels, cluster.xid(gpu, hour)
                yield "DCGM_FI_DEV_GPU_UTIL", labels, 0 if slice_ else 100 * share


def of_states(hour: float, start: datetime) -> Iterator[Sample]:
    """The metrics of kube-state-metrics, once or twice."""
    old, new = hour < cluster.BOTH_STATES[1], hour >= cluster.BOTH_STATES[0]
    for one in ("ksm-old",) * old + ("ksm-new",) * new:
        target: dict[str, object] = {
            "_namespace": "monitoring",
            "_pod": one,
            "_container": "ksm",
            "_instance": one,
            "_node": "n2",  # where it runs itself
        }
        for name, labels, value in _states(hour, start):
            yield name, target | labels, value


def _states(hour: float, start: datetime) -> Iterator[Sample]:
    for node in cluster.PHYSICAL:
        yield "kube_node_status_capacity", {"node": node, **GPU}, cluster.PHYSICAL[node]
        yield "kube_node_status_allocatable", {"node": node, **GPU}, cluster.allocatable(node, hour)
        yield "kube_node_status_allocatable", {"node": node, "resource": "cpu", "unit": "core"}, 64
        yield "kube_node_spec_unschedulable", {"node": node}, cluster.cordoned(node, hour)
        for status in ("true", "false", "unknown"):
            labels = {"node": node, "condition": "Ready", "status": status}
            yield "kube_node_status_condition", labels, status == "true"
    for pod in cluster.PODS:
        if phase := pod.phase(hour):
            namespace, name = pod.pod.split("/")
            one = {"namespace": namespace, "pod": name, "uid": f"uid-{name}"}
            main = one | {"container": "main", "node": pod.node}
            yield "kube_pod_container_resource_requests", main | GPU, len(pod.gpus)
            yield "kube_pod_container_resource_requests", main | {"resource": "cpu", "unit": "core"}, 4
            yield "kube_pod_container_resource_requests", main | {"resource": "memory", "unit": "byte"}, 2**35
            yield "kube_pod_created", one, start.timestamp() + 3600 * pod.begin
            sidecar = one | {"container": "metrics-logger-and-collector", "node": pod.node}
            yield "kube_pod_container_resource_requests", sidecar | {"resource": "cpu", "unit": "core"}, 1
            for each in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
                yield "kube_pod_status_phase", one | {"phase": each}, each == phase
            if phase == "Running":
                since = start.timestamp() + 3600 * pod.started(hour)
                yield "kube_pod_container_state_started", one | {"container": "main"}, since
                yield "kube_pod_start_time", one, start.timestamp() + 3600 * pod.begin
                restarts = pod.restarted(hour)
                yield "kube_pod_container_status_restarts_total", one | {"container": "main"}, restarts
            if pod.sweep:
                sweep = {"label_sweepbot_sweep": pod.sweep, "label_sweepbot_owner": "U1A1"}
                yield "kube_pod_labels", one | sweep, 1


def of_kubelets(hour: float) -> Iterator[Sample]:
    """A quarter of its request in cores, counted from zero after each restart; 4 GiB, and 12 at 23:00."""
    for pod in cluster.PODS:
        if pod.phase(hour) == "Running":
            namespace, name = pod.pod.split("/")
            labels: dict[str, object] = {"namespace": namespace, "pod": name, "_instance": pod.node}
            memory = (12 if 23 <= hour < 23.1 else 4) * 2**30
            for container in ("main", "metrics-logger-and-collector"):
                one = labels | {"container": container}
                yield "container_cpu_usage_seconds_total", one, round(3600 * (hour - pod.started(hour)), 3)
                yield "container_memory_working_set_bytes", one, memory
