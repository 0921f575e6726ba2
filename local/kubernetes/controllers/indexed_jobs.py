"""Indexed Jobs: the number, name, and hostname of each pod, and the success policy.

As in kubernetes' pkg/controller/job/indexed_job_utils.go and success_policy.go, release 1.33.
"""

from collections.abc import Sequence

from local.kubernetes.apiserver.kinds import Object, clone

INDEX = "batch.kubernetes.io/job-completion-index"  # a label since 1.28, and an annotation
VARIABLE = "JOB_COMPLETION_INDEX"
MAX_INDEXES = 64  # of one Job here; a real one can have 100,000


def is_indexed(job: Object) -> bool:
    return bool(job["spec"]["completionMode"] == "Indexed")


def missing(job: Object, active: Sequence[Object], status: Object) -> list[int]:
    """Return the numbers that need a pod, the lowest first."""
    there = {index(pod) for pod in active} | succeeded(status)
    return [each for each in range(job["spec"]["completions"]) if each not in there]


def index(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def succeeded(status: Object) -> set[int]:
    """Return the numbers of `completedIndexes`, such as `0,2`."""
    text = status.get("completedIndexes", "")
    return {int(each) for each in text.split(",") if each}


def with_succeeded(status: Object, pod: Object) -> None:
    found = sorted(succeeded(status) | {index(pod)})
    status["completedIndexes"] = ",".join(map(str, found))


def matched_policy(job: Object, status: Object) -> tuple[str, str] | None:
    """Return reason and message of the first rule that is met."""
    for number, rule in enumerate(job["spec"].get("successPolicy", {}).get("rules", [])):
        if {int(each) for each in rule["succeededIndexes"].split(",")} <= succeeded(status):
            return "SuccessPolicy", f"Matched rules at index {number}"
    return None


def numbered(pod: Object, job: Object, number: int) -> Object:
    """Return the pod with its number, which containers get as a variable, and its hostname."""
    new = clone(pod)
    name, meta, spec = job["metadata"]["name"], new["metadata"], new["spec"]
    for key in ("labels", "annotations"):
        meta[key] = meta.get(key, {}) | {INDEX: str(number)}
    meta["generateName"] = f"{name}-{number}-"
    spec["hostname"] = f"{name}-{number}"
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        container.setdefault("env", []).append({"name": VARIABLE, "valueFrom": source})
    return new
