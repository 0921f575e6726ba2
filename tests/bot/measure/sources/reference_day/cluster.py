"""A busy day on twenty-two GPUs, with everything that can make figures wrong, and its true figures.

Times are hours since the day's start; shares are what a GPU does, 0 to 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

SCRAPE = 30  # seconds
PHASE = 7  # seconds after the minute at which the first scrape of a day comes


@dataclass(frozen=True, kw_only=True)
class Pod:
    pod: str  # namespace/name
    node: str
    gpus: tuple[str, ...]  # their ids
    begin: float
    end: float = 24.0
    share: Callable[[float, int], float] = lambda *_: 0.0  # of the GPU of that number
    waits: bool = False  # Pending: for a node, or for its image
    stays: float = 0.0  # hours for which the API still has it when it has ended
    restarts: tuple[float, ...] = ()
    sweep: str = ""

    def phase(self, hour: float) -> str:
        if not self.begin <= hour < self.end + self.stays:
            return ""
        return "Succeeded" if hour >= self.end else "Pending" if self.waits else "Running"

    def restarted(self, hour: float) -> int:
        return sum(again <= hour for again in self.restarts)

    def started(self, hour: float) -> float:
        return (self.begin, *self.restarts)[self.restarted(hour)]


SM_SINCE = 22


def steadily(*shares: float) -> Callable[[float, int], float]:
    return lambda _, number: shares[number]


def in_bursts(hour: float, _: int) -> float:
    """Five minutes of every thirty."""
    return 0.9 if hour * 60 % 30 < 5 else 0.0


def with_pauses(hour: float, _: int) -> float:
    """Nothing for ten minutes after each restart."""
    return 0.0 if any(again <= hour < again + 1 / 6 for again in (5, 13.5, 20)) else 0.5


PODS = (
    Pod(pod="a/first", node="n1", gpus=("G16",), begin=0, end=12, share=steadily(0.7)),
    Pod(pod="b/second", node="n1", gpus=("G16",), begin=12, share=steadily(0.35)),
    Pod(
        pod="a/lazy",
        node="n1",
        gpus=("G10", "G11", "G12", "G13"),
        begin=6,
        end=18,
        stays=3,
        restarts=tuple(12 + n / 3 for n in range(1, 18)),
    ),
    Pod(pod="b/restarts", node="n1", gpus=("G14",), begin=0, share=with_pauses, restarts=(5, 13.5, 20)),
    Pod(pod="b/gap", node="n2", gpus=("G20", "G21"), begin=0, share=steadily(0.6, 0.6)),
    Pod(pod="b/bursts", node="n2", gpus=("G22",), begin=0, share=in_bursts),
    Pod(pod="c/newborn", node="n2", gpus=("G23",), begin=24 - 1 / 12),
    Pod(
        pod="a/half",
        node="n2",
        gpus=("G24", "G25"),
        begin=20,
        share=steadily(0.8, 0.0),
        sweep="lr-brave-otter",
    ),
    Pod(pod="a/queued", node="", gpus=("?", "?", "?", "?"), begin=10, waits=True),
    Pod(pod="c/pulling", node="n3", gpus=("?",), begin=22.5, waits=True),
    Pod(pod="c/slices", node="n3", gpus=("G30/1", "G30/2"), begin=8, end=20, share=steadily(0.3, 0.0)),
)
MODELS = {
    "n1": "NVIDIA H100 80GB HBM3",
    "n2": "NVIDIA A100-SXM4-80GB",
    "n3": "NVIDIA H100 NVL",
    "n4": "NVIDIA A10",
}
IDLE = {"n1": ("G15", "G17"), "n3": ("G30/3",), "n4": ("G40", "G41")}  # GPUs that are never allocated
SLICE = "3g.40gb"
PHYSICAL = {"n1": 8, "n2": 8, "n3": 4, "n4": 2}
AWAY = (3 + 1 / 6, 3 + 5 / 6)  # the exporter of n2
BOTH = (
    9 + 1 / 3,
    11 + 1 / 3,
)  # the old and the new exporter of n1; the new one calls its host's label otherwise
BOTH_STATES = (13.0, 13.5)  # the old and the new kube-state-metrics
UNPROFILED = (19.5, 20.0)  # n3's profiling module is unavailable; utilization is always 0 for slices
LOST_SINCE, CORDONED_SINCE = 6.0, 18.0  # one of n3, all of n4


def allocatable(node: str, hour: float) -> int:
    return PHYSICAL[node] - (node == "n3" and hour >= LOST_SINCE)


def cordoned(node: str, hour: float) -> bool:
    return node == "n4" and hour >= CORDONED_SINCE


def profiled(node: str, hour: float) -> bool:
    """Whether the node has GR_ENGINE_ACTIVE; n2 can't load the profiling module."""
    return node != "n2" and not (node == "n3" and UNPROFILED[0] <= hour < UNPROFILED[1])


def exporters(node: str, hour: float) -> Iterator[str]:
    """The pods of dcgm-exporter that answer on a node."""
    if node == "n2" and AWAY[0] <= hour < AWAY[1]:
        return
    if node != "n1" or hour < BOTH[1]:
        yield f"dcgm-old-{node}"
    if node == "n1" and hour >= BOTH[0]:
        yield f"dcgm-new-{node}"


def readings(node: str, hour: float) -> Iterator[tuple[str, str, str, float]]:
    """Namespace, pod, GPU, and share; "" if not allocated."""
    for gpu in IDLE.get(node, ()):
        yield "", "", gpu, 0.0
    for pod in PODS:
        if pod.node == node and pod.phase(hour) == "Running":
            for number, gpu in enumerate(pod.gpus):
                yield *pod.pod.split("/"), gpu, pod.share(hour, number)


def loads(node: str, hour: float, share: float) -> dict[str, float]:
    """What n2 and n3 export beside utilization; SM activity only since someone turned that on."""
    if node == "n1":
        return {}
    sm = {"DCGM_FI_PROF_SM_ACTIVE": share / 2} if hour >= SM_SINCE else {}
    return sm | {"DCGM_FI_DEV_POWER_USAGE": 60 + 300 * share, "DCGM_FI_DEV_FB_USED": 71680}


def xid(gpu: str, hour: float) -> int:
    """The last error of a GPU: one falls off the bus at one o'clock."""
    return 79 if gpu.startswith("G30") and hour >= 13 else 0


# pod -> GPU-hours allocated, observed, used, idle for whole half hours
EXACT = {
    "a/first": (12, 12, 8.4, 0),
    "b/second": (12, 12, 4.2, 0),
    "a/lazy": (48, 48, 0, 48),
    "b/restarts": (24, 24, 11.75, 0),
    "b/gap": (48, 48 - 4 / 3, 28, 0),
    "b/bursts": (24, 24 - 2 / 3, 3.6 - 0.075, 0),
    "c/newborn": (1 / 12, 1 / 12, 0, 0),
    "a/half": (8, 8, 3.2, 4),
    "c/pulling": (1.5, 0, 0, 0),
    "c/slices": (24, 24 - 1, 3.6 - 0.15, 12 - 0.5),
}
CAPACITY, LOST, CLOSED, WAITED = 22 * 24 - 18, 18, 12, 56
PENDING_PODS, PENDING, LONGEST = 1, 4, 14  # pods and GPUs at a time, hours
UNUSED = {
    "a/lazy": {(4, 4)},
    "a/half": {(2, 1)},
    "c/slices": {(2, 1)},
}  # GPUs, and those of them that did nothing for an hour
