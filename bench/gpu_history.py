"""A Prometheus with generated metrics of a large GPU cluster, from Debian's package `prometheus`."""

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import aiohttp

from bench.child import Child
from tests.free_port import free_port

PER_NODE = 8  # GPUs
PER_POD = 2
GPU_SCRAPE, SCRAPE = 30, 60  # seconds between two scrapes of dcgm-exporter, and of everything else
LIFE = 6  # hours of a pod, on average
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA A10")
GPU = 'resource="nvidia_com_gpu",unit="integer"'
GIB = 2**30


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    node: int
    gpus: range  # indexes on the node
    start: float  # Unix seconds
    end: float
    idle: bool
    sweep: int


def pods(gpus: int, start: float, end: float) -> Iterator[Pod]:
    """Yield pods that follow one another on the same GPUs without a gap."""
    dice = random.Random(gpus)  # noqa: S311 - generates metrics
    for slot in range(gpus // PER_POD):
        node, first = divmod(slot * PER_POD, PER_NODE)
        changes = [start]
        while changes[-1] < end:
            changes.append(changes[-1] + dice.expovariate(1 / (LIFE * 3600)))
        for number, (begin, until) in enumerate(pairwise(changes)):
            sweep = dice.randrange(gpus // 25 + 1)
            name = f"lr-brave-otter-{sweep}-{slot}-{number}"
            devices = range(first, first + PER_POD)
            yield Pod(
                name, f"team-{sweep % 20}", node, devices, begin, min(until, end), dice.random() < 0.15, sweep
            )


def write_history(path: Path, gpus: int, start: float, end: float) -> int:
    """Write OpenMetrics text as `promtool` reads it; return the number of pods."""
    known = list(pods(gpus, start, end))
    with path.open("w") as file:
        for metric, scale in (("DCGM_FI_DEV_GPU_UTIL", 100), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1)):
            file.write(f"# TYPE {metric} gauge\n")
            for pod in known:
                file.writelines(_utilization(metric, scale, pod))
        for metric, series in _states(known, gpus, start, end).items():
            file.write(f"# TYPE {metric} unknown\n")
            for labels, begin, until, value in series:
                for at in _ticks(begin, until, SCRAPE):
                    file.write(f"{metric}{{{labels}}} {value(at)} {at}\n")
        file.write("# EOF\n")
    return len(known)


def _utilization(metric: str, scale: int, pod: Pod) -> Iterator[str]:
    dice = random.Random(pod.name)  # noqa: S311 - generates metrics
    for gpu in pod.gpus:
        labels = (
            f'UUID="GPU-{pod.node:05}-{gpu}",gpu="{gpu}",Hostname="node-{pod.node}",'
            f'modelName="{MODELS[pod.node % 4]}",'
            f'namespace="{pod.namespace}",pod="{pod.name}",container="main"'
        )
        for at in _ticks(pod.start, pod.end, GPU_SCRAPE):
            share = 0 if pod.idle else dice.choice((0.4, 0.9, 0.95, 1))
            yield f"{metric}{{{labels}}} {scale * share:g} {at}\n"


Series = tuple[str, float, float, Callable[[int], float]]


def _states(known: list[Pod], gpus: int, start: float, end: float) -> dict[str, list[Series]]:
    """Return the series of kube-state-metrics and cAdvisor by metric."""
    nodes = [f'node="node-{number}"' for number in range(gpus // PER_NODE)]
    where = [(f'namespace="{pod.namespace}",pod="{pod.name}"', pod) for pod in known]
    main = [(f'{labels},container="main"', pod) for labels, pod in where]

    def of_nodes(labels: str, value: float) -> list[Series]:
        return [(f"{node}{labels}", start, end, lambda _: value) for node in nodes]

    def of_pods(each: list[tuple[str, Pod]], more: str, value: Callable[[Pod, int], float]) -> list[Series]:
        return [
            (f"{labels}{more}", pod.start, pod.end, lambda at, pod=pod: value(pod, at))  # type: ignore[misc]
            for labels, pod in each
        ]

    on_node = [(f'{labels},node="node-{pod.node}"', pod) for labels, pod in main]
    owner = [
        (
            f'{labels},label_sweepbot_sweep="lr-brave-otter-{pod.sweep}",label_sweepbot_owner="U{pod.sweep}"',
            pod,
        )
        for labels, pod in where
    ]
    return {
        "kube_node_status_capacity": of_nodes(f",{GPU}", PER_NODE),
        "kube_node_status_allocatable": of_nodes(f",{GPU}", PER_NODE),
        "kube_node_spec_unschedulable": of_nodes("", 0),
        "kube_node_status_condition": of_nodes(',condition="Ready",status="true"', 1),
        "kube_pod_container_resource_requests": [
            *of_pods(on_node, f",{GPU}", lambda *_: PER_POD),
            *of_pods(on_node, ',resource="cpu",unit="core"', lambda *_: 16),
            *of_pods(on_node, ',resource="memory",unit="byte"', lambda *_: 64 * GIB),
        ],
        "kube_pod_status_phase": [
            *of_pods(where, ',phase="Running"', lambda *_: 1),
            *of_pods(where, ',phase="Pending"', lambda *_: 0),
        ],
        "kube_pod_created": of_pods(where, "", lambda pod, _: pod.start),
        "kube_pod_container_state_started": of_pods(main, "", lambda pod, _: pod.start),
        "kube_pod_start_time": of_pods(where, "", lambda pod, _: pod.start),
        "kube_pod_container_status_restarts_total": of_pods(main, "", lambda *_: 0),
        "kube_pod_labels": of_pods(owner, "", lambda *_: 1),
        "container_cpu_usage_seconds_total": of_pods(main, "", lambda pod, at: 8 * (at - pod.start)),
        "container_memory_working_set_bytes": of_pods(main, "", lambda *_: 40 * GIB),
    }


def _ticks(start: float, end: float, step: int) -> range:
    """Return the times of scrapes within a pod's life, in Unix seconds."""
    return range(-int(-start // step) * step, int(-(-end // step)) * step, step)


class Server:
    """A running Prometheus."""

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url, self._process = url, Child(process)

    @property
    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        return self._process.cpu


@asynccontextmanager
async def prometheus(folder: Path, gpus: int, start: float, end: float) -> AsyncIterator[Server]:
    """Serve a generated history. Needs `promtool` and `prometheus`; 10,000 GPUs take minutes to prepare."""
    await asyncio.to_thread(folder.mkdir)
    await asyncio.to_thread(write_history, folder / "history.txt", gpus, start, end)
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "history.txt", "data"]
    await asyncio.to_thread(subprocess.run, blocks, cwd=folder, check=True, capture_output=True)
    (folder / "history.txt").unlink()
    (folder / "none.yml").write_text("{}")
    address = f"127.0.0.1:{free_port()}"
    options = ["--config.file=none.yml", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=10y"]
    with (folder / "log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            "prometheus", *options, f"--web.listen-address={address}", cwd=folder, stdout=log, stderr=log
        )
    try:
        await _ready(f"http://{address}/-/ready")
        yield Server(f"http://{address}", server)
    finally:
        server.terminate()
        await server.wait()


async def _ready(url: str) -> None:
    async with asyncio.timeout(120), aiohttp.ClientSession() as web:
        while True:
            try:
                async with web.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
