"""The kinds of jobs that Kueue queues here, and what differs between them.

PyTorchJobs as in Kueue v0.14.8: pkg/controller/jobs/kubeflow/kubeflowjob/kubeflowjob_controller.go and
pkg/controller/jobs/kubeflow/jobs/pytorchjob/pytorchjob_controller.go.
"""

from collections.abc import Iterator

from local.kubernetes.kinds import Object, clone
from local.kubernetes.store import Store

JOBS = ("Job", "PyTorchJob")
REPLICAS = ("Master", "Worker")
ENDS = {"Complete": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}


def all_jobs(store: Store) -> Iterator[Object]:
    """Return the store's own objects: don't change them."""
    for kind in JOBS:
        yield from store.peek(kind)


def is_suspended(job: Object) -> bool:
    spec = job["spec"] if job["kind"] == "Job" else job["spec"].get("runPolicy", {})
    return bool(spec.get("suspend"))


def suspended(job: Object) -> Object:
    """Return the job with a spec that suspends it."""
    new = clone(job)
    spec = new["spec"] if job["kind"] == "Job" else new["spec"].setdefault("runPolicy", {})
    spec["suspend"] = True
    return new


def set_suspended(store: Store, at: tuple[str, str, str], value: bool) -> None:
    spec = {"suspend": value} if at[0] == "Job" else {"runPolicy": {"suspend": value}}
    store.patch(*at, {"spec": spec})


def pod_sets(job: Object) -> list[Object]:
    """Return the pods of one Workload: those of a Job, or those of each replica type."""
    spec = job["spec"]
    if job["kind"] == "Job":
        return [{"count": spec["parallelism"], "name": "main", "template": clone(spec["template"])}]
    found = [(type_.lower(), spec["pytorchReplicaSpecs"].get(type_)) for type_ in REPLICAS]
    return [
        {"count": each.get("replicas", 1), "name": name, "template": clone(each["template"])}
        for name, each in found
        if each
    ]


def end(job: Object) -> tuple[str, str]:
    """Return reason and message of the Workload's end; empty while the job hasn't ended."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["status"] == "True" and (reason := ENDS.get(condition["type"])):
            message = condition["message"] if job["kind"] != "Job" else f"Job finished: {reason}"
            return reason, message
    return "", ""


def place_of_owner(workload: Object) -> tuple[str, str, str]:
    """Return kind, namespace, and name of the Workload's job."""
    [reference] = workload["metadata"]["ownerReferences"]
    return reference["kind"], workload["metadata"]["namespace"], reference["name"]
