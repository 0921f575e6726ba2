"""A real Prometheus with what DCGM exports wrongly: millions of percent, and GR_ENGINE_ACTIVE stuck at 0."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.models import HALF_HOUR, HOUR
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.measure.sources.promql import UNNAMED_HOLDERS
from k8s.nodes.dcgm import ENGINE, POWER, SM, UTIL, Load
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving

START = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=1)
PODS = {"idle": 0.0, "busy": 0.5}  # by utilization
BLANK = 140737488355328.0  # DCGM's value for none
GARBAGE = range(2707, 2767, 30)  # seconds, of two scrapes

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


def samples(fault: str, second: int) -> Iterator[tuple[str, str, float]]:
    for name, share in PODS.items():
        engine, util = share, 100 * share
        if second in GARBAGE:
            engine = {"blank": BLANK, "negative": -BLANK}.get(fault, engine)
            util = 218322032 if fault == "util" else util
        pod, gpu = (
            f'namespace="a",pod="{name}"',
            f'UUID="GPU-{name}",gpu="0",Hostname="n1",modelName="NVIDIA A40"',
        )
        if fault != "util":
            yield ENGINE, f"{gpu},{pod}", 0.0 if fault == "stuck" else engine
        yield UTIL, f"{gpu},{pod}", util
        yield SM, f"{gpu},{pod}", BLANK if second in GARBAGE else share
        yield POWER, f"{gpu},{pod}", 100
        request = f'{pod},container="main",node="n1",resource="nvidia_com_gpu"'
        yield "kube_pod_container_resource_requests", request, 1
        yield "kube_pod_status_phase", f'{pod},phase="Running"', 1
        yield "kube_pod_container_state_started", f'{pod},container="main"', START.timestamp()
    for what in ("capacity", "allocatable"):
        yield f"kube_node_status_{what}", 'node="n1",resource="nvidia_com_gpu"', 2


def history(fault: str) -> str:
    lines: dict[str, list[str]] = {}
    for second in range(7, 3600, 30):
        for name, labels, value in samples(fault, second):
            at = START.timestamp() + second
            lines.setdefault(name, []).append(f"{name}{{{labels}}} {value!r} {at:.0f}")
    text = [line for name, each in lines.items() for line in (f"# TYPE {name} gauge", *each)]
    return "\n".join([*text, "# EOF", ""])


@pytest.mark.parametrize(("fault", "lost"), [("util", 2), ("blank", 2), ("negative", 0), ("stuck", 0)])
async def test_no_wrong_sample_makes_an_idle_gpu_busy_or_a_busy_one_idle(
    fault: str, lost: int, tmp_path, redis: Redis, wait_until
) -> None:
    with serving(tmp_path, history(fault)) as address:
        async with asking(address, wait_until) as client:
            source = PrometheusSource(client, OwnerStore(redis, tuple), lambda: START + HOUR)
            pods = {pod.pod: pod.gpus for pod in await source.pods(HALF_HOUR)}
            uses = {use.pod: (use.observed, use.used, use.idle) for use in (await source.hour(START))[0]}
    for name, share in PODS.items():
        assert [(gpu.peak, gpu.mean, gpu.p95) for gpu in pods[name]] == [(share, pytest.approx(share), share)]
        assert [gpu.load for gpu in pods[name]] == [Load(watts=100)]
    seen = pytest.approx(1 - lost / 120)
    assert uses["idle"] == (seen, 0, seen)
    assert uses["busy"] == (seen, pytest.approx(0.5 * (1 - lost / 120)), 0)


@pytest.mark.parametrize("named", [True, False])
async def test_doctor_can_tell_that_no_series_names_a_pod_with_gpus(
    named: bool, tmp_path, wait_until
) -> None:
    text = history("stuck")
    if not named:  # as scraped from an exporter that doesn't know Kubernetes
        its = re.compile(r'^(DCGM_.*)namespace="a",pod="\w+"', re.MULTILINE)
        text = its.sub(r'\1namespace="gpu-operator",pod="dcgm-exporter-x7"', text)
    with serving(tmp_path, text) as address:
        async with asking(address, wait_until) as client:
            found = await client.query(UNNAMED_HOLDERS, START + HOUR)
    assert [row.value for row in found] == ([] if named else [2])
