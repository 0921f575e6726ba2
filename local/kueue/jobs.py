"""The kinds of jobs that Kueue queues here, and what differs between them.

PyTorchJobs as in Kueue v0.14.8: pkg/controller/jobs/kubeflow/kubeflowjob/kubeflowjob_controller.go and
pkg/controller/jobs/kubeflow/jobs/pytorchjob/pytorchjob_controller.go. TrainJobs as in v0.18.0,
pkg/controller/jobs/trainjob; before v0.17.0, Kueue doesn't work with Trainer 2.2 and later. After a
preemption the real one removes the node selectors of its patch; flavors have none here.
"""

import contextlib
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Object, Refused, clone
from local.kubernetes.apiserver.store import Store
from local.trainer import template
from local.trainer.webhooks import KUEUE as MANAGER

JOBS = ("Job", "PyTorchJob", "TrainJob")
REPLICAS = ("Master", "Worker")
NO_SELECTORS = {"name": "node", "template": {"spec": {"template": {"metadata": {}, "spec": {}}}}}
ENDS = {"Complete": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}


def all_jobs(store: Store) -> Iterator[Object]:
    """Return the store's own objects: don't change them."""
    for kind in JOBS:
        yield from store.peek(kind)


def is_suspended(job: Object) -> bool:
    spec = job["spec"].get("runPolicy", {}) if job["kind"] == "PyTorchJob" else job["spec"]
    return bool(spec.get("suspend"))


def suspended(job: Object) -> Object:
    """Return the job with a spec that suspends it."""
    new = clone(job)
    spec = new["spec"].setdefault("runPolicy", {}) if job["kind"] == "PyTorchJob" else new["spec"]
    spec["suspend"] = True
    return new


def set_suspended(store: Store, at: tuple[str, str, str], value: bool) -> None:
    """Suspend or resume the job. A TrainJob without its runtime refuses it until a later turn."""
    with contextlib.suppress(Refused):
        if at[0] == "TrainJob" and not value:
            store.patch(*at, {"spec": {"runtimePatches": [patch({"replicatedJobs": [NO_SELECTORS]})]}})
        spec = {"runPolicy": {"suspend": value}} if at[0] == "PyTorchJob" else {"suspend": value}
        store.patch(*at, {"spec": spec})


def patch(spec: Object) -> Object:
    """Return what Kueue changes of a TrainJob's runtime."""
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": spec}}}


def pod_sets(store: Store, job: Object) -> list[Object]:
    """Return the pods of one Workload; those of a TrainJob are unknown without its runtime."""
    spec = job["spec"]
    if job["kind"] == "Job":
        return [{"count": spec["parallelism"], "name": "main", "template": clone(spec["template"])}]
    if job["kind"] == "TrainJob":
        return _pod_sets_of_train_job(store, job)
    found = [(type_.lower(), spec["pytorchReplicaSpecs"].get(type_)) for type_ in REPLICAS]
    return [
        {"count": each.get("replicas", 1), "name": name, "template": clone(each["template"])}
        for name, each in found
        if each
    ]


def _pod_sets_of_train_job(store: Store, job: Object) -> list[Object]:
    runtime = store.get("TrainingRuntime", job["metadata"]["namespace"], job["spec"]["runtimeRef"]["name"])
    replicated = template.jobset_spec(job, runtime)["replicatedJobs"] if runtime else []
    return [
        {"count": each["template"]["spec"]["parallelism"], "name": each["name"], "template": pods}
        for each in replicated
        for pods in [each["template"]["spec"]["template"]]
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
