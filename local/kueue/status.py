"""The status of queues, and the order that Kueue's visibility API shows."""

from local.kubernetes.apiserver.kinds import KINDS, Object, not_found, timestamp
from local.kubernetes.apiserver.store import Store
from local.kueue import workloads
from local.kueue.quotas import Quotas, quotas

VISIBILITY = "visibility.kueue.x-k8s.io"


def report(store: Store) -> None:
    """Write the status of each queue [katib/08-clusterqueue-active, 08-I-clusterqueue-status]."""
    for queue in [*store.peek("ClusterQueue")]:
        stopped = queue["spec"].get("stopPolicy", "None") != "None"
        active = ("False", "Stopped", "Can't admit new workloads: is stopped")
        active = active if stopped else ("True", "Ready", "Can admit new workloads")
        usage = Quotas(store, queue)
        each = [_used(usage, *found) for found in quotas(queue)]
        flavors = [{"name": name, "resources": [u for n, u in each if n == name]} for name, _ in each]
        mine = [w for w in store.peek("Workload") if _cluster_queue(store, w) == queue["metadata"]["name"]]
        _write(store, queue, mine, active, {"flavorsReservation": flavors, "flavorsUsage": flavors})
    for local in [*store.peek("LocalQueue")]:
        above = store.find("ClusterQueue", "", local["spec"]["clusterQueue"])
        active = ("True", "Ready", "Can submit new workloads to localQueue")
        if local["spec"].get("stopPolicy", "None") != "None":
            active = ("False", "Stopped", "LocalQueue is stopped")
        elif above is None or above["spec"].get("stopPolicy", "None") != "None":
            active = ("False", "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
        there = store.peek("Workload", local["metadata"]["namespace"])
        mine = [w for w in there if w["spec"]["queueName"] == local["metadata"]["name"]]
        _write(store, local, mine, active, {})


def pending(store: Store, namespace: str, queue: str) -> Object:
    """Return a LocalQueue's pending Workloads with their positions. Raises Refused 404."""
    found = store.find("LocalQueue", namespace, queue)
    if found is None:
        raise not_found(KINDS["LocalQueue"], queue)
    above = found["spec"]["clusterQueue"]
    waiting = [w for w in store.peek("Workload") if workloads.is_pending(w)]
    there = sorted((w for w in waiting if _cluster_queue(store, w) == above), key=workloads.order)
    items: list[Object] = []
    for position, workload in enumerate(there):
        meta, spec = workload["metadata"], workload["spec"]
        if (meta["namespace"], spec["queueName"]) != (namespace, queue):
            continue
        about = {key: meta[key] for key in ("name", "namespace", "creationTimestamp", "ownerReferences")}
        places = {"positionInClusterQueue": position, "positionInLocalQueue": len(items)}
        items.append({"metadata": about, "priority": spec["priority"], "localQueueName": queue, **places})
    head = {"kind": "PendingWorkloadsSummary", "apiVersion": f"{VISIBILITY}/v1beta1"}
    return {**head, "metadata": {}, "items": items}


def _used(usage: Quotas, resource: str, flavor: str, quota: float, *_: float | None) -> tuple[str, Object]:
    total = usage.used(resource, (), usage.name)
    borrowed = max(0.0, total - quota)
    return flavor, {"name": resource, "total": f"{total:g}", "borrowed": f"{borrowed:g}"}


def _cluster_queue(store: Store, workload: Object) -> str:
    found = workloads.cluster_queue(store, workload)
    return str(found["metadata"]["name"]) if found else ""


def _write(
    store: Store, queue: Object, mine: list[Object], active: tuple[str, str, str], more: Object
) -> None:
    counts = {
        "pendingWorkloads": sum(map(workloads.is_pending, mine)),
        "admittedWorkloads": sum(map(workloads.is_admitted, mine)),
    }
    state, reason, message = active
    known = {"type": "Active", "status": state, "reason": reason, "message": message}
    old: Object = next(iter(queue.get("status", {}).get("conditions", [])), {})
    same = known.items() <= old.items()
    condition = old if same else known | {"lastTransitionTime": timestamp()}
    if (status := {"conditions": [condition], **counts, **more}) != queue.get("status"):
        store.set_status(queue, status)
