"""The Job controller with its time limits, and the loop that runs all controllers.

Each change of a Job or its pods reconciles the Job.
A Job has one pod, or one for each number of an Indexed Job (validation.py refuses others), and a suspended
one has none [katib/08-B-jobs].
With a podFailurePolicy, a pod being deleted is not counted or replaced before it has failed (isPodFailed in
kubernetes' pkg/controller/job).
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from local.kubernetes.apiserver.kinds import KINDS, Object, Refused, clone, timestamp
from local.kubernetes.apiserver.store import Store, owner, place
from local.kubernetes.controllers import garbage, indexed_jobs
from local.kubernetes.controllers.loop import ControllerLoop
from local.kubernetes.controllers.stateful_sets import StatefulSets

TRACKING = "batch.kubernetes.io/job-tracking"
LONGEST_BACKOFF = 600.0
BACKOFF_LIMIT = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
FINAL = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}


class Controllers(ControllerLoop):
    """Jobs, garbage collection, and TTL. `backoff`: seconds until a failed pod is replaced, then doubled."""

    def __init__(self, store: Store, backoff: float = 10.0) -> None:
        self._store = store
        self._backoff = backoff
        self._failed_at: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stateful_sets = StatefulSets(store)

    async def close(self) -> None:
        """Stop. Raises the error that stopped the controllers, if any."""
        for timer in self._timers.values():
            timer.cancel()
        self._stateful_sets.close()
        await super().close()

    async def _run(self) -> None:
        async for type_, changed in self._store.subscribe(*KINDS):
            obj = changed if type_ == "DELETED" else self._store.find(*place(changed))
            if obj is None:
                continue  # deleted in between; its DELETED follows
            garbage.collect(self._store, type_, obj)
            namespace = obj["metadata"].get("namespace", "")
            self._stateful_sets.changed(obj)
            if obj["kind"] == "Job":
                self._sync(namespace, obj["metadata"]["name"])
            if obj["kind"] == "Pod" and type_ != "DELETED":
                self._forget_if_orphan(place(obj))
            for reference in obj["metadata"].get("ownerReferences", []):
                if reference["kind"] == "Job":
                    self._sync(namespace, reference["name"])

    def _sync(self, namespace: str, name: str) -> None:
        job = self._store.find("Job", namespace, name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        pods = garbage.dependents(self._store, job, ["Pod"])
        if end := _condition(job["status"], "Complete") or _condition(job["status"], "Failed"):
            self._expire(job, end)
        elif job["spec"]["suspend"]:
            self._suspend(job, pods)
        else:
            self._work(job, pods)

    def _suspend(self, job: Object, pods: Sequence[Object]) -> None:
        """Delete the pods of a suspended Job. Without the finalizer, their ends aren't counted."""
        live = [pod for pod in pods if not _verdict(job, pod) and "deletionTimestamp" not in pod["metadata"]]
        for pod in live:
            garbage.without_finalizer(self._store, pod, TRACKING)
            self._store.delete(*place(pod))
            self._record_event(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        status = {key: value for key, value in job["status"].items() if key != "startTime"}
        if not _condition(status, "Suspended"):
            _flip(status, "True", "JobSuspended", "Job suspended")
            self._record_event(job, "Suspended", "Job suspended")
        self._write(job, status, [pod for pod in pods if _is_terminating(pod)])

    def _work(self, job: Object, pods: Sequence[Object]) -> None:
        status = clone(job["status"])
        status.setdefault("startTime", timestamp())
        if _condition(status, "Suspended"):
            _flip(status, "False", "JobResumed", "Job resumed")
            self._record_event(job, "Resumed", "Job resumed")
        active = [pod for pod in pods if not _verdict(job, pod)]
        for pod in [pod for pod in pods if _verdict(job, pod) and _is_tracked(pod)]:
            verdict = _verdict(job, pod)
            if verdict == "succeeded" or not _is_ignored(job, pod):
                status[verdict] = status.get(verdict, 0) + 1
            if verdict == "succeeded" and indexed_jobs.is_indexed(job):
                indexed_jobs.with_succeeded(status, pod)
            why = _failing_rule(job, pod) if verdict == "failed" else ""
            if why and not _condition(status, "FailureTarget"):
                _set(status, "FailureTarget", ("PodFailurePolicy", why))
            if verdict == "failed":
                self._failed_at[job["metadata"]["uid"]] = _clock()
            garbage.without_finalizer(self._store, pod, TRACKING)
        self._decide(job, status)
        if status.get("conditions") != job["status"].get("conditions"):
            self._write(job, status, pods)  # FailureTarget and SuccessCriteriaMet precede the end
        self._proceed(job, status, pods, active)

    def _proceed(self, job: Object, status: Object, pods: Sequence[Object], active: list[Object]) -> None:
        target = next((name for name in FINAL if _condition(status, name)), None)
        if target is None:
            active += self._create_pods(job, active, status)
        elif target and not active and not any(map(_is_terminating, pods)):
            self._finish(job, status, target)
        for pod in [pod for pod in active if target and "deletionTimestamp" not in pod["metadata"]]:
            self._store.delete(*place(pod))
            self._record_event(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        rest = [pod for pod in pods if _is_terminating(pod) and pod not in active]
        self._write(job, status, [*active, *rest])

    def _decide(self, job: Object, status: Object) -> None:
        spec = job["spec"]
        if any(_condition(status, name) for name in FINAL):
            return
        if status.get("succeeded", 0) == spec["completions"]:
            _set(status, "SuccessCriteriaMet", REACHED)
        elif status.get("failed", 0) > spec["backoffLimit"]:
            _set(status, "FailureTarget", BACKOFF_LIMIT)
        elif policy := indexed_jobs.matched_policy(job, status):
            _set(status, "SuccessCriteriaMet", policy)
        elif "activeDeadlineSeconds" in spec:
            left = spec["activeDeadlineSeconds"] - _age(status["startTime"])
            if left <= 0:
                _set(status, "FailureTarget", DEADLINE)
            else:
                self._again(job, left, "deadline")

    def _finish(self, job: Object, status: Object, target: str) -> None:
        condition = _condition(status, target)
        reason, message = condition["reason"], condition["message"]
        _set(status, FINAL[target], (reason, message))
        if target == "FailureTarget":
            self._record_event(job, reason, message, "Warning")
        else:
            status["completionTime"] = timestamp()
            self._record_event(job, "Completed", "Job completed")

    def _create_pods(self, job: Object, active: Sequence[Object], status: Object) -> list[Object]:
        """Create the Job's missing pods; none during backoff, or from one that is rejected on."""
        uid, pods = job["metadata"]["uid"], _missing(job, active, status)
        if not pods:
            return []
        if uid in self._failed_at:
            pause = min(self._backoff * 2 ** (status.get("failed", 1) - 1), LONGEST_BACKOFF)
            if (wait := self._failed_at[uid] + pause - _clock()) > 0:
                self._again(job, wait, "retry")
                return []
        made = []
        for each in pods:
            try:
                made.append(self._store.create(each))
            except Refused as refused:
                self._record_event(job, "FailedCreate", f"Error creating: {refused}", "Warning")
                self._refusals[uid] = self._refusals.get(uid, -1) + 1
                self._again(job, min(2.0 ** self._refusals[uid], LONGEST_BACKOFF), "refused")
                break
            self._record_event(job, "SuccessfulCreate", f"Created pod: {made[-1]['metadata']['name']}")
        return made

    def _expire(self, job: Object, end: Object) -> None:
        if "ttlSecondsAfterFinished" not in job["spec"]:
            return
        left = job["spec"]["ttlSecondsAfterFinished"] - _age(end["lastTransitionTime"])
        if left <= 0:
            self._store.delete(*place(job), propagation="Foreground")
        else:
            self._again(job, left, "ttl")

    def _forget_if_orphan(self, pod: tuple[str, str, str]) -> None:
        """Remove the finalizer of a pod whose Job is deleted or being deleted."""
        current = self._store.find(*pod)
        if current and _is_tracked(current):
            owners = garbage.owners(self._store, current)
            if not any("deletionTimestamp" not in owner["metadata"] for owner in owners):
                garbage.without_finalizer(self._store, current, TRACKING)

    def _write(self, job: Object, status: Object, pods: Sequence[Object]) -> None:
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and not _verdict(job, pod)]
        active, terminating = len(live), sum(map(_is_terminating, pods))
        status = {**status, "active": active, "terminating": terminating}
        kept = {key: value for key, value in status.items() if value or key not in ("active", "conditions")}
        self._store.set_status(job, kept)

    def _record_event(self, job: Object, reason: str, message: str, type_: str = "Normal") -> None:
        self._store.record_event(job, type_, reason, message, "job-controller")

    def _again(self, job: Object, seconds: float, why: str) -> None:
        key = f"{job['metadata']['uid']} {why}"
        if key in self._timers:
            self._timers[key].cancel()
        _, namespace, name = place(job)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._sync, namespace, name)


