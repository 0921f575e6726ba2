"""A real Prometheus with exporters whose host isn't the name of their node."""

from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.models import HALF_HOUR, HOUR
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources.prometheus_source import PrometheusSource
from k8s.nodes.dcgm import ENGINE
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving

START = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=1)
HOSTS = {  # exporter's pod, the node's address, and that of the engine, which each node has
    "n1": ("dcgm-a", "10.0.0.1", "localhost"),
    "n2": ("dcgm-b", "10.0.0.2", "localhost"),
}
ADDRESSES = {"n1": "10.244.0.7", "n2": "fd00::7"}  # of exporters' pods
MODELS = {"n1": "Tesla T4", "n2": "NVIDIA A40"}
TARGET = 'namespace="monitoring",pod="ksm",node="cpu-1"'

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


def history(kind: int, prefix: str) -> str:
    """`kind`: of `HOSTS`. `prefix`: of what a scrape without honorLabels renames."""
    series: dict[str, list[str]] = {}
    target = f"{TARGET}," if prefix else ""
    for node, names in HOSTS.items():
        place, address = f'{target}{prefix}node="{node}"', ADDRESSES[node]
        for gpu in range(2):
            its = f'UUID="GPU-{node}-{gpu}",gpu="{gpu}",Hostname="{names[kind]}",modelName="{MODELS[node]}"'
            its += f',instance="{f"[{address}]" if ":" in address else address}:9400"'
            series.setdefault(ENGINE, []).append(f"{its}}} 0")
        for what in ("capacity", "allocatable"):
            size = f'{place},resource="nvidia_com_gpu"}} {8 if node == "n1" else 2}'
            series.setdefault(f"kube_node_status_{what}", []).append(size)
        info = f'{place},{prefix}namespace="gpu-operator",{prefix}pod="{names[0]}"'
        info += f',pod_ip="{address}",created_by_kind="DaemonSet"}} 1'
        series.setdefault("kube_pod_info", []).append(info)
        series.setdefault("kube_node_info", []).append(f'{place},internal_ip="{names[1]}"}} 1')
    lines = [
        line
        for name, each in series.items()
        for line in (
            f"# TYPE {name} gauge",
            *(f"{name}{{{one} {START.timestamp() + at:.0f}" for one in each for at in range(7, 3600, 30)),
        )
    ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.mark.parametrize("prefix", ["", "exported_"])
@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_node_has_the_models_of_the_host_that_is_its_exporters_pod_or_an_address(
    kind: int, prefix: str, tmp_path, redis: Redis, wait_until
) -> None:
    with serving(tmp_path, history(kind, prefix)) as address:
        async with asking(address, wait_until) as client:
            source = PrometheusSource(client, OwnerStore(redis, tuple), lambda: START + HOUR)
            nodes = (await source.snapshot(HALF_HOUR)).nodes
    assert {node.node: node.model for node in nodes} == {"n1": "Tesla T4 shared 1/4", "n2": "NVIDIA A40"}
