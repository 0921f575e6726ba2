"""What Prometheus is asked about GPUs. Each query is tested against a history whose truth is known.

Metrics are those of dcgm-exporter, kube-state-metrics and the kubelets' cAdvisor. What goes wrong with naive
queries, and what is done about it:

- Scraped without honorLabels a metric's own pod is `exported_pod`, and `pod` is its exporter: see `_own`. A
  `node` that is kube-state-metrics' own makes pods without one look as if they had it: see `_placed`.
- A GPU that nobody holds may carry its exporter's pod; callers keep only the pods that `held` knows.
- kube-state-metrics lists pods that ended and pods without a node: neither holds a GPU. A pod that has a node
  and pulls its image does. After a restart each series is there twice for a while, hence `max by` first.
- Two exporters may overlap (a rollout), so what is summed over time is first made one series per GPU at each
  moment, from samples no older than a scrape: see `_shares`. Samples as such would count twice.
- NaN would spread through every sum: `>= 0` leaves it out.
- Some relabeling drops UUID: then host and index tell GPUs apart.
- GPU_UTIL does not know MIG: of a slice it is absent, or 0 whatever that does. GR_ENGINE_ACTIVE does, but
  some GPUs lack it: then the first has to do, and of slices nothing is known.
- Prometheus 2 includes both ends of a range, 3 only the later: ranges stop a second short of the next point.
"""

import json
import re
from collections.abc import Collection, Iterable

from bot.gpus.models import BUSY, ENOUGH
from k8s.dcgm import ENGINE, UTIL, XIDS

DEVICE = "GPU_I_ID, GPU_I_PROFILE, modelName"
NAMES = {"UUID": 'UUID!=""', "gpu, Hostname, hostname": 'UUID=""'}
HOLDERS = {
    "exported_namespace, exported_pod": 'exported_pod!=""',
    "namespace, pod": 'exported_pod="",pod!=""',
}
GPUS = 'resource=~"nvidia_com_(gpu(_shared)?|mig_.+)"'  # resources as kube-state-metrics spells them
SIDECARS = "metrics-logger-and-collector|metrics-collector"
TRAINING = f'container!="",container!="POD",container!~"{SIDECARS}",exported_container!~"{SIDECARS}"'
LABELS = "label_sweepbot_owner, label_sweepbot_team, label_sweepbot_sweep, label_katib_kubeflow_org_trial"
HOUR, HALF = "3599s", "1799s"  # ranges
RENAMED = 'kube_node_status_allocatable{exported_node!=""}'  # there: any `node` is of who was scraped


def _own(series: str, *labels: str) -> str:
    """The series with its own labels at their usual place, whether or not the scrape has renamed them."""
    for label in labels or ("namespace", "pod"):
        series = f'label_replace({series}, "{label}", "$1", "exported_{label}", "(.+)")'
    return series


def _one_of(values: Iterable[str]) -> str:
    """A regular expression, quoted: whoever runs an exporter writes what it says."""
    return json.dumps("|".join(map(re.escape, sorted(values))))


def _placed(series: str) -> str:
    """Of a selector, open at its end, what has a node."""
    series = f'{series},exported_node!=""}} or ({series},node!="",exported_node=""}} unless on () {RENAMED})'
    return _own(f"({series})", "namespace", "pod", "container", "node")


def _unplaced(series: str) -> str:
    series = f'{series},node="",exported_node=""}} or ({series},exported_node=""}} and on () {RENAMED})'
    return _own(f"({series})", "namespace", "pod", "container")


def _requested(resource: str) -> str:
    """Of pods with a node, by container: GPUs, cores, bytes."""
    series = _placed(f"kube_pod_container_resource_requests{{{resource}")
    return f"max by (namespace, pod, container, node, resource) ({series})"


def _in_phase(phases: str) -> str:
    phase = _own(f'kube_pod_status_phase{{phase=~"{phases}"}}')
    return f"(max by (namespace, pod) ({phase}) == 1)"


def _per_hour(series: str) -> str:
    """GPU-hours from GPUs, looked at each minute."""
    return f"sum_over_time(({series})[{HOUR}:1m]) / 60"


def _most(number: str) -> str:
    """The highest in an hour, looked at each minute."""
    return f"max_over_time(({number})[{HOUR}:1m])"


# Who holds what