def _missing(job: Object, active: Sequence[Object], status: Object) -> list[Object]:
    """Return the pods to create."""
    if not indexed_jobs.is_indexed(job):
        return [] if active else [_pod(job)]
    numbers = indexed_jobs.missing(job, active, status)
    return [indexed_jobs.numbered(_pod(job), job, number) for number in numbers]


def _pod(job: Object) -> Object:
    meta = {
        **job["spec"]["template"]["metadata"],
        "generateName": f"{job['metadata']['name']}-",
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner(job)],
        "finalizers": [TRACKING],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": job["spec"]["template"]["spec"]}


def _verdict(job: Object, pod: Object) -> str:
    """Return the final state; a pod that is deleted before its end has failed; "" if it hasn't ended."""
    phase = pod["status"].get("phase")
    if phase in ("Succeeded", "Failed"):
        return str(phase).lower()
    # Kubernetes' pod garbage collector fails pods without a node.
    waits = "podFailurePolicy" in job["spec"] and "nodeName" in pod["spec"]
    return "failed" if "deletionTimestamp" in pod["metadata"] and not waits else ""


def _is_ignored(job: Object, pod: Object) -> bool:
    return any(rule["action"] == "Ignore" for _, rule, _ in _matching_rules(job, pod))


def _failing_rule(job: Object, pod: Object) -> str:
    """Return the message of a rule that fails the Job; "" if none matches."""
    for number, rule, type_ in _matching_rules(job, pod):
        if rule["action"] == "FailJob":
            _, namespace, name = place(pod)
            return f"Pod {namespace}/{name} has condition {type_} matching FailJob rule at index {number}"
    return ""


