"""The status of a PyTorchJob: counts of its replicas, and conditions.

As in kubeflow/trainer v1.9.3, pkg/util/status.go and pkg/core/status.go.
"""

from collections.abc import Iterable

from local.kubernetes.apiserver.kinds import Object, timestamp

FINISHED = ("Succeeded", "Failed")
ENDS = {"Succeeded": "succeeded", "Failed": "failed"}


def is_true(status: Object, *types: str) -> bool:
    found = status.get("conditions", [])
    return any(each["type"] in types and each["status"] == "True" for each in found)


def mark(status: Object, type_: str, message: str, *, reason: str = "", state: str = "True") -> None:
    """Append the condition; Succeeded and Failed end Running, and a failed job's conditions stay."""
    reason = f"PyTorchJob{reason or type_}"
    conditions = status.get("conditions", [])
    old: Object = next((each for each in conditions if each["type"] == type_), {})
    if is_true(status, "Failed") or (old.get("status"), old.get("reason")) == (state, reason):
        return
    now = timestamp()
    since = old["lastTransitionTime"] if old.get("status") == state else now
    times = {"lastUpdateTime": now, "lastTransitionTime": since}
    rest = [each for each in conditions if each["type"] != type_]
    if type_ in FINISHED:
        rest = [each | {"status": "False"} if each["type"] == "Running" else each for each in rest]
    new = {"type": type_, "status": state, **times, "reason": reason, "message": message}
    status["conditions"] = [*rest, new]


def counted(pods: Iterable[Object]) -> dict[str, int]:
    """Return the numbers of active, succeeded, and failed pods, without zeros.

    A running pod that is being deleted counts as failed.
    """
    found: dict[str, int] = {}
    for pod in pods:
        phase = pod["status"].get("phase")
        if phase == "Running":
            key = "failed" if "deletionTimestamp" in pod["metadata"] else "active"
            found[key] = found.get(key, 0) + 1
        elif phase in ENDS:
            found[ENDS[phase]] = found.get(ENDS[phase], 0) + 1
    return found


def is_active(pod: Object) -> bool:
    return pod["status"].get("phase") not in ENDS and "deletionTimestamp" not in pod["metadata"]


def end_active(status: Object) -> None:
    """Count what was still active when the job succeeded as succeeded."""
    for counts in status.get("replicaStatuses", {}).values():
        if active := counts.pop("active", 0):
            counts["succeeded"] = counts.get("succeeded", 0) + active
