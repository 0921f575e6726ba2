"""The scheduler: assign pods to nodes by GPUs and nodeSelector."""

from collections import Counter
from collections.abc import Iterator

from local.kubernetes.kinds import Object, timestamp
from local.kubernetes.store import Store

GPU = "nvidia.com/gpu"
LACKS_GPUS = f"Insufficient {GPU}"
OTHER_NODES = "node(s) didn't match Pod's node affinity/selector"


async def run(store: Store) -> None:
    """Bind pods in order of creation, as GPUs are released, until cancelled."""
    queue: dict[str, None] = {}
    async for type_, obj in store.subscribe("Pod", "Node"):
        if type_ == "DELETED":
            queue.pop(obj["metadata"]["uid"], None)
        elif type_ == "ADDED" and obj["kind"] == "Pod":
            queue[obj["metadata"]["uid"]] = None
        waiting = {pod["metadata"]["uid"]: pod for pod in store.peek("Pod") if _is_waiting(pod)}
        for uid in [uid for uid in queue if uid in waiting]:
            _place(store, waiting[uid])


def gpus(pod: Object) -> int:
    requests = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    return sum(int(request.get(GPU, 0)) for request in requests)


def _is_waiting(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]


def _place(store: Store, pod: Object) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    reasons: Counter[str] = Counter()
    hopeless = 0  # nodes where pushing others out would not help
    for node in store.list("Node"):
        if not _selected(pod, node):
            reasons[OTHER_NODES] += 1
            hopeless += 1
        elif gpus(pod) > _free(store, node):
            reasons[LACKS_GPUS] += 1
            hopeless += gpus(pod) > _allocatable(node)
        else:
            store.patch("Pod", namespace, name, {"spec": {"nodeName": node["metadata"]["name"]}})
            _set_scheduled(store, pod, {"status": "True"})
            text = f"Successfully assigned {namespace}/{name} to {node['metadata']['name']}"
            return store.record_event(pod, "Normal", "Scheduled", text, "default-scheduler")
    return _report_unschedulable(store, pod, reasons, hopeless)


def _report_unschedulable(store: Store, pod: Object, reasons: Counter[str], hopeless: int) -> None:
    """Set the condition and the event with the scheduler's message, once for each new reason."""
    total = reasons.total()
    prefix = f"0/{total} nodes are available: "
    preemption = {
        "No preemption victims found for incoming pod": total - hopeless,
        "Preemption is not helpful for scheduling": hopeless,
    }
    text = f"{prefix}{_listed(reasons)}. preemption: {prefix}{_listed(preemption)}."
    fields = [condition.get("message") for condition in pod["status"].get("conditions", [])]
    if text not in fields:
        _set_scheduled(store, pod, {"status": "False", "reason": "Unschedulable", "message": text})
        store.record_event(pod, "Warning", "FailedScheduling", text, "default-scheduler")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))


def _set_scheduled(store: Store, pod: Object, fields: Object) -> None:
    condition = {"type": "PodScheduled", "lastProbeTime": None, "lastTransitionTime": timestamp()} | fields
    store.set_status(pod, {"phase": "Pending", "conditions": [condition]})


def _selected(pod: Object, node: Object) -> bool:
    return bool((pod["spec"].get("nodeSelector") or {}).items() <= node["metadata"].get("labels", {}).items())


def _allocatable(node: Object) -> int:
    return int(node["status"]["allocatable"].get(GPU, 0))


def _free(store: Store, node: Object) -> int:
    return _allocatable(node) - sum(map(gpus, _living_on(store, node["metadata"]["name"])))


def _living_on(store: Store, node: str) -> Iterator[Object]:
    """Return the node's free GPUs; a pod's are allocated from its binding to its end."""
    for pod in store.peek("Pod"):
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") == node and not ended:
            yield pod
