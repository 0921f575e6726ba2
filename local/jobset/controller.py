"""The controller of JobSets.

As in JobSet v0.12.0, pkg/controllers/jobset_controller.go, failure_policy.go, and success_policy.go. What a
user should know of it:

- Without a failure policy, the first failed Job fails the JobSet. The failed Job and its pods stay, and
  active Jobs are deleted with their pods.
- A suspended JobSet has suspended Jobs and its Service.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from local.jobset import jobs
from local.jobset.conditions import is_true, put
from local.kubernetes.apiserver.kinds import Object, Refused, clone
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers import garbage
from local.kubernetes.controllers.retries import Retries

COMPONENT = "jobset-controller"
COMPLETED = ("Completed", "True", "AllJobsCompleted", "jobset completed successfully")
SUSPENDED = ("Suspended", "True", "SuspendedJobs", "jobset is suspended")
RESUMED = ("Suspended", "False", "ResumeJobs", "jobset is resumed")


class Controller:
    """Call `sync` after each change of a JobSet, its Jobs and their pods, or its Service."""

    def __init__(self, store: Store) -> None:
        self._store, self._retries = store, Retries(self.sync)

    def close(self) -> None:
        self._retries.close()

    def sync(self, namespace: str, name: str) -> None:
        jobset = self._store.get("JobSet", namespace, name)
        if jobset is None or "deletionTimestamp" in jobset["metadata"]:
            return
        owned, status = garbage.dependents(self._store, jobset, ["Job"]), clone(jobset.get("status", {}))
        status.setdefault("restarts", 0)
        status["replicatedJobsStatus"] = [self._counts(jobset, owned)]
        try:
            if end := is_true(status, "Completed") or is_true(status, "Failed"):
                self._clean(jobset, owned, end)
            else:
                self._reconcile(jobset, status, owned)
        except Refused as refused:
            self._event(jobset, "JobCreationFailed", str(refused), "Warning")
            self._retries.refused(jobset)
            return
        self._retries.accepted(jobset)
        if self._store.get(*place(jobset)) and status != jobset.get("status"):
            self._store.set_status(jobset, status)

    def _reconcile(self, jobset: Object, status: Object, owned: Sequence[Object]) -> None:
        if failed := [job for job in owned if is_true(job["status"], "Failed")]:
            why = f"jobset failed due to one or more job failures (first failed job: {_name(failed[0])})"
            self._mark(jobset, status, ("Failed", "True", "FailedJobs", why), "Warning")
            status["terminalState"] = "Failed"
            return
        if any(is_true(job["status"], "Complete") for job in owned):
            self._mark(jobset, status, COMPLETED)
            status["terminalState"] = "Completed"
            return
        if not self._store.get("Service", *place(jobset)[1:]):
            self._store.create(jobs.service(jobset))
        if not owned:
            [replicated] = jobset["spec"]["replicatedJobs"]
            self._store.create(jobs.job(jobset, replicated))
        suspend = jobset["spec"].get("suspend", False)
        for job in owned:
            if job["spec"]["suspend"] != suspend:
                self._store.patch(*place(job), {"spec": {"suspend": suspend}})
        self._mark(jobset, status, SUSPENDED if suspend else RESUMED)

    def _clean(self, jobset: Object, owned: Sequence[Object], end: Object) -> None:
        for job in owned:
            if not is_true(job["status"], "Complete") and not is_true(job["status"], "Failed"):
                self._store.delete(*place(job), propagation="Foreground")
        if (seconds := jobset["spec"].get("ttlSecondsAfterFinished")) is None:
            return
        age = datetime.now(UTC) - datetime.fromisoformat(end["lastTransitionTime"])
        if (left := seconds - age.total_seconds()) > 0:
            self._retries.later(jobset, left)
        else:
            self._store.delete(*place(jobset), propagation="Foreground")

    def _counts(self, jobset: Object, owned: Sequence[Object]) -> Object:
        """Return the numbers of Jobs, not of pods: a Job is ready once all its pods run or have succeeded."""
        [replicated] = jobset["spec"]["replicatedJobs"]
        ends = {end: [job for job in owned if is_true(job["status"], end)] for end in ("Complete", "Failed")}
        rest = [job for job in owned if job not in ends["Complete"] + ends["Failed"]]
        return {
            "name": replicated["name"],
            "ready": sum(map(self._is_ready, rest)),
            "succeeded": len(ends["Complete"]),
            "failed": len(ends["Failed"]),
            "active": sum(job["status"].get("active", 0) > 0 for job in rest),
            "suspended": sum(job["spec"]["suspend"] for job in rest),
        }

    def _is_ready(self, job: Object) -> bool:
        pods = garbage.dependents(self._store, job, ["Pod"])
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(pod["status"].get("phase") == "Running" for pod in alive)
        return bool(job["status"].get("succeeded", 0) + ready >= job["spec"]["completions"])

    def _mark(
        self, jobset: Object, status: Object, to: tuple[str, str, str, str], event: str = "Normal"
    ) -> None:
        """Set the condition, with an event; a new one that is False isn't added."""
        type_, state, reason, message = to
        known = type_ in [each["type"] for each in status.get("conditions", [])]
        if (known or state == "True") and put(status, *to):
            self._event(jobset, reason, message, event)

    def _event(self, jobset: Object, reason: str, message: str, type_: str = "Normal") -> None:
        self._store.record_event(jobset, type_, reason, message, COMPONENT)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
