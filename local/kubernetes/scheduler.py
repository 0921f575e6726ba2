"""The scheduler: assign pods to nodes by devices, CPUs, labels, and taints; preempt by priority.

Memory isn't counted, nor are the CPUs of a node that doesn't say how many it has. Pods of a higher priority
come first, then older ones. Of several nodes that fit, the one with the most pods that the pod prefers to be
near wins, then the first.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache

from local.kubernetes import device_allocation, preemption
from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.pods import amount
from local.kubernetes.apiserver.store import Store

GPU, CPU = "nvidia.com/gpu", "cpu"
CLAIMS = "resourceClaimStatuses"
DURING = "DuringSchedulingIgnoredDuringExecution"
OTHER_NODES = "node(s) didn't match Pod's node affinity/selector"


async def run(store: Store) -> None:
    """Bind pods as GPUs are released, until cancelled."""
    queue: dict[str, None] = {}
    async for type_, obj in store.subscribe("Pod", "Node", "ResourceClaim"):
        if type_ == "DELETED":
            queue.pop(obj["metadata"]["uid"], None)
        elif type_ == "ADDED" and obj["kind"] == "Pod":
            queue[obj["metadata"]["uid"]] = None
        waiting = {pod["metadata"]["uid"]: pod for pod in store.peek("Pod") if _is_waiting(pod)}
        for uid in sorted((uid for uid in queue if uid in waiting), key=lambda uid: -_priority(waiting[uid])):
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
    if (claims := device_allocation.claims_of(store, pod)) is None:
        return None
    for node in store.list("Node"):
        if reason := _excluded(pod, node):
            reasons[reason] += 1
            hopeless += 1
        elif short := _short_of(store, pod, node):
            reasons[f"Insufficient {short}"] += 1
            hopeless += _requests(pod)[short] > _allocatable(node, short)
        elif device_allocation.allocate(store, claims, node["metadata"]["name"]) is None:
            reasons[device_allocation.TOO_FEW] += 1
            hopeless += 1
        else:
            fitting.append(node)
    if not fitting:
        chosen = preemption.choose(*_rivals(store, pod))
        return _report_unschedulable(store, pod, reasons, hopeless, chosen)
    node = max(fitting, key=lambda each: _preference(store, pod, each["metadata"]["name"]))
    results = device_allocation.allocate(store, claims, node["metadata"]["name"])
    device_allocation.reserve(store, pod, results or [])
    store.patch("Pod", namespace, name, {"spec": {"nodeName": node["metadata"]["name"]}})
    _set_scheduled(store, pod, {"status": "True"})
    text = f"Successfully assigned {namespace}/{name} to {node['metadata']['name']}"
    return store.record_event(pod, "Normal", "Scheduled", text, "default-scheduler")


def _rivals(store: Store, pod: Object) -> tuple[Object, dict[str, list[Object]], preemption.Fits]:
    """Return the pod, what lives on each node where it can run, and whether it would fit without some."""
    nodes = {each["metadata"]["name"]: each for each in store.list("Node") if not _excluded(pod, each)}

    def fits(node: str, without: list[Object]) -> bool:
        return not _short_of(store, pod, nodes[node], {each["metadata"]["uid"] for each in without})

    return pod, {name: list(_living_on(store, name)) for name in nodes}, fits


def _report_unschedulable(
    store: Store, pod: Object, reasons: Counter[str], hopeless: int, chosen: tuple[str, list[Object]] | None
) -> None:
    """Set the condition and the event with the scheduler's message, once for each new reason."""
    total = reasons.total()
    prefix = f"0/{total} nodes are available: "
    outlook = {
        "No preemption victims found for incoming pod": total - hopeless,
        "Preemption is not helpful for scheduling": hopeless,
    }
    text = f"{prefix}{_listed(reasons)}. preemption: {prefix}{_listed(outlook)}."
    if waits_for := preemption.ineligible(store, pod):
        text, chosen = f"{prefix}{_listed(reasons)}. preemption: {waits_for}", None
    fields = [condition.get("message") for condition in pod["status"].get("conditions", [])]
    nominated = {"nominatedNodeName": chosen[0]} if chosen else {}
    if text not in fields or nominated:
        condition = {"status": "False", "reason": "Unschedulable", "message": text}
        _set_scheduled(store, pod, condition, nominated)
        store.record_event(pod, "Warning", "FailedScheduling", text, "default-scheduler")
    if chosen:
        preemption.evict(store, pod, *chosen)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))


def _set_scheduled(store: Store, pod: Object, fields: Object, more: Object | None = None) -> None:
    condition = {"type": "PodScheduled", "lastProbeTime": None, "lastTransitionTime": timestamp()} | fields
    kept = {key: pod["status"][key] for key in ("nominatedNodeName", CLAIMS) if pod["status"].get(key)}
    store.set_status(pod, {"phase": "Pending", "conditions": [condition], **kept, **(more or {})})


def _priority(pod: Object) -> int:
    priority: int = pod["spec"].get("priority", 0)
    return priority


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


def _requests(pod: Object) -> Counter[str]:
    """Return what the pod requests, by resource: devices, and CPUs in thousandths."""
    found: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, size in container.get("resources", {}).get("requests", {}).items():
            found[name] += _size(name, size) if "/" in name or name == CPU else 0
    return +found


@lru_cache(maxsize=4096)
def _size(name: str, quantity: str) -> int:
    return round(amount(str(quantity)) * (1000 if name == CPU else 1))


def _short_of(store: Store, pod: Object, node: Object, without: Collection[str] = ()) -> str:
    """Return the resource of which the node has too little free.

    Pods of at least the same priority for which others are preempted there count as if they ran.
    """
    used: Counter[str] = Counter()
    here = [*_living_on(store, node["metadata"]["name"]), *_nominated(store, pod, node["metadata"]["name"])]
    for each in here:
        used += _requests(each) if each["metadata"]["uid"] not in without else Counter()
    needed = _requests(pod)
    return next((name for name in needed if needed[name] > _allocatable(node, name) - used[name]), "")


def _allocatable(node: Object, name: str) -> int:
    sizes = node["status"]["allocatable"]
    return _size(name, sizes[name]) if name in sizes else sys.maxsize if name == CPU else 0


def _nominated(store: Store, pod: Object, node: str) -> Iterator[Object]:
    for other in store.peek("Pod"):
        there = _is_waiting(other) and other["status"].get("nominatedNodeName") == node
        if (
            there
            and other["metadata"]["uid"] != pod["metadata"]["uid"]
            and _priority(other) >= _priority(pod)
        ):
            yield other


def _living_on(store: Store, node: str) -> Iterator[Object]:
    """Return the pods whose requests count on a node, from a pod's binding to its end."""
    for pod in store.peek("Pod"):
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") == node and not ended:
            yield pod
