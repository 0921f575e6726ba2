"""PromQL queries for GPUs: allocations, waiting pods, CPU and memory, nodes, models, utilization, SM
activity, power, Xids, and scrapes, each tested on a day with known results.

Metrics come from dcgm-exporter, kube-state-metrics, and the kubelets' cAdvisor. Simple queries give wrong
results for these reasons:

- Scraped without honorLabels, a metric's own pod is `exported_pod`, and `pod` is its exporter: see
  `original`. kube-state-metrics' own `node` then makes unscheduled pods look scheduled: see `_scheduled`.
- A free GPU can have its exporter's pod; callers keep only the pods of `ALLOCATED`.
- kube-state-metrics lists terminated and unscheduled pods: neither has a GPU. A scheduled pod that pulls
  its image does. After a restart each series exists twice for a while, hence `max by` first.
- Two exporters overlap in a rollout, so sums over time first combine them into one series per GPU, from
  samples no older than one scrape: see `_utilization`. Otherwise samples count twice.
- NaN turns every sum into NaN: `>= 0` leaves it out. One GPU_UTIL of a million percent, which DCGM exports
  at times, counts as hours: see `_utilization`.
- Some relabeling drops UUID: then host and index identify a GPU.
- GPU_UTIL doesn't support MIG: for a slice it is absent or 0. GR_ENGINE_ACTIVE does, but some GPUs lack it:
  then GPU_UTIL is used, and the utilization of slices is unknown. It can read 0 for weeks while GPUs are
  busy: then GPU_UTIL counts, too.
- Prometheus 2 includes both ends of a range, 3 only the later: ranges end a second before the next point.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable

from bot.measure.gpus.models import BUSY, MIN_COVERAGE
from bot.measure.sources.series_kinds import ALL_KINDS, NAMINGS, Naming, SeriesKinds
from k8s.nodes.dcgm import ENGINE, MEMORY, MOST, POWER, SM, UTIL, XIDS
from k8s.pods import COLLECTORS

DEVICE = "GPU_I_ID, GPU_I_PROFILE, modelName"
GPUS = 'resource=~"nvidia_com_(gpu(_shared)?|mig_.+)"'  # resources as kube-state-metrics spells them
SIDECARS = "|".join(sorted(COLLECTORS))
TRAINING = f'container!="",container!="POD",container!~"{SIDECARS}",exported_container!~"{SIDECARS}"'
POD_LABELS = "label_sweepbot_owner, label_sweepbot_team, label_sweepbot_sweep, label_katib_kubeflow_org_trial"
HOUR_WINDOW, HALF_HOUR_WINDOW = "3599s", "1799s"  # ranges
P95 = "quantile_over_time(0.95, "
RENAMED = 'kube_node_status_allocatable{exported_node!=""}'  # exists: every `node` is the scraped pod's


def original(series: str, *labels: str) -> str:
    """Restore the series' own labels if the scrape has renamed them to `exported_…`."""
    for label in labels or ("namespace", "pod"):
        series = f'label_replace({series}, "{label}", "$1", "exported_{label}", "(.+)")'
    return series


def any_of(values: Iterable[str]) -> str:
    """Return a quoted regular expression; values come from exporters and can contain anything."""
    # PromQL rejects JSON's escape of a character above U+FFFF, which is of two halves.
    return json.dumps("|".join(map(re.escape, sorted(values))), ensure_ascii=False)


def _scheduled(series: str) -> str:
    """Return what has a node, for a selector without its closing brace."""
    series = f'{series},exported_node!=""}} or ({series},node!="",exported_node=""}} unless on () {RENAMED})'
    return original(f"({series})", "namespace", "pod", "container", "node")


def _unscheduled(series: str) -> str:
    series = f'{series},node="",exported_node=""}} or ({series},exported_node=""}} and on () {RENAMED})'
    return original(f"({series})", "namespace", "pod", "container")


