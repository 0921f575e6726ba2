"""A real Prometheus that has renamed labels: `node` is that of the pod of kube-state-metrics, for example."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.models import HALF_HOUR, HOUR
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources import promql
from bot.measure.sources.hour_queries import HourQueries
from bot.measure.sources.prometheus_source import PrometheusSource
from k8s.nodes.dcgm import ENGINE
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving

START = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=1)
POD = 'exported_namespace="a",exported_pod="{}"'
REQUEST = f'kube_pod_container_resource_requests{{{{{POD},exported_container="main",resource="nvidia_com_gpu"'
PHASE = f"kube_pod_status_phase{{{{{POD},phase="
SERIES = {  # value by series, of each kube-state-metrics
    'kube_node_status_allocatable{exported_node="gpu-1",resource="nvidia_com_gpu"': 6,
    'kube_node_status_capacity{exported_node="gpu-1",resource="nvidia_com_gpu"': 8,
    REQUEST.format("runs") + ',exported_node="gpu-1"': 2,
    REQUEST.format("waits"): 4,
    PHASE.format("runs") + '"Running"': 1,
    PHASE.format("runs") + '"Pending"': 0,
    PHASE.format("waits") + '"Running"': 0,
    PHASE.format("waits") + '"Pending"': 1,
}

REQUESTS = "kube_pod_container_resource_requests"
OF_PODS = {  # of each pod: the utilization of its GPU in the first half of the hour, and in the second
    "busy": (0.4, 0.4),
    "half": (0.8, 0.0),
}
TARGET = {"namespace": "ops", "pod": "x", "instance": "x"}
SCRAPES = {  # the labels that a target has, and whether it is scraped with honorLabels
    "twice, once with honorLabels": [(TARGET, True), (TARGET | {"job": "annotated"}, False)],
    "target without pod": [({"namespace": "ops"}, False)],
    "target without namespace": [({"pod": "x"}, False)],
}

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


def history(exporters: int, minutes: int) -> str:
    """Each exporter runs on a node of its own, and stops after so many minutes."""
    names = dict.fromkeys(series.partition("{")[0] for series in SERIES)
    lines = []
    for name in names:
        lines.append(f"# TYPE {name} gauge")
        for series, value in SERIES.items():
            for number in range(exporters if series.startswith(f"{name}{{") else 0):
                its = f'namespace="ksm",pod="ksm-{number}",node="cpu-{number}",instance="{number}:8080"'
                lines += [
                    f"{series},{its}}} {value} {START.timestamp() + minute * 60:.0f}"
                    for minute in range(minutes + 1)
                ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module", params=[(1, 60), (1, 45), (2, 60)])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, float]]:
    exporters, minutes = request.param
    with serving(tmp_path_factory.mktemp("prometheus"), history(exporters, minutes)) as address:
        yield address, minutes / 60


async def test_each_gpu_and_no_waiting_pod_is_counted_however_kube_state_metrics_runs(served, wait_until):
    address, hours = served
    async with asking(address, wait_until) as client:
        end = START + HOUR
        found = {row.pod: row.value for row in await HourQueries(client).allocated(end)}
        [capacity] = await client.query(promql.CAPACITY_HOURS, end)
        [lost] = await client.query(promql.LOST_HOURS, end)
    assert found == {("a", "runs"): pytest.approx(2 * hours, abs=0.05)}
    assert capacity.value == pytest.approx(6 * hours, abs=0.15)
    assert lost.value == pytest.approx(2 * hours, abs=0.05)


def of_gpus(scrapes: list[tuple[dict[str, str], bool]]) -> str:
    lines: dict[str, list[str]] = {}
    for number, (target, honored) in enumerate(scrapes):
        for name, labels, values in _of_pods():
            renamed = {} if honored else {f"exported_{key}": labels[key] for key in target.keys() & labels}
            its = target | labels if honored else labels | renamed | target
            pairs = ",".join(f'{key}="{each}"' for key, each in its.items())
            lines.setdefault(name, []).extend(
                f"{name}{{{pairs}}} {values[at >= 1800]} {START.timestamp() + at:.0f}"
                for at in range(7 + 11 * number, 3600, 30)
            )
    text = [line for name, each in lines.items() for line in (f"# TYPE {name} gauge", *each)]
    return "\n".join([*text, "# EOF", ""])


def _of_pods() -> Iterator[tuple[str, dict[str, str], tuple[float, float]]]:
    whole, once = {"node": "n1", "resource": "nvidia_com_gpu"}, (1, 1)
    for index, (name, shares) in enumerate(OF_PODS.items()):
        pod = {"namespace": "a", "pod": name}
        gpu = {"UUID": f"GPU-{name}", "gpu": str(index), "Hostname": "n1", "modelName": "NVIDIA A40"}
        yield ENGINE, pod | gpu, shares
        yield REQUESTS, pod | whole | {"container": "main"}, once
        yield "kube_pod_status_phase", pod | {"phase": "Running"}, once
    for what in ("capacity", "allocatable"):
        yield f"kube_node_status_{what}", whole, (2, 2)


@pytest.mark.parametrize("scrapes", SCRAPES.values(), ids=SCRAPES.keys())
async def test_gpus_are_counted_once_and_belong_to_their_pods(
    scrapes: list[tuple[dict[str, str], bool]], tmp_path, redis: Redis, wait_until
) -> None:
    with serving(tmp_path, of_gpus(scrapes)) as address:
        async with asking(address, wait_until) as client:
            source = PrometheusSource(client, OwnerStore(redis, tuple), lambda: START + HOUR)
            uses, capacity = await source.hour(START)
            pods = await source.pods(HALF_HOUR)
    found = {use.pod: (use.namespace, use.allocated, use.observed, use.used, use.idle) for use in uses}
    near = partial(pytest.approx, abs=0.02)
    assert found == {
        "busy": ("a", near(1), near(1), near(0.4), 0),
        "half": ("a", near(1), near(1), near(0.4), near(0.5)),
    }
    assert capacity.allocated == near(2)
    assert {pod.pod: [gpu.peak for gpu in pod.gpus] for pod in pods} == {"busy": [0.4], "half": [0.0]}
