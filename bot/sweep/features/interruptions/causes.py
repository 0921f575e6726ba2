"""Explain why the cluster stopped a running trial: preempted or evicted by Kueue, the scheduler, or the
kubelet (of its own use of RAM or disk: rule R15); a drained or lost node. Pure.

None of these is a failure: Kueue admits the Job again, the Job replaces the pod (its podFailurePolicy
ignores the condition DisruptionTarget), or the trial starts again (`decide`), such as with
all of its workers.
"""

import re
from datetime import datetime

from bot.platform.pod_health.evidence import OVER_DISK
from bot.sweep.features.interruptions.state import Interruption
from k8s.jobs import Job
from k8s.kueue import Workload
from k8s.pods import Pod

BY_KUBELET = "TerminationByKubelet"
# Reasons of DisruptionTarget: https://kubernetes.io/docs/concepts/workloads/pods/disruptions
BY_NODE = {
    "PreemptionByScheduler": "the scheduler preempted {it} for a pod with a higher priority",
    "EvictionByEvictionAPI": "{it} was evicted, as when a node is drained",
    "DeletionByTaintManager": "{its} node became unavailable",
    "DeletionByPodGC": "{its} node was removed",
    BY_KUBELET: "the kubelet terminated {it}",
}
BY_KUEUE = {
    "Deactivated": "its Workload was deactivated",
    "PodsReadyTimeout": "its pod wasn't ready in time",
    "AdmissionCheck": "an admission check withdrew its approval",
    "ClusterQueueStopped": "its ClusterQueue was stopped",
    "LocalQueueStopped": "its LocalQueue was stopped",
    "NodeFailures": "its node failed",
}
CAUSE = re.compile(r"due to ([^;]{1,100})(?:;|$)")  # Kueue 0.15 adds the paths of both queues


def queue_interruption(trial: str, workload: Workload | None, by: Workload | None) -> Interruption:
    """Explain why a Job that ran is suspended again. `by`: what preempted it, if known."""
    reason, message = workload.eviction if workload else ("", "")
    if reason != "Preempted":
        why = BY_KUEUE.get(reason) or (f"Kueue evicted it ({reason})" if reason else "its Job was suspended")
        return Interruption(trial=trial, why=why, queued=True)
    cause = CAUSE.search(message)
    because = f", due to {cause[1]}" if cause else ""
    return Interruption(trial=trial, why=f"Kueue preempted it for {_name(by)}{because}", queued=True)


def pod_interruption(pod: Pod) -> Interruption:
    return Interruption(trial=pod.job, why=_why(pod, "it", "its"), queued=False)


def worker_interruption(pod: Pod, workers: int, *, queued: bool) -> Interruption:
    """Explain which worker of a trial of several nodes was stopped: all of them start again."""
    which = f"worker {pod.index + 1}"
    why = _why(pod, f"{which} of {workers}", f"{which}'s")
    return Interruption(trial=pod.job, why=why, queued=queued, job_uid=pod.job_uid)


def collector_interruption(pod: Pod, *, queued: bool) -> Interruption:
    """Explain why a trial whose training succeeded starts again: its metrics are lost."""
    return Interruption(
        trial=pod.job, why=f"its training finished, but {pod.unread}", queued=queued, job_uid=pod.job_uid
    )


def job_interruption(job: Job) -> Interruption:
    """Explain a failed Job of several pods, if those that show the cause are gone."""
    return Interruption(trial=job.name, why=job.disruption, queued=bool(job.queue), job_uid=job.uid)


def is_disrupted(pod: Pod) -> bool:
    return bool(pod.disruption[0]) and (pod.deleted or pod.finished)


def is_late(pod: Pod, ended: datetime | None) -> bool:
    """Return whether a pod was disrupted after its Job had ended: a drain marks ended pods, too.

    The kubelet doesn't, and its clock can differ. Kubernetes: pkg/registry/core/pod/storage/eviction.go.
    """
    if pod.disruption[0] == BY_KUBELET or not (pod.disrupted_at and ended):
        return False
    return pod.disrupted_at > ended


def has_succeeded(pod: Pod) -> bool:
    """Return whether this pod is the first worker of its trial, and its training has succeeded."""
    return pod.index == 0 and pod.exit is not None and not pod.exit[0]


def is_over_disk(pod: Pod) -> bool:
    """Return whether the kubelet stopped a pod because it used more disk than its limit."""
    return re.search(OVER_DISK, f"{pod.failure[1]} {pod.disruption[1]}") is not None


def _why(pod: Pod, it: str, its: str) -> str:
    reason, message = pod.disruption
    if reason not in BY_NODE:
        return f"{its} pod was disrupted ({reason})"
    detail = f": {message[:200]}" if reason == BY_KUBELET and message else ""
    return f"{BY_NODE[reason].format(it=it, its=its)}{detail}"


def _name(by: Workload | None) -> str:
    if by is None:
        return "another workload"
    if by.sweep:
        priority = f" (priority class {by.priority_class})" if by.priority_class else ""
        return f"a trial of {by.sweep}{priority}"
    return f"{by.job or by.name} in namespace {by.namespace}"