def _requested(resource: str) -> str:
    """Return requests of scheduled pods by container: GPUs, cores, bytes."""
    series = _scheduled(f"kube_pod_container_resource_requests{{{resource}")
    return f"max by (namespace, pod, container, node, resource) ({series})"


def by_place(series: str) -> str:
    """Sum up a pod's containers, by node and resource."""
    series = original(series, "namespace", "pod", "node")
    return f"sum by (namespace, pod, node, resource) ({series})"


def _in_phase(phases: str, which: str = "") -> str:
    """Return 1 for each pod in a phase, filtered first: restoring labels takes longer."""
    phase = original(f'kube_pod_status_phase{{phase=~"{phases}"{which}}} == 1')
    return f"(max by (namespace, pod) ({phase}))"


def _per_hour(series: str) -> str:
    """Return GPU-hours, sampled each minute."""
    return f"sum_over_time(({series})[{HOUR_WINDOW}:1m]) / 60"


def _hourly_peak(number: str) -> str:
    """Return the peak of an hour, sampled each minute."""
    return f"max_over_time(({number})[{HOUR_WINDOW}:1m])"


# Allocations


def _allocated(which: str = "") -> str:
    return (
        f"sum by (namespace, pod, node, resource) ({_requested(GPUS + which)})"
        f" * on (namespace, pod) group_left () {_in_phase('Pending|Running', which)}"
    )


def allocated_hours(which: str) -> str:
    """`which`: of `promql_hour.these`."""
    return _per_hour(_allocated(which))


ALLOCATED = _allocated()
_PENDING = _unscheduled(f"kube_pod_container_resource_requests{{{GPUS}")
PENDING = (
    f"sum by (namespace, pod) (max by (namespace, pod, container, resource) ({_PENDING}))"
    f" * on (namespace, pod) group_left () {_in_phase('Pending')}"
)
# Without any, the following are 0: each looks at every pod in every minute.
ANY_PENDING = _hourly_peak(f"count({_PENDING})")
PENDING_HOURS = _per_hour(f"sum({PENDING})")
PENDING_PODS = _hourly_peak(f"count({PENDING})")
PENDING_PEAK = _hourly_peak(f"sum({PENDING})")
_CREATED = f"max by (namespace, pod) ({original('kube_pod_created')})"
LONGEST_WAIT = _hourly_peak(f"max(time() - ({_CREATED} and on (namespace, pod) ({PENDING}))) / 3600")
SAME_POD = "namespace, pod, exported_namespace, exported_pod"  # of one scrape, so renamed alike
_HAS_GPUS = (
    f"and on ({SAME_POD}, container, exported_container) kube_pod_container_resource_requests{{{GPUS}}}"
)
_RUNS = f'and on ({SAME_POD}) (kube_pod_status_phase{{phase="Running"}} == 1)'
_STARTED = f"kube_pod_container_state_started {_HAS_GPUS} {_RUNS}"
_RESTARTED = f"(kube_pod_container_status_restarts_total > 0) {_HAS_GPUS}"
_RESTARTED = f"kube_pod_start_time and on ({SAME_POD}) ({_RESTARTED}) {_RUNS}"
# Unix seconds: when containers last started, absent for a pod that pulls its image or crash-loops; and when
# pods started of which a container has restarted.
POD_STARTED, RESTARTED_POD_STARTED = (
    f"max by (namespace, pod) ({original(f'({series})')})" for series in (_STARTED, _RESTARTED)
)
# Off by default: kube-state-metrics exports these labels only if configured.
OWNER_LABELS, HOUR_OWNER_LABELS = (
    f"max by (namespace, pod, {POD_LABELS}) ({original(series)})"
    for series in ("kube_pod_labels", f"last_over_time(kube_pod_labels[{HOUR_WINDOW}])")
)


# CPU and memory of the pods of some namespaces in an hour, including pods that terminated in it