HELD = (
    f"sum by (namespace, pod, node) ({_requested(GPUS)})"
    f" * on (namespace, pod) group_left () {_in_phase('Pending|Running')}"
)
HELD_HOURS = _per_hour(HELD)
_WANTED = _unplaced(f"kube_pod_container_resource_requests{{{GPUS}")
WANTED = (
    f"sum by (namespace, pod) (max by (namespace, pod, container, resource) ({_WANTED}))"
    f" * on (namespace, pod) group_left () {_in_phase('Pending')}"
)
WAITED_HOURS = _per_hour(f"sum({WANTED})")
WAITING = _most(f"count({WANTED})")
MOST_WANTED = _most(f"sum({WANTED})")
_CREATED = f"max by (namespace, pod) ({_own('kube_pod_created')})"
LONGEST_WAIT = _most(f"max(time() - ({_CREATED} and on (namespace, pod) ({WANTED}))) / 3600")
STARTED = (  # in seconds of Unix time; a pod that pulls its image or crashes in a loop is not there
    "max by (namespace, pod) ("
    + _own("kube_pod_container_state_started", "namespace", "pod", "container")
    + f" and on (namespace, pod, container) ({_requested(GPUS)}))"
    + f" and on (namespace, pod) {_in_phase('Running')}"
)
# Off by default: kube-state-metrics has to be told to export these labels.
WHOSE = f"max by (namespace, pod, {LABELS}) ({_own(f'last_over_time(kube_pod_labels[{HOUR}])')})"


# What the pods with GPUs asked for and used in an hour, also of those that have ended in it

_WITH_GPUS = _own(f"max_over_time(kube_pod_container_resource_requests{{{GPUS}}}[{HOUR}])")
_WITH_GPUS = f"max by (namespace, pod) ({_WITH_GPUS})"


def _of_pods(series: str) -> str:
    """The sum of the containers, of each the highest."""
    per_container = _own(series, "namespace", "pod", "container")
    per_container = f"max by (namespace, pod, container) ({per_container})"
    return f"sum by (namespace, pod) ({per_container}) and on (namespace, pod) {_WITH_GPUS}"


def requested(resource: str) -> str:
    """`cpu` in cores or `memory` in bytes."""
    which = f'resource="{resource}",{TRAINING}'
    return _of_pods(f"max_over_time(kube_pod_container_resource_requests{{{which}}}[{HOUR}])")


# A rate over the hour would spread what was used over the part that nobody saw. Restarts may be new series.
_CPU = _own(f"irate(container_cpu_usage_seconds_total{{{TRAINING}}}[5m])", "namespace", "pod", "container")
_CPU = f"sum by (namespace, pod) (max by (namespace, pod, container) ({_CPU}))"
CPU_MEAN = f"avg_over_time(({_CPU})[{HOUR}:1m]) and on (namespace, pod) {_WITH_GPUS}"
# A mean would hide the peak that the request is for.
RAM_PEAK = _of_pods(f"max_over_time(container_memory_working_set_bytes{{{TRAINING}}}[{HOUR}])")


# Nodes


def _gpus_of(metric: str) -> str:
    return f"sum by (node) (max by (node, resource) ({_own(f'{metric}{{{GPUS}}}', 'node')}))"


ALLOCATABLE = _gpus_of("kube_node_status_allocatable")
PHYSICAL = _gpus_of("kube_node_status_capacity")
CORDONED = f"max by (node) ({_own('kube_node_spec_unschedulable', 'node')}) == 1"
_READY = _own('kube_node_status_condition{condition="Ready",status="true"}', "node")
NOT_READY = f"max by (node) ({_READY}) == 0"
_MODEL = "Hostname, hostname, modelName, GPU_I_PROFILE"  # the first was renamed in 2026
MODELS = f"count by ({_MODEL}) (last_over_time({UTIL}[{HOUR}]) or last_over_time({ENGINE}[{HOUR}]))"


def last_models(nodes: Collection[str]) -> str:
    """Of nodes whose exporter is away, as it was within a week."""
    seen = [
        f"last_over_time({metric}{{{label}=~{_one_of(nodes)}}}[5m])"
        for metric in (UTIL, ENGINE)
        for label in ("Hostname", "hostname")
    ]
    return f"last_over_time((count by ({_MODEL}) ({' or '.join(seen)}))[7d:30m])"


