"""The scheduler: assign pods to nodes by devices, labels, and taints.

CPU and memory aren't counted. Of several nodes that fit, the one with the most pods that the pod prefers to
be near wins, then the first.
"""

from collections import Counter
from collections.abc import Iterator

from local.kubernetes.kinds import Object, timestamp
from local.kubernetes.store import Store

GPU = "nvidia.com/gpu"
DURING = "DuringSchedulingIgnoredDuringExecution"
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
    fitting = []
    for node in store.list("Node"):
        if reason := _excluded(pod, node):
            reasons[reason] += 1
            hopeless += 1
        elif short := _short_of(store, pod, node):
            reasons[f"Insufficient {short}"] += 1
            hopeless += _devices(pod)[short] > _allocatable(node, short)
        else:
            fitting.append(node)
    if not fitting:
        return _report_unschedulable(store, pod, reasons, hopeless)
    node = max(fitting, key=lambda each: _preference(store, pod, each["metadata"]["name"]))
    store.patch("Pod", namespace, name, {"spec": {"nodeName": node["metadata"]["name"]}})
    _set_scheduled(store, pod, {"status": "True"})
    text = f"Successfully assigned {namespace}/{name} to {node['metadata']['name']}"
    return store.record_event(pod, "Normal", "Scheduled", text, "default-scheduler")


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


def _excluded(pod: Object, node: Object) -> str:
    """Return the scheduler's reason why the pod can't run there, whatever is free; "" if it can."""
    if not _selected(pod, node):
        return OTHER_NODES
    for taint in node.get("spec", {}).get("taints") or ():
        tolerated = any(_tolerates(each, taint) for each in pod["spec"].get("tolerations") or ())
        if taint["effect"] != "PreferNoSchedule" and not tolerated:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return ""


def _selected(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(f"required{DURING}", {})
    terms = required.get("nodeSelectorTerms")
    chosen = terms is None or any(_matches(term, labels) for term in terms)
    return chosen and bool((pod["spec"].get("nodeSelector") or {}).items() <= labels.items())


def _matches(term: Object, labels: dict[str, str]) -> bool:
    """Match expressions of a node or label selector; only the operators In and Exists exist here."""
    return all(
        each["key"] in labels and (each["operator"] == "Exists" or labels[each["key"]] in each["values"])
        for each in term.get("matchExpressions", ())
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("key") not in (None, taint["key"]) or toleration.get("effect") not in (
        None,
        taint["effect"],
    ):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _preference(store: Store, pod: Object, node: str) -> int:
    """Return the weight of the preferred pods on a node, by podAffinity with the topology of host names."""
    preferred = pod["spec"].get("affinity", {}).get("podAffinity", {}).get(f"preferred{DURING}", ())
    return sum(
        each["weight"]
        for each in preferred
        for other in _living_on(store, node)
        if _matches(each["podAffinityTerm"]["labelSelector"], other["metadata"].get("labels", {}))
    )


def _devices(pod: Object) -> Counter[str]:
    """Return what the pod requests of devices, by resource."""
    found: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, size in container.get("resources", {}).get("requests", {}).items():
            found[name] += int(size) if "/" in name else 0
    return +found


def _short_of(store: Store, pod: Object, node: Object) -> str:
    """Return a device of which the node has too few free ones."""
    used: Counter[str] = Counter()
    for each in _living_on(store, node["metadata"]["name"]):
        used += _devices(each)
    needed = _devices(pod)
    return next((name for name in needed if needed[name] > _allocatable(node, name) - used[name]), "")


def _allocatable(node: Object, name: str) -> int:
    return int(node["status"]["allocatable"].get(name, 0))


def _living_on(store: Store, node: str) -> Iterator[Object]:
    """Return the pods whose devices are allocated on a node, from a pod's binding to its end."""
    for pod in store.peek("Pod"):
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") == node and not ended:
            yield pod
