"""Read the status of Jobs of builds, and of trials (k8s.trial_kinds): times, why one failed, and whether the
cluster did it, such as by a drained node or an early resume.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.objects import Manifest, conditions, parse_time, true_conditions
from k8s.trial_kinds import JOB, TRAIN_JOB, is_suspended

# The number is a worker's, in its pod's name: kubernetes, pkg/controller/job/pod_failure_policy.go.
DISRUPTED = re.compile(
    r"^Pod \S{1,500}-(\d{1,5})-[a-z0-9]{1,10} has condition DisruptionTarget matching FailJob"
)
RESUMED = "PyTorchJobResumed"
RESUME_MARGIN = timedelta(seconds=10)  # the operator fails the PyTorchJob when it sees the resume


class JobState(StrEnum):
    ACTIVE = "active"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Job:
    kind: str = JOB.kind
    name: str
    uid: str
    state: JobState
    ended: datetime | None = None
    seconds: float | None = None  # from start to completion; None unless complete
    message: str = ""
    disruption: str = ""  # how the cluster, not the training, fails it; a clause
    deleted: bool = False
    suspended: bool = False
    kueue_labels: Mapping[str, str] = field(default_factory=dict)  # queue and priority class

    @property
    def queue(self) -> str:
        """Kueue's LocalQueue; "" if it is in none."""
        return self.kueue_labels.get(QUEUE_LABEL, "")


def read_job(obj: Manifest) -> Job:
    """Read a Job. FailureTarget and SuccessCriteriaMet don't end it: its pods still run then."""
    meta, true_now = obj["metadata"], true_conditions(obj)
    labels = meta.get("labels", {})
    complete = true_now.get("Complete") or true_now.get("Succeeded")  # the latter of PyTorchJobs
    failed = true_now.get("Failed") if not complete else None
    began, ended = _times(obj, complete) if complete else (None, None)
    if failed:  # failed Jobs have no completionTime
        ended = parse_time(failed.get("lastTransitionTime"))
    return Job(
        kind=obj.get("kind", JOB.kind),
        name=meta["name"],
        uid=meta.get("uid", ""),
        state=JobState.COMPLETE if complete else JobState.FAILED if failed else JobState.ACTIVE,
        ended=ended,
        seconds=(ended - began).total_seconds() if began and ended else None,
        message=f"{failed.get('reason', '')}: {failed.get('message', '')}" if failed else "",
        disruption="" if complete else _disruption(obj, failed or true_now.get("FailureTarget") or {}),
        deleted="deletionTimestamp" in meta,
        suspended=is_suspended(obj),
        kueue_labels={key: labels[key] for key in (QUEUE_LABEL, PRIORITY_LABEL) if key in labels},
    )


def _disruption(obj: Manifest, failed: Manifest) -> str:
    """Return how the cluster fails a Job of several pods, if the Job's conditions show it."""
    found = (
        DISRUPTED.search(failed.get("message", "")) if failed.get("reason") == "PodFailurePolicy" else None
    )
    if found:
        return f"the cluster stopped worker {int(found[1]) + 1}, as when its node is drained"
    return "its earlier pods were still terminating" if resumed_early(obj) else ""


def resumed_early(obj: Manifest) -> bool:
    """Return whether a preempted PyTorchJob was resumed while its earlier pods were terminating.

    The Training Operator counts those as failed: kubeflow/trainer v1.9.3, pkg/core/status.go.
    """
    found = conditions(obj)
    failed, suspended = found.get("Failed", {}), found.get("Suspended", {})
    resumed_at = parse_time(suspended.get("lastTransitionTime"))
    failed_at = parse_time(failed.get("lastTransitionTime"))
    if suspended.get("reason") != RESUMED or not resumed_at or not failed_at:
        return False
    return failed_at - resumed_at <= RESUME_MARGIN


def _times(obj: Manifest, complete: Manifest) -> tuple[datetime | None, datetime | None]:
    """Return when a completed Job started and ended; a TrainJob has only the times of its conditions."""
    if obj.get("kind") != TRAIN_JOB.kind:
        return parse_time(obj["status"].get("startTime")), parse_time(obj["status"].get("completionTime"))
    created = obj["metadata"].get("creationTimestamp")
    began = conditions(obj).get("Suspended", {}).get("lastTransitionTime", created)
    return parse_time(began), parse_time(complete.get("lastTransitionTime"))