def of_containers(series: Callable[[str], str], namespaces: Collection[str]) -> str:
    """Return series of containers, by their own names. `series`: by a selector to put behind others."""
    names = any_of(namespaces)  # of none, the regular expression matches series without the label
    renamed, own = (
        f',exported_namespace!="",exported_namespace=~{names}',
        f',namespace!="",namespace=~{names}',
    )
    either = series(renamed), series(f'{own},exported_namespace=""')
    return original(f"({' or '.join(either)})", "namespace", "pod", "container")


def _of_pods(metric: str, namespaces: Collection[str]) -> str:
    """Sum the containers, the maximum of each. `metric`: with a selector without its closing brace."""
    series = of_containers(lambda which: f"max_over_time({metric}{which}}}[{HOUR_WINDOW}])", namespaces)
    per_container = f"max by (namespace, pod, container, resource) ({series})"
    return f"sum by (namespace, pod, resource) ({per_container})"


def requested(namespaces: Collection[str]) -> str:
    """Return cores, with the label `resource="cpu"`, and bytes, with `resource="memory"`."""
    which = f'{{resource=~"cpu|memory",{TRAINING}'
    return _of_pods(f"kube_pod_container_resource_requests{which}", namespaces)


def ram_peak(namespaces: Collection[str]) -> str:
    """Return bytes. Memory is requested for its peak."""
    return _of_pods(f"container_memory_working_set_bytes{{{TRAINING}", namespaces)


def cpu_rate(which: str = "") -> str:
    """Return a container's cores; a rate over the hour would spread use over time without samples."""
    return f"irate(container_cpu_usage_seconds_total{{{TRAINING}{which}}}[5m])"


def cpu_mean(which: str) -> str:
    """Return pods' mean over an hour: a restart can start a new series. `which`: of `promql_hour.these`."""
    containers = original(cpu_rate(which), "namespace", "pod", "container")
    pods = f"sum by (namespace, pod) (max by (namespace, pod, container) ({containers}))"
    return f"avg_over_time(({pods})[{HOUR_WINDOW}:1m])"


# Nodes


def _by_resource(series: str) -> str:
    return f"max by (node, resource) ({original(series, 'node')})"


_CAPACITY = f"kube_node_status_capacity{{{GPUS}}}"
ALLOCATABLE_BY_RESOURCE = _by_resource(f"kube_node_status_allocatable{{{GPUS}}}")
PHYSICAL_BY_RESOURCE = _by_resource(_CAPACITY)
HOUR_PHYSICAL = _by_resource(f"last_over_time({_CAPACITY}[{HOUR_WINDOW}])")
ALLOCATABLE = f"sum by (node) ({ALLOCATABLE_BY_RESOURCE})"
CORDONED = f"max by (node) ({original('kube_node_spec_unschedulable', 'node')}) == 1"
_READY = 'kube_node_status_condition{condition="Ready",status="true"}'
NOT_READY = f"max by (node) ({original(_READY, 'node')}) == 0"
_MODEL = "Hostname, hostname, modelName, GPU_I_PROFILE"  # the first was renamed in 2026


def _devices(series: str) -> str:
    """Count devices by host, index, and model: two pods or exporters can have series of one device."""
    return f"count by ({_MODEL}, gpu) (max by ({_MODEL}, gpu, UUID, GPU_I_ID) ({series}))"


MODELS = _devices(f"{UTIL} or {ENGINE}")
HOUR_MODELS = _devices(f"last_over_time({UTIL}[{HOUR_WINDOW}]) or last_over_time({ENGINE}[{HOUR_WINDOW}])")


def scraped_models(hosts: Collection[str]) -> str:
    """Return the models of these hosts by the address that is scraped: several nodes can have one host.

    An exporter of 2025 that reads an engine at localhost, or at a Service, calls the GPUs' host so.
    """
    address = r'"Hostname", "$1", "instance", "\\[?(.+?)\\]?(?::[0-9]+)?"'
    return _devices(f"label_replace({_seen(hosts, HOUR_WINDOW)}, {address})")


def last_models(nodes: Collection[str]) -> str:
    """Return the models of nodes without metrics, as they were within a week."""
    return f"last_over_time(({_devices(_seen(nodes, '5m'))})[7d:30m])"


