"""Workloads: one for each job in a queue, with the conditions of Kueue 0.14.8 [katib/08-B-workloads]."""

from local.kubernetes.apiserver.kinds import KINDS, Object, suffix, timestamp
from local.kubernetes.apiserver.store import Store, owner, place
from local.kueue import jobs

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
JOB = "kueue.x-k8s.io/job-uid"
DEACTIVATED = "The workload is deactivated"
NO_RESERVATION = ("False", "NoReservation", "The workload has no reservation")


def follow(store: Store, job: Object) -> None:
    """Create the job's Workload, or bring both up to date with each other.

    An unknown priority class leaves the job suspended without Workload and without event.
    """
    workload, spec, (ended, message) = _of(store, job), _spec(store, job), jobs.end(job)
    is_suspended = jobs.is_suspended(job)
    if workload is None:
        if spec:
            _create(store, job, spec)
    elif ended:
        _set(store, workload, Finished=("True", ended, message))
    elif not workload["spec"]["active"] and not is_deactivated(workload):
        _deactivate(store, workload, job)
    elif is_suspended and spec and not is_admitted(workload) and not _is(workload, "Evicted"):
        _update(store, workload, spec)
    elif not is_suspended and not is_admitted(workload):
        jobs.set_suspended(store, place(job), True)


def is_pending(workload: Object) -> bool:
    return bool(workload["spec"]["active"]) and not is_admitted(workload) and not _is(workload, "Finished")


def is_admitted(workload: Object) -> bool:
    return _is(workload, "Admitted") and not _is(workload, "Finished")


def is_deactivated(workload: Object) -> bool:
    return condition(workload, "QuotaReserved").get("message") == DEACTIVATED


def order(workload: Object) -> tuple[int, str, str]:
    """Return the sort key of pending Workloads."""
    meta = workload["metadata"]
    return -workload["spec"]["priority"], meta["creationTimestamp"], meta["name"]


def cluster_queue(store: Store, workload: Object) -> Object | None:
    namespace, name = workload["metadata"]["namespace"], workload["spec"]["queueName"]
    queue = store.find("LocalQueue", namespace, name)
    return store.find("ClusterQueue", "", queue["spec"]["clusterQueue"]) if queue else None


def inadmissible(store: Store, workload: Object) -> str:
    """Return why the Workload's queue admits nothing; "" if it does."""
    namespace, name = workload["metadata"]["namespace"], workload["spec"]["queueName"]
    queue = store.find("LocalQueue", namespace, name)
    if queue is None:
        return f"LocalQueue {name} doesn't exist"
    above = queue["spec"]["clusterQueue"]
    found = store.find("ClusterQueue", "", above)
    if found is None:
        return f"ClusterQueue {above} doesn't exist"
    if found["spec"].get("stopPolicy", "None") != "None":
        return f"ClusterQueue {above} is inactive"
    return f"LocalQueue {name} is inactive" if queue["spec"].get("stopPolicy", "None") != "None" else ""


def admit(store: Store, workload: Object, admission: Object) -> None:
    known = {c["type"] for c in workload.get("status", {}).get("conditions", [])}
    why = ("QuotaReserved", f"Quota reserved in ClusterQueue {admission['clusterQueue']}")
    over = {each: ("False", *why) for each in ("Evicted", "Preempted") if each in known}
    admitted = ("True", "Admitted", "The workload is admitted")
    _set(store, workload, admission, QuotaReserved=("True", *why), Admitted=admitted, **over)
    jobs.set_suspended(store, jobs.place_of_owner(workload), False)


def refuse(store: Store, workload: Object, why: str, reason: str) -> None:
    _set(store, workload, QuotaReserved=("False", reason, why))


