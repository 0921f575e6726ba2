"""Say why a pod waits, from the scheduler's message (GPUs, CPU, taints, labels, volumes), or that its image
isn't pulled (why: `rules_startup`), as a `Diagnosis`,
which rules of this and other rooms return. Pure.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from bot.core.finding import Finding
from bot.text.wording import counted
from k8s.nodes.gpus import UNALLOCATABLE
from k8s.objects import GPU
from k8s.pods import STARTING, Pod

TAINT, LABELS, VOLUME = "taint", "labels", "volume"
# kube-scheduler, volumebinding and nodevolumelimits plugins; the second since 1.35
VOLUME_REASONS = re.compile(
    r"volume node affinity|PersistentVolume's node affinity|persistent volumes to bind|non-existent pv"
)
RESOURCES = {GPU: "GPUs", "cpu": "CPU"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Finding):
    """A finding about a pod, or the trial that it runs."""

    key: str  # a problem is reported once per key
    cause: str = ""  # one line for a headline: `ValueError: unknown optimizer 'adamw' (train.py:102)`
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)  # of the trial
    soft: bool = False  # a wait that can end without a fix
    failed: bool = False  # the trial has failed
    lasting: bool = False  # stays true, such as a failure
    report_at: datetime | None = None  # earliest time to report it; None: now

    def masked(self, mask: Callable[[str], str]) -> Self:
        """Return it without secrets; the key, too, can be a line of a log."""
        parts = self.key, self.text, self.fix, self.detail, self.cause
        key, text, fix, detail, cause = map(mask, parts)
        return replace(self, key=key, text=text, fix=fix, detail=detail, cause=cause)


def waiting(pod: Pod) -> Diagnosis | None:
    """Return why a pod has not started; None if nothing is wrong so far."""
    reason, message = pod.waiting
    if pod.unschedulable:
        text = unschedulable_text(refusals(pod.unschedulable))
        return Diagnosis(key="unschedulable", text=text, detail=pod.unschedulable, trial=pod.job)
    if reason in {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}:
        text = "The node can't pull the image; Kubernetes is retrying."
        fix = "If it persists, ask an admin."
        return Diagnosis(key="image-pull", text=text, fix=fix, detail=message, trial=pod.job)
    if reason not in STARTING:  # CreateContainerConfigError, CreateContainerError, RunContainerError ...
        text = f"The container can't start ({reason})."
        return Diagnosis(key=reason, text=text, detail=message, trial=pod.job)
    return None


def refusals(message: str) -> Counter[str]:
    """Count the nodes per reason of a FailedScheduling message: a resource, a kind, or other words.

    `0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: ...`
    """
    reasons = re.split(r"\.(?:\s|$)", message.partition(" nodes are available: ")[2])[0]
    found: Counter[str] = Counter()
    for nodes, why in re.findall(r"(?:^|, )(\d{1,9}) (.+?)(?=, \d{1,9} |$)", reasons):
        kind = TAINT if " taint" in why else LABELS if "selector" in why else why
        kind = GPU if why == UNALLOCATABLE else VOLUME if VOLUME_REASONS.search(why) else kind
        found[kind.removeprefix("Insufficient ")] += int(nodes)
    return found


def main_reason(found: Counter[str]) -> str:
    """Return the reason of most nodes; of equal ones, first what other pods can release."""
    rank = {GPU: 2, TAINT: 0, LABELS: 0, VOLUME: 0}
    return max(found, key=lambda kind: (found[kind], rank.get(kind, 1)), default="")


def unschedulable_text(found: Counter[str]) -> str:
    kind = main_reason(found)
    nodes = counted(found[kind], "node")
    if kind == TAINT:
        return f"The pod can't be scheduled: untolerated taints on {nodes}."
    if kind == LABELS:
        return f"The pod can't be scheduled: its node selector excludes {nodes}."
    if kind == VOLUME:
        return f"The pod can't be scheduled: its volume can't be used on {nodes}."
    if not kind or " " in kind:  # such as `node(s) were unschedulable`
        return f"The pod can't be scheduled yet{f' ({found[kind]} {kind})' if kind else ''}."
    lacks = RESOURCES.get(kind, kind)
    until = "GPUs are" if kind == GPU else f"{lacks} is"
    return f"The pod is pending: not enough free {lacks} on {nodes}. It starts when {until} released."