def _seen(hosts: Collection[str], window: str) -> str:
    """Return the last samples of these hosts' GPUs."""
    return " or ".join(
        f"last_over_time({metric}{{{label}=~{any_of(hosts)}}}[{window}])"
        for metric in (UTIL, ENGINE)
        for label in ("Hostname", "hostname")
    )


def nodes_of(hosts: Collection[str]) -> str:
    """Return the nodes of hosts that are exporters' pods, as before 2023, or nodes' addresses.

    An exporter that reads another host's engine calls its GPUs' host by the address that it was given. Only
    DaemonSets' pods count by their addresses, which ended pods keep.
    """
    names = any_of(hosts)
    pods = f"last_over_time(kube_pod_info{{pod=~{names}}}[{HOUR_WINDOW}])"
    renamed = f"last_over_time(kube_pod_info{{exported_pod=~{names}}}[{HOUR_WINDOW}])"
    addresses = f"last_over_time(kube_node_info{{internal_ip=~{names}}}[{HOUR_WINDOW}])"
    daemons = f'last_over_time(kube_pod_info{{created_by_kind="DaemonSet",pod_ip=~{names}}}[{HOUR_WINDOW}])'
    found = (
        f'label_replace({original(series, "pod", "node")}, "host", "$1", "{label}", "(.+)")'
        for label, series in (
            ("pod", f"({renamed} or {pods})"),
            ("internal_ip", addresses),
            ("pod_ip", daemons),
        )
    )
    return f"max by (host, node) ({' or '.join(found)})"


_GPU = "exported_namespace, exported_pod, namespace, pod, UUID, gpu, modelName, Hostname, hostname"
ERRORS = f"max by ({_GPU}) ({XIDS})"

_HOLDERS = f"(({ALLOCATED}) and on (namespace, pod) {_in_phase('Running')})"
_MEASURED = f"max by (namespace, pod) ({original(f'({UTIL} or {ENGINE})')})"
# How many pods hold GPUs; nothing if there are metrics of one of them.
UNNAMED_HOLDERS = f"count({_HOLDERS}) unless on () count({_HOLDERS} and on (namespace, pod) {_MEASURED})"

# Arithmetic drops unmatched series: `or 0 *` keeps nodes without allocations.
_FREE = f"{ALLOCATABLE} - on (node) (sum by (node) ({ALLOCATED}) or 0 * {ALLOCATABLE})"
_CLOSED = f"clamp_min({_FREE}, 0) and on (node) (({CORDONED}) or ({NOT_READY}))"
# Without any, the next one is 0. Each looks at every node in every minute, these at each node once.
_MOST = f"max_over_time({_CAPACITY}[{HOUR_WINDOW}])"
_LEAST = f"min_over_time(kube_node_status_allocatable{{{GPUS}}}[{HOUR_WINDOW}])"
ANY_LOST = f"count({_MOST} unless {_MOST} <= {_LEAST})"
ANY_CLOSED = (
    f"count(max_over_time(kube_node_spec_unschedulable[{HOUR_WINDOW}]) == 1)"
    f" or count(min_over_time({_READY}[{HOUR_WINDOW}]) == 0)"
)
CAPACITY_HOURS = _per_hour(f"sum({ALLOCATABLE_BY_RESOURCE})")
LOST_HOURS = _per_hour(f"sum(clamp_min(sum by (node) ({PHYSICAL_BY_RESOURCE}) - on (node) {ALLOCATABLE}, 0))")
CLOSED_HOURS = _per_hour(f"sum({_CLOSED})")  # free, but not schedulable
ANY_NODE = "count(kube_node_status_allocatable)"
COVERAGE = f"count_over_time(({ANY_NODE})[{HOUR_WINDOW}:1m]) / 60"


# Utilization by pod and GPU


