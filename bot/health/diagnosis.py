"""What is wrong, in a researcher's words; here for builds, in `bot.health.rules` for trials. Pure."""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from bot.core.wording import counted
from k8s.objects import GPU
from k8s.pods import Pod

STARTING = {"", "ContainerCreating", "PodInitializing"}
TAINT, LABELS = "taint", "labels"
THINGS = {GPU: "GPUs", "cpu": "CPU"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    key: str  # the same trouble has the same key and is told once
    text: str
    fix: str = ""  # what to do about it
    detail: str = ""  # the system's own words, or the log's last lines
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)  # of the trial
    soft: bool = False  # a wait, which ends by itself
    failed: bool = False  # the trial has
    lasting: bool = False  # a fact that stays, such as a failure
    tell_at: datetime | None = None  # not before; None: at once


def waiting(pod: Pod) -> Diagnosis | None:
    """What a pod that has not started is waiting for; None when nothing is wrong yet."""
    reason, message = pod.waiting
    if pod.unschedulable:
        text = unplaced(refusals(pod.unschedulable))
        return Diagnosis(key="unschedulable", text=text, detail=pod.unschedulable, trial=pod.job)
    if reason in {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}:
        text = "The node can't pull the image. Kubernetes keeps trying; an administrator may have to help."
        return Diagnosis(key="image-pull", text=text, detail=message, trial=pod.job)
    if reason not in STARTING:  # CreateContainerConfigError, CreateContainerError, RunContainerError ...
        text = f"The container can't start ({reason})."
        return Diagnosis(key=reason, text=text, detail=message, trial=pod.job)
    return None


def refusals(words: str) -> Counter[str]:
    """Why the scheduler takes none of how many nodes: a resource, TAINT, LABELS, or its own words.

    `0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: ...`
    """
    said = re.split(r"\.(?:\s|$)", words.partition(" nodes are available: ")[2])[0]
    found: Counter[str] = Counter()
    for nodes, why in re.findall(r"(?:^|, )(\d{1,9}) (.+?)(?=, \d{1,9} |$)", said):
        kind = TAINT if " taint" in why else LABELS if "selector" in why else why
        found[kind.removeprefix("Insufficient ")] += int(nodes)
    return found


def chief(found: Counter[str]) -> str:
    """What most nodes lack; of several such, what others may give back."""
    gives = {GPU: 2, TAINT: 0, LABELS: 0}
    return max(found, key=lambda kind: (found[kind], gives.get(kind, 1)), default="")


def unplaced(found: Counter[str]) -> str:
    """Why no node takes a pod."""
    kind = chief(found)
    nodes = counted(found[kind], "node")
    if kind == TAINT:
        return f"No node takes it: {nodes} reserved by a taint that its pod doesn't tolerate."
    if kind == LABELS:
        return f"No node takes it: {nodes} without the labels that its pod asks for."
    if not kind or " " in kind:  # such as `node(s) were unschedulable`
        return "No node takes it for now."
    lacks, until = THINGS.get(kind, kind), "GPUs come free" if kind == GPU else "others end"
    return f"No node has room for it ({nodes} without enough free {lacks}); it stays queued until {until}."
