"""Eight generated hours in which every node has another scrape interval, and their exact figures.

Everything changes at whole ticks, so the exact figures are sums over ticks; samples can be at any time.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bot.measure.gpus.models import BUSY, MIN_COVERAGE

TICK, HOURS = 5, 8  # seconds, hours
TICKS = HOURS * 3600 // TICK
KSM_STEP = 30
Span = tuple[int, int]  # seconds of the day, end exclusive


@dataclass(frozen=True, kw_only=True)
class Node:
    """`steps`: from that second on a scrape each so many seconds. `jitter`: seconds that scrapes are off."""

    name: str
    model: str
    steps: tuple[tuple[int, int], ...]
    away: tuple[Span, ...] = ()
    nan: tuple[Span, ...] = ()
    cpu_away: tuple[Span, ...] = ()
    cpu_step: int = 30
    host_label: str = "Hostname"
    uuids: bool = True
    engine: bool = True
    jitter: float = 0.0

    def step(self, second: float) -> int:
        return [step for since, step in self.steps if since <= second][-1]

    @property
    def slowest(self) -> int:
        return max(step for _, step in self.steps)

    def answers(self, second: float) -> bool:
        return not any(begin <= second < end for begin, end in self.away)

    def reports(self, second: float) -> bool:
        return self.answers(second) and not any(begin <= second < end for begin, end in self.nan)


NODES = (
    Node(name="quick", model="NVIDIA H100 80GB HBM3", steps=((0, 15),), jitter=2.0),
    Node(
        name="slow", model="NVIDIA L40S", steps=((0, 60),), away=((2 * 3600, 3 * 3600 + 1800),), cpu_step=60
    ),
    Node(
        name="sped-up", model="NVIDIA A10", steps=((0, 60), (4 * 3600 + 1765, 15)), engine=False, cpu_step=15
    ),
    Node(name="slowed", model="NVIDIA A30", steps=((0, 15), (4 * 3600 + 1200, 60)), host_label="hostname"),
    Node(name="no.number", model="NVIDIA A40", steps=((0, 30),), nan=((5 * 3600 + 600, 5 * 3600 + 1500),)),
    Node(
        name="nameless",
        model="NVIDIA L4",
        steps=((0, 30),),
        uuids=False,
        away=((3700, 5100), (20000, 20300)),
        cpu_away=((6 * 3600, 6 * 3600 + 1800),),
    ),
    Node(
        name="sprinkled",
        model="NVIDIA A100-SXM4-80GB",
        steps=((0, 15),),
        nan=tuple((at, at + 15) for at in range(100, HOURS * 3600, 300)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Of each GPU its share from that second on."""

    name: str
    node: Node
    begin: int
    end: int
    gpus: dict[int, list[tuple[int, float]]]
    cores: float
    owner: str = field(default="U1A1")

    def share(self, gpu: int, second: float) -> float:
        return [share for since, share in self.gpus[gpu] if since <= second][-1]


@dataclass(kw_only=True)
class ExactFigures:
    """GPU-hours; `idle` from and to, where a sample more or less decides over a half hour."""

    allocated: float = 0.0
    observed: float = 0.0
    used: float = 0.0
    idle: list[float] = field(default_factory=lambda: [0.0, 0.0])
    edges: int = 0  # times at which one sample more or less is acceptable


def pods(seed: int) -> list[Pod]:
    dice, found = random.Random(seed), list[Pod]()  # noqa: S311
    for node in NODES:
        for gpus in ((0, 1), (2,), (3,)):
            at = _whole(dice.uniform(0, 900))
            while at < HOURS * 3600 - 600:
                end = min(
                    HOURS * 3600, at + _whole(dice.choice((360, 1500, 5400, 9000)) * dice.uniform(0.8, 1.2))
                )
                shares = {gpu: list(_shares(dice, at, end)) for gpu in gpus}
                name = f"{node.name.replace('.', '-')}-{gpus[0]}-{at}"
                cores = dice.choice((0.5, 1.0, 3.0))
                found.append(Pod(name=name, node=node, begin=at, end=end, gpus=shares, cores=cores))
                at = end + _whole(dice.choice((60, 60, 1200)))
    return found


def _shares(dice: random.Random, begin: int, end: int) -> Iterator[tuple[int, float]]:
    while begin < end:
        yield begin, dice.choice((0.0, 0.0, 0.25, 0.6, 1.0))
        begin += _whole(dice.uniform(1200, 3600))


def _whole(seconds: float) -> int:
    return round(seconds / TICK) * TICK