_GPU = "exported_namespace, exported_pod, namespace, pod, UUID, gpu, modelName, Hostname, hostname"
ERRORS = f"max by ({_GPU}) ({XIDS})"

# Arithmetic drops what has no partner: `or 0 *` keeps the nodes on which nothing is held.
_FREE = f"{ALLOCATABLE} - on (node) (sum by (node) ({HELD}) or 0 * {ALLOCATABLE})"
_CLOSED = f"clamp_min({_FREE}, 0) and on (node) (({CORDONED}) or ({NOT_READY}))"
CAPACITY_HOURS = _per_hour(f"sum({ALLOCATABLE})")
LOST_HOURS = _per_hour(f"sum(clamp_min({PHYSICAL} - on (node) {ALLOCATABLE}, 0))")
CLOSED_HOURS = _per_hour(f"sum({_CLOSED})")  # free, but nobody can have it
COVERAGE = f"count_over_time((count(kube_node_status_allocatable))[{HOUR}:1m]) / 60"


# What GPUs do, by pod and GPU


def _either(
    over: str, window: str, function: str, scale: str = "", devices: Collection[str] | None = None
) -> str:
    """By the engine's counter, else by utilization; `over` is a function over the window."""
    which = f"UUID=~{_one_of(devices)}," if devices is not None else ""
    engine, util = (
        _by_gpu(function, f"{over}{metric}{{{which}{but}", f"}}[{window}])")
        for metric, but in ((ENGINE, ""), (UTIL, 'GPU_I_ID="",'))
    )
    return f"(({engine}) >= 0) or (({util}){scale} >= 0)"


def _by_gpu(function: str, start: str, end: str) -> str:
    """Of a selector, cut open. By `label_replace` each moment of an hour would take three times as long."""
    return " or ".join(
        f"{function} by ({names}, {holders}, {DEVICE}) ({start}{named},{held}{end})"
        for holders, held in HOLDERS.items()
        for names, named in NAMES.items()
    )


def peak(window: int, devices: Collection[str] | None = None) -> str:
    """The highest share in so many seconds; `devices` are UUIDs, "" stands for all GPUs without one."""
    return _either("max_over_time(", f"{window}s", "max", " / 100", devices)


def p95(window: int) -> str:
    return _either("quantile_over_time(0.95, ", f"{window}s", "max", " / 100")


def total(window: int) -> str:
    """The sum of all samples' shares."""
    return _either("sum_over_time(", f"{window}s", "sum", " / 100")


def samples(window: int, devices: Collection[str] | None = None) -> str:
    return _either("count_over_time(", f"{window}s", "sum", "", devices)


def _shares(function: str, step: int, devices: Collection[str] | None = None) -> str:
    """At each moment of the last scrapes, `step` seconds at most; nothing where they brought nothing."""
    return _either(f"{function}_over_time(", f"{step * 1000 - 1}ms", "max", " / 100", devices)


def numbers(function: str, window: int, step: int, devices: Collection[str]) -> str:
    """`count` or `sum` of those samples in so many seconds that are numbers."""
    return f"{function}_over_time(({_shares('avg', step, devices)})[{window - 1}s:{step}s])"


def used_hours(step: int) -> str:
    return f"sum_over_time(({_shares('avg', step)})[{HOUR}:{step}s]) * {step} / 3600"


def observed_hours(step: int) -> str:
    return f"count_over_time(({_shares('avg', step)})[{HOUR}:{step}s]) * {step} / 3600"


def idle_half(step: int) -> str:
    """GPU-hours of the half hour before, of those that did nothing in it."""
    half, enough = f"({_shares('max', step)})[{HALF}:{step}s]", ENOUGH * 1800 / step
    return f"(count_over_time({half}) >= {enough:g} and max_over_time({half}) < {BUSY}) * {step} / 3600"


# How often dcgm-exporter is scraped: as the samples of one GPU of each host lie


def hosts(window: int) -> str:
    """How many samples of each GPU there are in so many seconds, by host and scrape."""
    either = f"count_over_time({UTIL}[{window}s]) or count_over_time({ENGINE}[{window}s])"
    return f"max by (UUID, gpu, Hostname, hostname, instance) ({either})"


def moments(devices: Iterable[str], window: int) -> str:
    """The samples themselves of these UUIDs, one of which may be empty."""
    return f'{{__name__=~"{UTIL}|{ENGINE}",UUID=~{_one_of(devices)}}}[{window}s]'
