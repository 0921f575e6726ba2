"""Explain why the cluster stopped a running trial: preemption, a drained or lost node. Pure.

None of these is a failure: Kueue admits the Job again, or the Job replaces the pod (its podFailurePolicy
ignores the condition DisruptionTarget).
"""

import re

from bot.core.queueing import Interruption
from k8s.kueue import Workload
from k8s.pods import Pod

# Reasons of DisruptionTarget: https://kubernetes.io/docs/concepts/workloads/pods/disruptions
BY_NODE = {
    "PreemptionByScheduler": "the scheduler preempted it for a pod with a higher priority",
    "EvictionByEvictionAPI": "it was evicted, as when a node is drained",
    "DeletionByTaintManager": "its node became unavailable",
    "DeletionByPodGC": "its node was removed",
    "TerminationByKubelet": "the kubelet terminated it",
}
BY_KUEUE = {
    "Deactivated": "its Workload was deactivated",
    "PodsReadyTimeout": "its pod wasn't ready in time",
    "AdmissionCheck": "an admission check withdrew its approval",
    "ClusterQueueStopped": "its ClusterQueue was stopped",
    "LocalQueueStopped": "its LocalQueue was stopped",
    "NodeFailures": "its node failed",
}
CAUSE = re.compile(r"due to (.{1,100})$")


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
    reason, message = pod.disruption
    why = BY_NODE.get(reason) or f"its pod was disrupted ({reason})"
    detail = f": {message[:200]}" if reason == "TerminationByKubelet" and message else ""
    return Interruption(trial=pod.job, why=f"{why}{detail}", queued=False)


def _name(by: Workload | None) -> str:
    if by is None:
        return "another workload"
    if by.sweep:
        priority = f" (priority class {by.priority_class})" if by.priority_class else ""
        return f"a trial of {by.sweep}{priority}"
    return f"{by.job or by.name} in namespace {by.namespace}"