def _engine_or_util(
    over: str,
    window: str,
    function: str,
    scale: str,
    devices: Collection[str] | None,
    kinds: SeriesKinds,
) -> str:
    """Use GR_ENGINE_ACTIVE, or GPU_UTIL if that is 0 or absent; `over` is a function over the window."""
    which = f"UUID=~{any_of(devices)}," if devices is not None else ""
    engine, util = (
        _by_gpu(function, f"{over}{metric}{{{which}{but}", f"}}[{window}])", kinds.namings)
        for metric, but in ((ENGINE, ""), (UTIL, 'GPU_I_ID="",'))
    )
    known = f"({engine}) >= 0"
    return known if kinds.engine_only else f"(({engine}) > 0) or (({util}){scale} >= 0) or ({known})"


def _by_gpu(function: str, start: str, end: str, namings: Iterable[Naming]) -> str:
    """Aggregate by GPU. `label_replace` at each step of an hour takes three times as long: see `RESTORED`."""

    def series(naming: Naming) -> str:
        found = f"{start}{naming.selector}{end}"
        return original(found) if naming.restored else found

    return " or ".join(f"{function} by ({each.labels}, {DEVICE}) ({series(each)})" for each in namings)


def _stuck(window: str) -> str:
    """Return the GPUs that are busy by GPU_UTIL, while GR_ENGINE_ACTIVE reads 0."""
    return f'(max_over_time({UTIL}{{GPU_I_ID=""}}[{window}]) > 0 and max_over_time({ENGINE}[{window}]) == 0)'


# GPUs that are measured by GPU_UTIL alone. Without any, `engine_only` halves the time of a query.
UTIL_ONLY = f'count(({UTIL}{{GPU_I_ID=""}} unless {ENGINE}) or {_stuck("15m")})'
_UTIL_SAMPLES, _ENGINE_SAMPLES = (
    f"count_over_time({metric}[{HOUR_WINDOW}])" for metric in (f'{UTIL}{{GPU_I_ID=""}}', ENGINE)
)
# GPUs whose samples must be read one by one: with GR_ENGINE_ACTIVE for a part of the hour; with wrong ones.
HOUR_UTIL_PARTLY = f"{_ENGINE_SAMPLES} < {_UTIL_SAMPLES}"
HOUR_WRONG = (
    f"{_stuck(HOUR_WINDOW)} or max_over_time({ENGINE}[{HOUR_WINDOW}]) > {MOST}"
    f' or max_over_time({UTIL}{{GPU_I_ID=""}}[{HOUR_WINDOW}]) > {100 * MOST:g}'
)


def peak(window: int, devices: Collection[str] | None = None, kinds: SeriesKinds = ALL_KINDS) -> str:
    """Return the peak over `window` seconds; `devices` are UUIDs, "" stands for all GPUs without one."""
    return _engine_or_util("max_over_time(", f"{window}s", "max", " / 100", devices, kinds)


def p95(window: int, kinds: SeriesKinds = ALL_KINDS) -> str:
    return _engine_or_util(P95, f"{window}s", "max", " / 100", None, kinds)


def total(window: int, kinds: SeriesKinds = ALL_KINDS) -> str:
    """Return the sum of all samples."""
    return _engine_or_util("sum_over_time(", f"{window}s", "sum", " / 100", None, kinds)


def samples(window: int, devices: Collection[str] | None = None, kinds: SeriesKinds = ALL_KINDS) -> str:
    return _engine_or_util("count_over_time(", f"{window}s", "sum", "", devices, kinds)


def loads(window: int, kinds: SeriesKinds, *, counted: bool) -> str:
    """Return what each GPU exports of `Load` in one query: means over `window` seconds, and memory now.

    The label `measure` names the field. `counted`: also the samples of each mean, as `sm_samples`. Returns
    "" if nothing is exported.
    """

    def measure(name: str, function: str, start: str, end: str) -> str:
        return f'label_replace({_by_gpu(function, start, end, kinds.namings)}, "measure", "{name}", "", "")'

    found, over = list[str](), f"}}[{window}s])"
    for name, metric in (("sm", SM), ("watts", POWER)):
        if metric in kinds.loads:
            # Of two exporters, one can profile; the other reads 0.
            found.append(measure(name, "max", f"avg_over_time({metric}{{", over))
        if metric in kinds.loads and counted:
            found.append(measure(f"{name}_samples", "sum", f"count_over_time({metric}{{", over))
    if MEMORY in kinds.loads:
        found.append(measure("memory", "max", f"{MEMORY}{{", "}"))
    return " or ".join(found)


