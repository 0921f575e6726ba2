"""What is wrong, in a researcher's words; here for builds, in `bot.signatures` for trials. Pure."""

from dataclasses import dataclass, field
from datetime import datetime

from k8s.pods import Pod

STARTING = {"", "ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    key: str  # the same trouble has the same key and is told once
    text: str
    mend: str = ""  # what to do about it
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
        text = "No node has room for it; it stays queued until GPUs come free."
        return Diagnosis(key="unschedulable", text=text, detail=pod.unschedulable, trial=pod.job)
    if reason in {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}:
        text = "The node can't pull the image. Kubernetes keeps trying; an administrator may have to help."
        return Diagnosis(key="image-pull", text=text, detail=message, trial=pod.job)
    if reason not in STARTING:  # CreateContainerConfigError, CreateContainerError, RunContainerError ...
        text = f"The container can't start ({reason})."
        return Diagnosis(key=reason, text=text, detail=message, trial=pod.job)
    return None