def exact(pod: Pod) -> ExactFigures:
    figures, halves = ExactFigures(), defaultdict[tuple[int, int], list[float]](list)
    for second in range(pod.begin, pod.end, TICK):
        for gpu in pod.gpus:
            figures.allocated += TICK / 3600
            if pod.node.reports(second):
                figures.observed += TICK / 3600
                figures.used += TICK / 3600 * pod.share(gpu, second)
                halves[gpu, second // 1800].append(pod.share(gpu, second))
    for shares in halves.values():
        seen, busy, slack = len(shares) * TICK, sum(s >= BUSY for s in shares) * TICK, 2 * pod.node.slowest
        for strict in (0, 1):
            least, most = (
                (MIN_COVERAGE * 1800 + slack, 0) if strict == 0 else (MIN_COVERAGE * 1800 - slack, slack)
            )
            figures.idle[strict] += seen / 3600 if seen >= least and busy <= most else 0.0
    outages = [*pod.node.away, *pod.node.nan]
    inside = [edge for span in outages for edge in span if pod.begin <= edge <= pod.end]
    figures.edges = sum(2 + len(inside) + len(changes) for changes in pod.gpus.values())
    return figures


def openmetrics(seed: int, start: datetime, *, honoured: bool) -> str:
    """What a Prometheus has scraped. Of a pod's labels kube-state-metrics exports only the trial."""
    all_, families = pods(seed), defaultdict[str, list[str]](list)
    lines = (*_exporters(seed, all_), *_states(all_, start), *_kubelets(all_))
    for name, target, labels, at, value in lines:
        series = target | labels if honoured else _exported(target, labels) | target
        text = ",".join(f'{key}="{each}"' for key, each in series.items() if each != "")
        families[name].append(f"{name}{{{text}}} {value!r} {start.timestamp() + at:.3f}")
    text = [line for name, lines in families.items() for line in (f"# TYPE {name} unknown", *lines)]
    return "\n".join([*text, "# EOF", ""])


Line = tuple[str, dict[str, object], dict[str, object], float, float]


def _exported(target: dict[str, object], labels: dict[str, object]) -> dict[str, object]:
    return {f"exported_{key}" if key in target else key: each for key, each in labels.items()}


def _exporters(seed: int, all_: list[Pod]) -> Iterator[Line]:
    dice = random.Random(seed)  # noqa: S311
    for node in NODES:
        target: dict[str, object] = {"namespace": "gpu-operator", "pod": f"dcgm-{node.name}"}
        target["instance"] = f"{node.name}:9400"
        mine, at = [pod for pod in all_ if pod.node == node], dice.uniform(0, node.steps[0][1])
        while at < HOURS * 3600:
            when = at + dice.uniform(-node.jitter, node.jitter)
            if node.answers(when):
                for pod in (each for each in mine if each.begin <= when < each.end):
                    yield from _gpus(node, pod, target, when)
            at += node.step(at)


def _gpus(node: Node, pod: Pod, target: dict[str, object], when: float) -> Iterator[Line]:
    for gpu in pod.gpus:
        labels: dict[str, object] = {"gpu": gpu, node.host_label: node.name, "modelName": node.model}
        labels |= {"namespace": "sweeps", "pod": pod.name, "container": "main"}
        labels |= {"UUID": f"GPU-{node.name}-{gpu}"} if node.uuids else {}
        share = pod.share(gpu, when) if node.reports(when) else float("nan")
        if node.engine:
            yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", target, labels, when, share
        yield "DCGM_FI_DEV_GPU_UTIL", target, labels, when, 100 * share


def _states(all_: list[Pod], start: datetime) -> Iterator[Line]:
    target: dict[str, object] = {"namespace": "monitoring", "pod": "ksm", "instance": "ksm"}
    gpu: dict[str, object] = {"resource": "nvidia_com_gpu"}
    for at in range(7, HOURS * 3600, KSM_STEP):
        for node in NODES:
            for what in ("capacity", "allocatable"):
                yield f"kube_node_status_{what}", target, gpu | {"node": node.name}, at, 4
        for pod in all_:
            if pod.begin <= at < pod.end:
                one: dict[str, object] = {"namespace": "sweeps", "pod": pod.name}
                main = one | {"container": "main", "node": pod.node.name}
                asked = "kube_pod_container_resource_requests"
                yield asked, target, main | gpu, at, len(pod.gpus)
                yield asked, target, main | {"resource": "cpu"}, at, 4
                yield "kube_pod_status_phase", target, one | {"phase": "Running"}, at, 1
                since = start.timestamp() + pod.begin
                yield "kube_pod_container_state_started", target, one | {"container": "main"}, at, since
                yield "kube_pod_labels", target, one | {"label_katib_kubeflow_org_trial": pod.name}, at, 1


def _kubelets(all_: list[Pod]) -> Iterator[Line]:
    for pod in all_:
        for at in range(pod.begin // pod.node.cpu_step * pod.node.cpu_step, pod.end, pod.node.cpu_step):
            if at >= pod.begin and not any(begin <= at < end for begin, end in pod.node.cpu_away):
                labels: dict[str, object] = {"namespace": "sweeps", "pod": pod.name, "container": "main"}
                target: dict[str, object] = {"instance": pod.node.name}
                used = pod.cores * (at - pod.begin)
                yield "container_cpu_usage_seconds_total", target, labels, at, used