def _utilization(
    function: str, step: int, devices: Collection[str] | None, namings: tuple[Naming, ...] = NAMINGS
) -> str:
    """Return the last scrape's utilization, at most `step` seconds old, unless it can't be true."""
    kinds = SeriesKinds(namings=namings)
    shares = _engine_or_util(f"{function}_over_time(", scrape(step), "max", " / 100", devices, kinds)
    return f"({shares}) <= {MOST}"


def scrape(step: int) -> str:
    """Return the window of one scrape."""
    return f"{step * 1000 - 1}ms"


def true_samples(over: str, window: int, step: int, devices: Collection[str]) -> str:
    """Return a function over `window` seconds of samples that aren't NaN, nor more than a GPU can do."""
    return f"{over}({_utilization('avg', step, devices)})[{window - 1}s:{step}s])"


def used_hours(step: int, namings: tuple[Naming, ...], devices: Collection[str] | None) -> str:
    """`devices`: as of `peak`; `None` is all."""
    shares = _utilization("avg", step, devices, namings)
    return f"sum_over_time(({shares})[{HOUR_WINDOW}:{step}s]) * {step} / 3600"


def observed_hours(step: int, namings: tuple[Naming, ...], devices: Collection[str] | None) -> str:
    shares = _utilization("avg", step, devices, namings)
    return f"count_over_time(({shares})[{HOUR_WINDOW}:{step}s]) * {step} / 3600"


def idle_half(step: int, namings: tuple[Naming, ...], devices: Collection[str] | None) -> str:
    """Return the GPU-hours of GPUs that were idle for the last half-hour."""
    shares = _utilization("max", step, devices, namings)
    half, enough = f"({shares})[{HALF_HOUR_WINDOW}:{step}s]", enough_samples(step)
    return f"(count_over_time({half}) >= {enough:g} and max_over_time({half}) < {BUSY}) * {step} / 3600"


def enough_samples(step: int) -> float:
    """Return the least number of samples in half an hour for a GPU to count as idle."""
    return MIN_COVERAGE * 1800 / step


# Scrape intervals of dcgm-exporter


_HOST = "Hostname, hostname, instance"


def samples_of_host(metric: str, window: int) -> str:
    """Count the samples of each host over `window` seconds, by model and slice."""
    return f"sum by ({_HOST}, modelName, GPU_I_ID) (count_over_time({metric}[{window}s]))"


def evenly_scraped(metric: str, window: int, step: int) -> str:
    """Return the hosts whose first GPU has one sample in every `step` of `window` seconds.

    Two slices or pods of it have one each, so by step, not in sum: two in every other step aren't even.
    """
    most = f'max by ({_HOST}) (count_over_time({metric}{{gpu="0"}}[{scrape(step)}]))'
    return f"count_over_time(({most} == 1)[{window - 1}s:{step}s]) == {window / step:g}"


def samples_by_host(window: int, instances: Collection[str] | None) -> str:
    """Count the samples of each GPU over `window` seconds, by host; `None` is all instances."""
    which = "" if instances is None else f"instance=~{any_of(instances)}"
    either = " or ".join(f"count_over_time({each}{{{which}}}[{window}s])" for each in (UTIL, ENGINE))
    return f"max by (UUID, gpu, {_HOST}) ({either})"


def raw_samples(metric: str, window: int, devices: Iterable[str]) -> str:
    """Return the samples of these UUIDs, one of which can be empty."""
    return f"{metric}{{UUID=~{any_of(devices)}}}[{window}s]"