def preempt(store: Store, victim: Object, by: Object) -> None:
    """Evict an admitted Workload: its job is suspended again, and it waits in its queue."""
    uids = f"UID: {by['metadata']['uid']}, JobUID: {by['metadata']['labels'][JOB]}"
    why = f"Preempted to accommodate a workload ({uids}) due to prioritization in the ClusterQueue"
    above, below = ((cluster_queue(store, each) or {})["metadata"]["name"] for each in (by, victim))
    why += f"; preemptor path: /{above}; preemptee path: /{below}"  # since Kueue 0.15
    _set(
        store,
        victim,
        QuotaReserved=("False", "Pending", why),
        Evicted=("True", "Preempted", why),
        Admitted=NO_RESERVATION,
        Preempted=("True", "InClusterQueue", why),
        Requeued=("True", "Preempted", why),
    )
    jobs.set_suspended(store, jobs.place_of_owner(victim), True)


def condition(workload: Object, type_: str) -> Object:
    """Return the condition; empty if it isn't there."""
    return next((c for c in workload.get("status", {}).get("conditions", []) if c["type"] == type_), {})


def _of(store: Store, job: Object) -> Object | None:
    found = store.list("Workload", job["metadata"]["namespace"], {JOB: job["metadata"]["uid"]})
    return found[0] if found else None


def _spec(store: Store, job: Object) -> Object:
    """Return the queue and the priority of the job's labels; empty for an unknown class."""
    labels = job["metadata"]["labels"]
    spec = {"queueName": labels[QUEUE], "priority": 0}
    if name := labels.get(PRIORITY):
        found = store.find("WorkloadPriorityClass", "", name)
        source = "kueue.x-k8s.io/workloadpriorityclass"
        named = {"priorityClassName": name, "priorityClassSource": source}
        return spec | named | {"priority": found["value"]} if found else {}
    return spec


def _create(store: Store, job: Object, spec: Object) -> None:
    meta = job["metadata"]
    if not (sets := jobs.pod_sets(store, job)):
        return
    name = f"{job['kind'].lower()}-{meta['name'][:50]}-{suffix()}"
    head = {"apiVersion": KINDS["Workload"].api_version, "kind": "Workload"}
    owned = {"labels": {JOB: meta["uid"]}, "ownerReferences": [owner(job)]}
    body = {"active": True, **spec, "podSets": sets}
    store.create({**head, "metadata": {"name": name, "namespace": meta["namespace"]} | owned, "spec": body})


def _update(store: Store, workload: Object, spec: Object) -> None:
    """Take over new labels of a suspended job. A priority set on the Workload itself stays."""
    kept = ("queueName", "priorityClassName")
    if any(workload["spec"].get(key) != spec.get(key) for key in kept):
        store.patch(*place(workload), {"spec": spec})


def _deactivate(store: Store, workload: Object, job: Object) -> None:
    gone = {"Evicted": ("True", "Deactivated", DEACTIVATED), "Admitted": NO_RESERVATION}
    requeued = ("False", "Deactivated", DEACTIVATED)
    _set(store, workload, QuotaReserved=("False", "Pending", DEACTIVATED), **gone, Requeued=requeued)
    if not jobs.is_suspended(job):
        jobs.set_suspended(store, place(job), True)


def _is(workload: Object, type_: str) -> bool:
    return condition(workload, type_).get("status") == "True"


def _set(
    store: Store, workload: Object, admission: Object | None = None, /, **conditions: tuple[str, str, str]
) -> None:
    """Set these conditions (status, reason, message); unchanged ones keep their time.

    Without quota, the status has no admission.
    """
    current = store.get(*place(workload)) or workload
    found = {c["type"]: c for c in current.get("status", {}).get("conditions", [])}
    for type_, (state, reason, message) in conditions.items():
        known = {"type": type_, "status": state, "reason": reason, "message": message}
        if not known.items() <= found.get(type_, {}).items():
            found[type_] = known | {"lastTransitionTime": timestamp()}
    status = {**current.get("status", {}), "conditions": list(found.values())}
    if admission:
        status["admission"] = admission
    elif found["QuotaReserved"]["status"] == "False":
        status.pop("admission", None)
    store.set_status(current, status)
