"""Kueue's webhook for Jobs: it suspends new ones in a queue, and keeps the labels of admitted ones.

The messages are those of `vjob.kb.io` [katib/09-kueue-running-label-high, 09-kueue-running-queue-change].
"""

from local.kubernetes.kinds import Object, refusal
from local.kubernetes.store import Store
from local.kueue.workloads import PRIORITY, QUEUE

DEFAULT = "default"  # a LocalQueue of this name gets every Job of its namespace


def reviewed(store: Store, job: Object) -> Object:
    """Return the Job to store. Raises Refused 403."""
    if "uid" not in job["metadata"]:
        return _captured(store, job)
    old = store.get("Job", job["metadata"]["namespace"], job["metadata"]["name"]) or job
    for label in () if job["spec"].get("suspend") else (QUEUE, PRIORITY):
        was, now = (each["metadata"].get("labels", {}).get(label, "") for each in (old, job))
        if was != now:
            why = f'metadata.labels[{label}]: Invalid value: "{now}": field is immutable'
            raise refusal(403, f'admission webhook "vjob.kb.io" denied the request: {why}', "Forbidden")
    return job


def _captured(store: Store, job: Object) -> Object:
    """Suspend a new Job in a queue; the namespace's default queue applies if it names none."""
    labels = job["metadata"].setdefault("labels", {})
    if store.get("LocalQueue", job["metadata"]["namespace"], DEFAULT):
        labels.setdefault(QUEUE, DEFAULT)
    return job | {"spec": job["spec"] | {"suspend": True}} if QUEUE in labels else job
