"""A real Prometheus that has renamed the labels of kube-state-metrics: `node` is that of its own pod."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from bot.measure.gpus.models import HOUR
from bot.measure.sources import promql
from bot.measure.sources.hour_queries import HourQueries
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