def _matching_rules(job: Object, pod: Object) -> Iterator[tuple[int, Object, str]]:
    """Yield number, rule, and condition of the first rule that matches (matchPodFailurePolicy)."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
    conditions = [(c["type"], c["status"]) for c in pod["status"].get("conditions", [])]
    for number, rule in enumerate(rules):
        for each in rule["onPodConditions"]:
            if (each["type"], each["status"]) in conditions:
                yield number, rule, each["type"]
                return


def _is_tracked(pod: Object) -> bool:
    return TRACKING in pod["metadata"].get("finalizers", [])


def _is_terminating(pod: Object) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return "deletionTimestamp" in pod["metadata"] and bool(pod["spec"].get("nodeName")) and not ended


def _condition(status: Object, type_: str) -> Object:
    """Return the condition if it is True, else None."""
    wanted = {"type": type_, "status": "True"}.items()
    return next((c for c in status.get("conditions", []) if wanted <= c.items()), {})


def _set(status: Object, type_: str, why: tuple[str, str]) -> None:
    times = {"lastProbeTime": timestamp(), "lastTransitionTime": timestamp()}
    condition = {"type": type_, "status": "True", **times, "reason": why[0], "message": why[1]}
    status["conditions"] = [*status.get("conditions", []), condition]


def _flip(status: Object, state: str, reason: str, message: str) -> None:
    """Set the condition Suspended, which changes between True and False."""
    rest = [c for c in status.get("conditions", []) if c["type"] != "Suspended"]
    times = {"lastProbeTime": timestamp(), "lastTransitionTime": timestamp()}
    condition = {"type": "Suspended", "status": state, **times, "reason": reason, "message": message}
    status["conditions"] = [condition, *rest]


def _age(since: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()


def _clock() -> float:
    return asyncio.get_running_loop().time()
