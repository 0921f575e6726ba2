"""A subset of Kueue: Jobs in a queue stay suspended until its quota has room.

Its API exists once `install` was called: a cluster without its CustomResourceDefinitions has no Workloads.
The messages are those of Kueue v0.14.8 [katib/08-B-workloads]. There are no priorities and no preemption.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from local.kubernetes.kinds import KINDS, QUEUES, Object, clone, suffix, timestamp
from local.kubernetes.pods import amount
from local.kubernetes.store import Store, owner, place

QUEUE = "kueue.x-k8s.io/queue-name"
JOB = "kueue.x-k8s.io/job-uid"
DEFAULT = "default"  # a LocalQueue of this name gets every Job of its namespace
UNFIT = "couldn't assign flavors to pod set main: "


def install(store: Store) -> None:
    for name in QUEUES:
        kind = KINDS[name]
        meta = {"name": kind.resource}
        spec = {"group": kind.group, "versions": [{"name": kind.version, "served": True, "storage": True}]}
        store.create(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": meta,
                "spec": spec,
            }
        )


class Kueue:
    """Does nothing in namespaces without a LocalQueue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        store.admission("Job", self._captured)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        async for _ in self._store.subscribe("Job", *QUEUES):
            for job in list(self._store.peek("Job")):
                if job["spec"]["suspend"] and QUEUE in job["metadata"].get("labels", {}):
                    self._look_at(clone(job))

    def _captured(self, job: Object) -> Object:
        """Suspend a new Job in a queue; the namespace's default queue applies if it names none."""
        labels = job["metadata"].setdefault("labels", {})
        if "uid" in job["metadata"]:
            return job
        if self._store.get("LocalQueue", job["metadata"]["namespace"], DEFAULT):
            labels.setdefault(QUEUE, DEFAULT)
        return job | {"spec": job["spec"] | {"suspend": True}} if QUEUE in labels else job

    def _look_at(self, job: Object) -> None:
        workload = self._workload(job)
        refusal = self._why_not(job)
        if refusal:
            return self._record_event(workload, "False", "Pending", refusal)
        cluster_queue = self._queue(job)["spec"]["clusterQueue"]
        self._record_event(
            workload, "True", "QuotaReserved", f"Quota reserved in ClusterQueue {cluster_queue}"
        )
        self._store.patch(*place(job), {"spec": {"suspend": False}})
        return None

    def _workload(self, job: Object) -> Object:
        meta = job["metadata"]
        for workload in self._store.list("Workload", meta["namespace"], {JOB: meta["uid"]}):
            return workload
        named = {"name": f"job-{meta['name'][:50]}-{suffix()}", "namespace": meta["namespace"]}
        spec = {"active": True, "queueName": meta["labels"][QUEUE]}
        spec["podSets"] = [{"count": 1, "name": "main", "template": clone(job["spec"]["template"])}]
        head = {"apiVersion": KINDS["Workload"].api_version, "kind": "Workload", "spec": spec}
        labels = {JOB: meta["uid"]}
        return self._store.create(
            {**head, "metadata": named | {"labels": labels, "ownerReferences": [owner(job)]}}
        )

    def _queue(self, job: Object) -> Object:
        name = job["metadata"]["labels"][QUEUE]
        return self._store.get("LocalQueue", job["metadata"]["namespace"], name) or {}

    def _why_not(self, job: Object) -> str:
        """Return why the Job can't be admitted; empty if the quota has room."""
        queue = self._queue(job)
        if not queue:
            return f"LocalQueue {job['metadata']['labels'][QUEUE]} doesn't exist"
        name = queue["spec"]["clusterQueue"]
        cluster_queue = self._store.get("ClusterQueue", "", name)
        if cluster_queue is None:
            return f"ClusterQueue {name} doesn't exist"
        quotas = {each[0]: each[1:] for each in _quotas(cluster_queue)}
        for resource, requested in sorted(_requests(job).items()):
            if resource not in quotas:
                return f"{UNFIT}resource {resource} unavailable in ClusterQueue"
            if lacks := _lack(*quotas[resource], requested, self._used(name, resource)):
                return UNFIT + lacks.format(resource)
        return ""

    def _used(self, cluster_queue: str, resource: str) -> float:
        return sum(_requests(job).get(resource, 0) for job in self._admitted(cluster_queue))

    def _admitted(self, cluster_queue: str) -> Iterator[Object]:
        for job in self._store.list("Job"):
            ended = {c["type"] for c in job["status"].get("conditions", []) if c["status"] == "True"}
            if QUEUE not in job["metadata"].get("labels", {}) or job["spec"]["suspend"]:
                continue
            here = self._queue(job).get("spec", {}).get("clusterQueue") == cluster_queue
            if here and not ended & {"Complete", "Failed"}:
                yield job

    def _record_event(self, workload: Object, status: str, reason: str, message: str) -> None:
        known = {"type": "QuotaReserved", "status": status, "reason": reason, "message": message}
        old = workload.get("status", {}).get("conditions", [])
        if not any(known.items() <= each.items() for each in old):
            now = known | {"lastTransitionTime": timestamp()}
            self._store.set_status(workload, {"conditions": [now]})


def _lack(flavor: str, most: float, requested: float, used: float) -> str:
    """Return a format string with a place for the resource; empty if there is room."""
    if requested > most:
        sizes = f"previously considered podsets requests (0) + current podset request ({requested:g})"
        return f"insufficient quota for {{}} in flavor {flavor}, {sizes} > maximum capacity ({most:g})"
    short = requested + used - most
    return (
        f"insufficient unused quota for {{}} in flavor {flavor}, {short:g} more needed" if short > 0 else ""
    )


def _quotas(cluster_queue: Object) -> Iterator[tuple[str, str, float]]:
    """Return resource, flavor, and nominal quota of the first flavor."""
    for group in cluster_queue["spec"].get("resourceGroups", []):
        flavor = group["flavors"][0]
        for each in flavor["resources"]:
            yield each["name"], flavor["name"], amount(str(each["nominalQuota"]))


def _requests(job: Object) -> dict[str, float]:
    found: dict[str, float] = {}
    for container in job["spec"]["template"]["spec"]["containers"]:
        sizes = container["resources"].get("limits", {}) | container["resources"].get("requests", {})
        for name, size in sizes.items():
            found[name] = found.get(name, 0) + amount(str(size))
    return found
