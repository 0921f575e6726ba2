"""PromQL queries for an hour of a large cluster that sum up each series by itself.

Those of `promql` combine the series of each GPU or pod at each step, so that two exporters, or two
kube-state-metrics, count once. To group 10,000 GPUs at 120 steps takes Prometheus 15 times as long as to read
them. Where a GPU or pod has one series, both are the same; `hour_queries` queries the others as in `promql`.
"""

from collections.abc import Collection, Iterable

from bot.measure.gpus.models import BUSY
from bot.measure.sources import promql
from bot.measure.sources.prometheus import Row
from bot.measure.sources.promql import GPUS, HALF_HOUR_WINDOW, HOUR_WINDOW, RENAMED, SAME_POD
from k8s.nodes.dcgm import ENGINE, UTIL


def these(rows: Iterable[Row]) -> str:
    """Return a selector of these rows' pods, to put behind others."""
    names = {name: {row.labels.get(name, "") for row in rows} for name in ("exported_pod", "pod")}
    name = "exported_pod" if any(names["exported_pod"]) else "pod"
    return f",{name}=~{promql.any_of(names[name])}"


# Utilization: GR_ENGINE_ACTIVE, or GPU_UTIL of GPUs without it. `step`: seconds between two scrapes.


def _by_series(
    over: str, inner: str, step: int, *, engine_only: bool, scale: str = "", which: str = ""
) -> str:
    engine, util = (
        f"{over}_over_time({inner}_over_time({series}}}[{promql.scrape(step)}])[{HALF_HOUR_WINDOW}:{step}s])"
        for series in (f"{ENGINE}{{{which}", f'{UTIL}{{GPU_I_ID="",{which}')
    )
    return engine if engine_only else f"{engine} or {util}{scale}"


def most_samples(step: int) -> int:
    """Return how many samples of half an hour count."""
    return -(-1800 // step)


def few_in_half(step: int, *, engine_only: bool) -> str:
    """Return the samples of series with fewer than `most_samples`."""
    number = _by_series("count", "avg", step, engine_only=engine_only)
    return f"({number}) < {most_samples(step)}"


def sum_of_half(step: int, *, engine_only: bool) -> str:
    """Return the sum of shares; of a series with a NaN sample, it is NaN."""
    return _by_series("sum", "avg", step, engine_only=engine_only, scale=" / 100")


def idle_in_half(step: int, devices: Collection[str] | None, *, engine_only: bool) -> str:
    """Return the GPUs without a sample above BUSY. `devices`: as of `promql.peak`."""
    which = "" if devices is None else f"UUID=~{promql.any_of(devices)}"
    peak = _by_series("max", "max", step, engine_only=engine_only, scale=" / 100", which=which)
    return f"({peak}) < {BUSY}"


# Allocations


def _of_requests(function: str, window: str) -> str:
    """Apply a function to the requests of scheduled pods for GPUs."""
    renamed, own = (
        f"{function}_over_time(kube_pod_container_resource_requests{{{GPUS},{node}}}[{window}])"
        for node in ('exported_node!=""', 'node!="",exported_node=""')
    )
    # Of the whole hour: kube-state-metrics can be silent at its end.
    return f"({renamed} or ({own} unless on () last_over_time({RENAMED}[{HOUR_WINDOW}])))"


_MINUTES = f"{HOUR_WINDOW}:1m"
# A pod that is neither pending nor running has terminated. It keeps its node, so these minutes are a part of
# those with its request.
_TERMINATED = (
    f'(sum by ({SAME_POD}) (count_over_time(kube_pod_status_phase{{phase="Running"}}[{_MINUTES}]))'
    f" - sum by ({SAME_POD})"
    f' (sum_over_time(kube_pod_status_phase{{phase=~"Pending|Running"}}[{_MINUTES}])))'
)
_REQUESTED, _SIZE = _of_requests("sum", _MINUTES), _of_requests("max", _MINUTES)
_ALLOCATED = f"({_REQUESTED} - {_SIZE} * on ({SAME_POD}) group_left () {_TERMINATED}) / 60"
ALLOCATED_HOURS = f"{promql.by_place(_ALLOCATED)} > 0"
# Pods with several series of one request: kube-state-metrics or the pod has restarted.
_COUNTED = promql.original(_of_requests("count", HOUR_WINDOW), "namespace", "pod", "container")
_REQUEST = "namespace, pod, container, resource"
SEVERAL_REQUESTS = (
    f"count by ({_REQUEST}, exported_namespace, exported_pod) ({_COUNTED})"
    f" and on ({_REQUEST}) (count by ({_REQUEST}) ({_COUNTED}) > 1)"
)


def cpu_mean(namespaces: Collection[str]) -> str:
    """Return the mean cores of each container; a pod can have several."""
    return promql.of_containers(
        lambda which: f"avg_over_time({promql.cpu_rate(which)}[{_MINUTES}])", namespaces
    )
