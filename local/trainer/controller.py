"""The controller of TrainJobs.

As in kubeflow/trainer v2.3.0: pkg/controller/trainjob_controller.go, pkg/runtime/core/snapshot.go, and
pkg/runtime/framework/plugins/jobset/jobset.go. What a user should know of it:

- A JobSet that is refused (its name too long, for one) leaves the TrainJob without any condition: an event
  says why, and it is tried again forever.
- The runtime is read once, into a ConfigMap: later changes of the runtime change nothing.
- A TrainJob has no condition while it runs, and none that says that it was created.
- An unfinished TrainJob that is being deleted in the foreground can get a new JobSet from the real one, which
  doesn't check for a deletion. Here it never does.
"""

from functools import lru_cache

import yaml

from local.jobset.conditions import is_true, put
from local.kubernetes.apiserver.kinds import Object, Refused, clone
from local.kubernetes.apiserver.store import Store, owner, place
from local.kubernetes.controllers.retries import Retries
from local.trainer import template

SNAPSHOT = "-runtime-snapshot"
COUNTS = ("name", "ready", "succeeded", "failed", "active", "suspended")
ENDS = {"Completed": "Complete", "Failed": "Failed"}  # conditions of the JobSet, and of the TrainJob
NOT_FOUND = "TrainingRuntime specified in TrainJob is not found"


class Controller:
    """Call `sync` after each change of a TrainJob or its JobSet."""

    def __init__(self, store: Store) -> None:
        self._store, self._retries = store, Retries(self.sync)

    def close(self) -> None:
        self._retries.close()

    def sync(self, namespace: str, name: str) -> None:
        job = self._store.get("TrainJob", namespace, name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        status = clone(job.get("status", {}))
        if not any(is_true(status, end) for end in ENDS.values()):
            try:
                self._apply(job)
            except Refused as refused:
                why = f"TrainJob resources reconciliation failed: {refused}"
                event = "Warning", "TrainJobResourcesCreationFailed", why
                self._store.record_event(job, *event, "trainjob-controller")
                self._retries.refused(job)
            else:
                self._retries.accepted(job)
        _mark_suspended(job, status)
        self._follow(job, status)
        if status and status != job.get("status"):
            self._store.set_status(job, status)

    def _apply(self, job: Object) -> None:
        """Create the JobSet, or suspend and resume it. Raises Refused."""
        runtime, there = self._runtime(job), self._store.get("JobSet", *place(job)[1:])
        if there is None:
            self._store.create(template.jobset(job, runtime))
        elif (suspend := job["spec"]["suspend"]) != there["spec"].get("suspend", False):
            self._store.patch(*place(there), {"spec": {"suspend": suspend}})

    def _runtime(self, job: Object) -> Object:
        """Return the runtime as the TrainJob found it first. Raises Refused."""
        name, namespace = job["metadata"]["name"] + SNAPSHOT, job["metadata"]["namespace"]
        if found := self._store.get("ConfigMap", namespace, name):
            return clone(_parsed(found["data"]["runtime"]))
        reference = job["spec"]["runtimeRef"]["name"]
        runtime = self._store.get("TrainingRuntime", namespace, reference)
        if runtime is None:
            why = f'TrainingRuntime.trainer.kubeflow.org "{reference}" not found'
            raise Refused(404, f"{NOT_FOUND}: {why}")
        meta = {"name": name, "namespace": namespace, "ownerReferences": [owner(job)]}
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        self._store.create({**head, "data": {"runtime": yaml.safe_dump(runtime)}})
        return runtime

    def _follow(self, job: Object, status: Object) -> None:
        """Take over the end and the counts of the JobSet; an ended TrainJob keeps them without one."""
        jobset = self._store.get("JobSet", *place(job)[1:])
        if jobset is None:
            return
        for type_, end in ENDS.items():
            if condition := is_true(jobset.get("status", {}), type_):
                put(status, end, "True", condition["reason"], condition["message"])
        counts = jobset.get("status", {}).get("replicatedJobsStatus", [])
        if counts:
            status["jobsStatus"] = [{key: each[key] for key in COUNTS} for each in counts]


@lru_cache(maxsize=64)
def _parsed(runtime: str) -> Object:
    """Each sync of each TrainJob reads the same few."""
    parsed: Object = yaml.load(runtime, yaml.CSafeLoader)
    return parsed


def _mark_suspended(job: Object, status: Object) -> None:
    if job["spec"]["suspend"]:
        put(status, "Suspended", "True", "Suspended", "TrainJob is suspended")
    elif is_true(status, "Suspended"):
        put(status, "Suspended", "False", "Resumed", "TrainJob is resumed")
