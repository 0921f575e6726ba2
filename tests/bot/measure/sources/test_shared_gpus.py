"""Time-sliced GPUs and MIG slices of several profiles, with Prometheus and without."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.command import answer
from bot.measure.gpus.models import HALF_HOUR, HOUR, Source
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.gpus.sums import grouped
from bot.measure.sources.dcgm_source import Sampler, SampleStore, ScrapeSource
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.platform.config.teams import Price
from bot.watch.digests.message import DigestContext, message
from k8s.nodes.dcgm import ENGINE, MEMORY
from k8s.objects import timestamp
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving
from tests.bot.watch.digests.days import of

START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
END = START + HOUR
T4, H100 = "Tesla T4", "NVIDIA H100 80GB HBM3"
SMALL, LARGE = "mig-1g.10gb", "mig-3g.40gb"
NODES = {  # GPUs by resource, and devices by index, UUID, slice, profile, share, and pod
    "shared": ({"gpu": 3}, [(0, "T", "", "", 0.6, "a")]),
    "quiet": ({"gpu": 2}, [(0, "Q", "", "", 0.0, "d")]),
    "alone": ({"gpu": 4}, [(0, "X", "", "", 0.5, "f"), (1, "Y", "", "", 0.0, "")]),
    "mig": (
        {"gpu": 5, SMALL: 7, LARGE: 2},
        [
            *((0, "M", str(n), "1g.10gb", 0.9 if n == 3 else 0.0, "g" if n == 3 else "") for n in range(7)),
            *((1, "N", str(n), "3g.40gb", 0.4 if n else 0.0, "h" if n else "") for n in range(2)),
            *((n, f"W{n}", "", "", 0.0, "") for n in range(2, 7)),
        ],
    ),
}
PODS = {  # node, and resource
    **dict.fromkeys("abc", ("shared", "gpu")),
    **dict.fromkeys("de", ("quiet", "gpu")),
    "f": ("alone", "gpu"),
    "g": ("mig", SMALL),
    "h": ("mig", LARGE),
}


def readings(labelled: str) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yield node, labels, and share.

    Args:
        labelled: "one" pod of a shared GPU, or "each", as with KUBERNETES_VIRTUAL_GPUS.
    """
    for node, (_, devices) in NODES.items():
        for index, uuid, slice_, profile, share, pod in devices:
            labels = {"gpu": index, "UUID": uuid, "Hostname": node}
            labels |= {"modelName": H100 if node == "mig" else T4}
            labels |= {"GPU_I_ID": slice_, "GPU_I_PROFILE": profile} if slice_ else {}
            of_node = [name for name in PODS if PODS[name][0] == node]
            names = of_node if labelled == "each" and len(of_node) > 1 and node != "mig" else [pod]
            for name in names:
                yield node, labels | ({"namespace": "n", "pod": name} if name else {}), share


def pairs(labels: dict[str, Any]) -> str:
    return ",".join(f'{key}="{each}"' for key, each in labels.items())


def of_states(node: str, resource: str) -> dict[str, Any]:
    return {"node": node, "resource": "nvidia_com_" + resource.replace("-", "_").replace(".", "_")}


def history(labelled: str) -> str:
    lines: dict[str, list[str]] = {}
    for tick in range(7, 3600, 30):
        samples = [(ENGINE, labels, share) for _, labels, share in readings(labelled)]
        samples += [(MEMORY, labels, 1024) for _, labels, _ in readings(labelled)]
        for node, (sizes, _) in NODES.items():
            for resource, size in sizes.items():
                kind = of_states(node, resource)
                samples += [(f"kube_node_status_{each}", kind, size) for each in ("capacity", "allocatable")]
        for pod, (node, resource) in PODS.items():
            one = {"namespace": "n", "pod": pod}
            kind = of_states(node, resource)
            samples += [
                ("kube_pod_container_resource_requests", one | {"container": "main"} | kind, 1),
                ("kube_pod_status_phase", one | {"phase": "Running"}, 1),
                ("kube_pod_container_state_started", one | {"container": "main"}, START.timestamp() - 3600),
            ]
        for name, labels, value in samples:
            at = START.timestamp() + tick
            lines.setdefault(name, []).append(f"{name}{{{pairs(labels)}}} {value!r} {at:.3f}")
    text = [line for name, each in lines.items() for line in (f"# TYPE {name} unknown", *each)]
    return "\n".join([*text, "# EOF", ""])


