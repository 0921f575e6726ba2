"""Kueue's webhooks for jobs: they suspend new ones in a queue, and keep the labels of admitted ones.

The messages are those of `vjob.kb.io` [katib/09-kueue-running-label-high, 09-kueue-running-queue-change];
`vpytorchjob.kb.io` and `vtrainjob.kb.io` have the same code.
"""

from local.kubernetes.apiserver.kinds import Object, refusal
from local.kubernetes.apiserver.store import Store, place
from local.kueue import jobs
from local.kueue.workloads import PRIORITY, QUEUE

DEFAULT = "default"  # a LocalQueue of this name gets every job of its namespace


def reviewed(store: Store, job: Object) -> Object:
    """Return the Job to store. Raises Refused 403."""
    if "uid" not in job["metadata"]:
        return _captured(store, job)
    old = store.get(*place(job)) or job
    for label in () if jobs.is_suspended(job) else (QUEUE, PRIORITY):
        was, now = (each["metadata"].get("labels", {}).get(label, "") for each in (old, job))
        if was != now:
            why = f'metadata.labels[{label}]: Invalid value: "{now}": field is immutable'
            hook = f"v{job['kind'].lower()}.kb.io"
            raise refusal(403, f'admission webhook "{hook}" denied the request: {why}', "Forbidden")
    return job


def _captured(store: Store, job: Object) -> Object:
    """Suspend a new job in a queue; the namespace's default queue applies if it names none.

    A Job of a JobSet belongs to the TrainJob above it. Each TrainJob gets a patch of its runtime, in a queue
    or not.
    """
    if any(each["kind"] == "JobSet" for each in job["metadata"].get("ownerReferences", [])):
        return job
    if job["kind"] == "TrainJob":
        job["spec"]["runtimePatches"] = [*job["spec"].get("runtimePatches", []), jobs.patch({})]
    labels = job["metadata"].setdefault("labels", {})
    if store.get("LocalQueue", job["metadata"]["namespace"], DEFAULT):
        labels.setdefault(QUEUE, DEFAULT)
    return jobs.suspended(job) if QUEUE in labels else job
