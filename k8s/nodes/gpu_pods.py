"""Read the unfinished pods with GPUs (since when they have them, what they request), and those that export
their metrics, and keep them in memory by a watch; read from the scheduler's message whether a pod waits for
GPUs.

A list of 10,000 pods is 60 MB of JSON, and takes three seconds of CPU time.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from k8s.api.cache import Cache
from k8s.nodes.dcgm import is_exporter
from k8s.nodes.gpus import UNALLOCATABLE, gpu_sizes, gpus_of, requested
from k8s.nodes.machines import PLACEMENT
from k8s.nodes.scheduling import Sizes, placement, pod_needs
from k8s.objects import Manifest, condition, parse_time, picked, still_live
from k8s.pods import COLLECTORS

UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"  # field selector
PLACEHOLDER_PREFIX = "sweepbot-reserved-"  # of names
INSUFFICIENT = re.compile(r"Insufficient (\S+?)[,.]?(?=\s|$)")
_CONTAINER = dict.fromkeys(("name", "resources", "restartPolicy"), True)
_CLAIMING = {  # what is read of a pod with claims
    "metadata": dict.fromkeys(("namespace", "name", "labels", "creationTimestamp"), True),
    "spec": {
        **dict.fromkeys(("nodeName", "overhead", "resources", "resourceClaims", *PLACEMENT), True),
        "containers": _CONTAINER,
        "initContainers": _CONTAINER,
    },
    "status": dict.fromkeys(
        ("phase", "startTime", "conditions", "containerStatuses", "resourceClaimStatuses"), True
    ),
}


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    namespace: str
    name: str
    node: str  # "": not scheduled
    gpus: int = 0  # allocated to it
    started: datetime | None = None  # when the last of its containers with GPUs started; None: not all run
    pod_started: datetime | None = None  # if one of these has restarted; None: none has
    cpu_requested: float | None = None  # cores, without Katib's sidecar
    ram_requested: float | None = None  # bytes
    wanted: int = 0  # GPUs that it requests while it has no node
    created: datetime | None = None
    exports: bool = False  # the metrics of its node's GPUs
    lacks_gpus: bool = False  # by the scheduler's last attempt, free GPUs could help
    sizes: Mapping[str, int] = field(default_factory=dict)  # its GPUs by resource, such as a MIG profile
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)  # while it has no node: where it can run, and:
    needs: Sizes = field(default_factory=dict)  # all that it requests of a node, in thousandths


def is_placeholder(name: str) -> bool:
    """Return whether a Job or pod of this name holds a GPU for a reservation, idle on purpose."""
    return name.startswith(PLACEHOLDER_PREFIX)


def read_gpu_pod(pod: Manifest) -> GpuPod | None:
    """Return None for a pod that has finished or has nothing to do with GPUs. Raises ValueError."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if (phase := status.get("phase")) in {"Succeeded", "Failed"}:
        return None
    sizes, node, exports = gpu_sizes(pod), spec.get("nodeName", ""), is_exporter(pod)
    gpus = sum(sizes.values()) if node and phase in {"Pending", "Running"} else 0
    wanted = sum(sizes.values()) if not node and phase == "Pending" else 0
    if not (gpus or wanted or exports):
        return None
    training = [each for each in spec["containers"] if each["name"] not in COLLECTORS]
    with_gpus = {each["name"] for each in spec["containers"] if gpus_of(each)}
    mine = [each for each in status.get("containerStatuses") or () if each["name"] in with_gpus]
    return GpuPod(
        namespace=meta["namespace"],
        name=meta["name"],
        node=node,
        gpus=gpus,
        started=_started(mine, len(with_gpus)),
        pod_started=parse_time(status.get("startTime")) if any(e.get("restartCount") for e in mine) else None,
        cpu_requested=requested(training, "cpu"),
        ram_requested=requested(training, "memory"),
        wanted=wanted,
        created=parse_time(meta.get("creationTimestamp")),
        exports=exports,
        sizes=sizes,
        labels=meta.get("labels") or {},
        spec=placement(spec) if wanted else {},
        needs=pod_needs(spec) if wanted else {},
        lacks_gpus=bool(wanted) and _lacks_gpus(pod),
    )


def _started(statuses: Collection[Manifest], containers: int) -> datetime | None:
    since = [parse_time(each.get("state", {}).get("running", {}).get("startedAt")) for each in statuses]
    known = [each for each in since if each]
    return max(known) if known and len(known) == containers else None


def _lacks_gpus(pod: Manifest) -> bool:
    """Return False if the pod waits for something else: a scheduling gate, a volume, or another resource.

    kube-scheduler names each resource of which a node has too little, but nothing that it checks after that,
    such as the zone of a volume. A pod without an attempt, or of another scheduler, can wait for GPUs.
    """
    found = condition(pod, "PodScheduled", "False")
    message = found.get("message") or ""
    known = " nodes are available: " in message or "persistentvolumeclaim" in message.lower()
    names = set(INSUFFICIENT.findall(message))
    lacks = UNALLOCATABLE in message or bool(names & gpu_sizes(pod).keys())
    return found.get("reason") != "SchedulingGated" and (not known or lacks)


class GpuPods(Cache):
    """Those of all namespaces. `complete`: a watch keeps them current.

    `claiming`: those with ResourceClaims; what they allocate can change without the pod.
    """

    def __init__(self) -> None:
        super().__init__("Pod", "", lambda _: None)
        self._pods: dict[str, GpuPod] = {}
        self.claiming: dict[str, Manifest] = {}

    def key(self, obj: Manifest) -> str:
        return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"

    def put(self, obj: Manifest) -> None:
        self.remove(self.key(obj))
        if obj["spec"].get("resourceClaims") and still_live(obj):
            self.claiming[self.key(obj)] = picked(obj, _CLAIMING)
        elif found := read_gpu_pod(obj):
            self._pods[self.key(obj)] = found

    def remove(self, key: str, _version: str = "") -> None:
        self._pods.pop(key, None)
        self.claiming.pop(key, None)

    def retain(self, keys: set[str]) -> None:
        for gone in (self._pods.keys() | self.claiming.keys()) - keys:
            self.remove(gone)

    @property
    def pods(self) -> Collection[GpuPod]:
        return tuple(self._pods.values())
