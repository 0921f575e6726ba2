"""The controller of PyTorchJobs.

As in kubeflow/trainer v1.9.3: pkg/controller.v1/common/job.go and pod.go, and
pkg/controller.v1/pytorch/pytorchjob_controller.go. What a user should know of it:

- Past its backoffLimit, a job loses all pods, the failed ones too, whatever its cleanPodPolicy.
  Without a backoffLimit, a failed replica that never restarts fails the job as well, and its pod stays.
- After a failure, cleanPodPolicy None (the default) leaves the other pods running.
- A deadline is only looked at when something changes: its timer does nothing.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from local.kubernetes.apiserver.kinds import Object, Refused, clone, timestamp
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers import garbage
from local.kubernetes.controllers.retries import Retries
from local.training_operator import replicas
from local.training_operator.status import FINISHED, counted, end_active, is_active, is_true, mark


class Controller:
    """Call `sync` after each change of a PyTorchJob, its pods, or its Services."""

    def __init__(self, store: Store) -> None:
        self._store, self._retries = store, Retries(self.sync)

    def close(self) -> None:
        self._retries.close()

    def sync(self, namespace: str, name: str) -> None:
        job = self._store.get("PyTorchJob", namespace, name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        pods, status = garbage.dependents(self._store, job, ["Pod"]), clone(job.get("status", {}))
        mark(status, "Created", f"PyTorchJob {name} is created.")
        try:
            if is_true(status, *FINISHED):
                self._finished(job, status, pods)
            elif job["spec"].get("runPolicy", {}).get("suspend"):
                self._suspended(job, status, pods)
            else:
                self._running(job, status, pods)
        except Refused:
            self._retries.refused(job)
            return
        self._retries.accepted(job)
        if self._store.get(*place(job)) and status != job.get("status"):
            self._store.set_status(job, status)

    def _finished(self, job: Object, status: Object, pods: Sequence[Object]) -> None:
        policy = job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "None")
        unended = [pod for pod in pods if pod["status"].get("phase") in ("Running", "Pending")]
        self._delete(job, {"None": [], "Running": unended}.get(policy, pods))
        if is_true(status, "Succeeded"):
            end_active(status)
        ttl = job["spec"].get("runPolicy", {}).get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        if (left := ttl - _age(status["completionTime"])) > 0:
            self._retries.later(job, left)
        else:
            self._store.delete(*place(job))
            self._event(job, "SuccessfulDeletePod", f"Deleted job: {job['metadata']['name']}")

    def _suspended(self, job: Object, status: Object, pods: Sequence[Object]) -> None:
        self._delete(job, pods)
        for counts in status.get("replicaStatuses", {}).values():
            counts.pop("active", None)
        message = f"PyTorchJob {job['metadata']['name']} is suspended."
        if is_true(status, "Running"):
            mark(status, "Running", message, reason="Suspended", state="False")
        mark(status, "Suspended", message)
        self._event(job, "PyTorchJobSuspended", message)

    def _running(self, job: Object, status: Object, pods: Sequence[Object]) -> None:
        if is_true(status, "Suspended"):
            message = f"PyTorchJob {job['metadata']['name']} is resumed."
            mark(status, "Suspended", message, reason="Resumed", state="False")
            status["startTime"] = timestamp()
            self._event(job, "PyTorchJobResumed", message)
        if why := _limit(job, status, pods):
            status.setdefault("completionTime", timestamp())
            self._delete(job, pods)
            self._event(job, "PyTorchJobFailed", why)
            mark(status, "Failed", why)
            return
        for type_, count in replicas.counts(job).items():
            mine = _of(pods, job, type_)
            self._create(job, type_, count, "Pod", mine, replicas.pod)
            services = garbage.dependents(self._store, job, ["Service"])
            self._create(job, type_, count, "Service", _of(services, job, type_), replicas.service)
            selector = ",".join(
                f"{key}={value}" for key, value in sorted(replicas.labels(job, type_).items())
            )
            status.setdefault("replicaStatuses", {})[type_] = {**counted(mine), "selector": selector}
        status.setdefault("startTime", timestamp())
        self._conclude(job, status)

    def _create(
        self,
        job: Object,
        type_: str,
        count: int,
        kind: str,
        there: Sequence[Object],
        made: Callable[[Object, str, int], Object],
    ) -> None:
        """Create what is missing of a replica type. Raises Refused, from the first that is rejected on."""
        known = {replicas.index_of(each) for each in there}
        for index in (each for each in range(count) if each not in known):
            try:
                created = self._store.create(made(job, type_, index))
            except Refused as refused:
                self._event(job, f"FailedCreate{kind}", f"Error creating: {refused}", "Warning")
                raise
            text = f"Created {kind.lower()}: {created['metadata']['name']}"
            self._event(job, f"SuccessfulCreate{kind}", text)

    def _conclude(self, job: Object, status: Object) -> None:
        """Set the conditions. The master's success ends the job, whatever the workers do."""
        name, wanted = job["metadata"]["name"], replicas.counts(job)
        for type_, counts in status["replicaStatuses"].items():
            active, succeeded, failed = (counts.get(key, 0) for key in ("active", "succeeded", "failed"))
            if type_ == "Master" and active:
                mark(status, "Running", f"PyTorchJob {name} is running.")
            if type_ == "Master" and succeeded == wanted[type_]:
                self._end(job, status, "Succeeded", f"PyTorchJob {name} is successfully completed.")
                return
            if failed and wanted[type_] > succeeded + active:
                why = f"PyTorchJob {name} is failed because {failed} {type_} replica(s) failed."
                self._end(job, status, "Failed", why)

    def _end(self, job: Object, status: Object, type_: str, message: str) -> None:
        self._event(job, f"PyTorchJob{type_}", message)
        status.setdefault("completionTime", timestamp())
        mark(status, type_, message)

    def _delete(self, job: Object, pods: Sequence[Object]) -> None:
        """Delete these pods, and the Services of their names."""
        for pod in pods:
            _, namespace, name = place(pod)
            if "deletionTimestamp" not in pod["metadata"]:
                self._store.delete("Pod", namespace, name)
                self._event(job, "SuccessfulDeletePod", f"Deleted pod: {name}")
            if self._store.get("Service", namespace, name):
                self._store.delete("Service", namespace, name)
                self._event(job, "SuccessfulDeleteService", f"Deleted service: {name}")

    def _event(self, job: Object, reason: str, message: str, type_: str = "Normal") -> None:
        self._store.record_event(job, type_, reason, message, replicas.OPERATOR)


def _limit(job: Object, status: Object, pods: Sequence[Object]) -> str:
    """Return why the job is over a limit of its policy; "" if it isn't.

    The real operator counts no retries, so a backoffLimit above 0 is never reached without restarts.
    """
    policy, text = job["spec"].get("runPolicy", {}), f"Job {job['metadata']['name']} has failed because it"
    before = sum(counts.get("failed", 0) for counts in status.get("replicaStatuses", {}).values())
    failed = sum(pod["status"].get("phase") == "Failed" for pod in pods)
    total, active = sum(replicas.counts(job).values()), sum(map(is_active, pods))
    if policy.get("backoffLimit") == 0 and failed > before and active != total:
        return f"{text} has reached the specified backoff limit"
    longest = policy.get("activeDeadlineSeconds")
    if longest is not None and "startTime" in status and _age(status["startTime"]) >= longest:
        return f"{text} was active longer than specified deadline"
    return ""


def _of(found: Sequence[Object], job: Object, type_: str) -> list[Object]:
    wanted = replicas.labels(job, type_).items()
    return [each for each in found if wanted <= each["metadata"].get("labels", {}).items()]


def _age(since: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