class Scraped:
    """The API server's answers, in which nothing changes."""

    def __init__(self, labelled: str) -> None:
        self.labelled = labelled

    async def list(self, kind: str, _: str, **__: Any) -> list[dict[str, Any]]:
        if kind == "Node":
            ready = [{"type": "Ready", "status": "True"}]
            found = []
            for name, (sizes, _) in NODES.items():
                given = {f"nvidia.com/{resource}": str(size) for resource, size in sizes.items()}
                status = {"capacity": given, "allocatable": given, "conditions": ready}
                found.append({"metadata": {"name": name}, "status": status})
            return found
        if kind in {"PodMetrics", "ResourceSlice"}:
            return []
        exporters = [self._pod("gpu-operator", f"dcgm-{node}", node, "") for node in NODES]
        return [*exporters, *(self._pod("n", pod, *place) for pod, place in PODS.items())]

    def _pod(self, namespace: str, name: str, node: str, resource: str) -> dict[str, Any]:
        running = {"running": {"startedAt": timestamp(START - HOUR)}}
        sizes = {"limits": {f"nvidia.com/{resource}": "1"}} if resource else {}
        return {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": {} if resource else {"app": "nvidia-dcgm-exporter"},
            },
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": sizes}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": running}]},
        }

    async def proxy(self, _: str, pod: str, *__: Any) -> str:
        return "\n".join(
            f"{ENGINE}{{{pairs(labels)}}} {share}\n{MEMORY}{{{pairs(labels)}}} 1024"
            for node, labels, share in readings(self.labelled)
            if pod == f"dcgm-{node}"
        )


@pytest.fixture(params=["one", "each"])
def labelled(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["exporters", pytest.param("Prometheus", marks=[pytest.mark.slow, NEEDS_PROMETHEUS])])
async def source(
    request: pytest.FixtureRequest, labelled: str, redis: Redis, tmp_path: Path, wait_until: Any
) -> AsyncIterator[Source]:
    owners = OwnerStore(redis, tuple)
    if request.param == "exporters":
        kept, sampler = SampleStore(redis), Sampler(Scraped(labelled), lambda: ["n"], owners)  # type: ignore[arg-type]
        sample = await sampler.sample(START, 60)
        for minute in range(1, 61):
            await kept.save(replace(sample, at=START + timedelta(minutes=minute)))
        yield ScrapeSource(kept, lambda: END)
    else:
        with serving(tmp_path, history(labelled)) as address:
            async with asking(address, wait_until) as client:
                yield PrometheusSource(client, owners, lambda: END)


async def test_free_gpus_are_counted_by_profile_and_share(source: Source) -> None:
    found = await source.snapshot(HALF_HOUR)
    assert {(node.node, node.model): (node.free, node.allocatable) for node in found.nodes} == {
        ("shared", f"{T4} shared 1/3"): (0, 3),
        ("quiet", f"{T4} shared 1/2"): (0, 2),
        ("alone", f"{T4} shared 1/2"): (3, 4),
        ("mig", H100): (5, 5),
        ("mig", f"{H100} MIG 1g.10gb"): (6, 7),
        ("mig", f"{H100} MIG 3g.40gb"): (1, 2),
    }
    text = answer("free", found, "U1")
    assert f"• {H100}: 5 of 5 free, largest block 5 on `mig`" in text
    assert f"• {H100} MIG 1g.10gb: 6 of 7 free, largest block 6 on `mig`" in text
    blocks = str(message(of(), DigestContext(nodes=found.nodes)).blocks)
    assert f"Largest free block now: 5 GPUs on `mig` ({H100})." in blocks


async def test_use_of_a_shared_gpu_is_unknown_unless_it_is_idle_or_not_shared_now(
    source: Source, labelled: str
) -> None:
    found = await source.pods(HALF_HOUR)
    peaks = {pod.pod: [gpu.peak for gpu in pod.gpus] for pod in found}
    every = labelled == "each"
    assert peaks == {
        "a": [None],
        **dict.fromkeys("bc", [None] if every else []),
        "d": [0],
        "e": [0] if every else [],
        "f": [0.5],
        "g": [0.9],
        "h": [0.4],
    }
    ever = {pod.pod: pod.busy_ever for pod in found if pod.pod in "afg"}
    assert ever == {"a": None, "f": True, "g": True}
    memory = {pod.pod: [gpu.load.memory for gpu in pod.gpus] for pod in found if pod.pod in "dfg"}
    assert memory == {"d": [None], "f": [1], "g": [1]}  # d's neighbor on the GPU can be the one that uses it


async def test_hour_of_a_shared_gpu_has_its_share_of_the_price(source: Source, labelled: str) -> None:
    uses, capacity = await source.hour(START)
    figures = {use.pod: (use.allocated, use.observed, use.used) for use in uses}
    known = {pod: tuple(round(each, 1) for each in mine) for pod, mine in figures.items()}
    idle = (1, 1, 0) if labelled == "each" else (1, 0, 0)
    assert known == {
        **dict.fromkeys("abc", (1, 0, 0)),
        "d": (1, 1, 0),
        "e": idle,
        "f": (1, 1, 0.5),
        "g": (1, 1, 0.9),
        "h": (1, 1, 0.4),
    }
    assert (capacity.capacity, capacity.allocated) == (pytest.approx(23), pytest.approx(8))
    prices = Price(model="Tesla T4", hourly=0.6), Price(model="NVIDIA H100", hourly=7)
    costs = {pod: sums.cost for pod, sums in grouped(uses, prices, lambda use: use.pod).items()}
    third, half = pytest.approx(0.2, rel=0.01), pytest.approx(0.3, rel=0.01)
    assert costs == {
        **dict.fromkeys("abc", third),
        **dict.fromkeys("def", half),
        "g": pytest.approx(1, rel=0.01),
        "h": pytest.approx(3, rel=0.01),
    }
