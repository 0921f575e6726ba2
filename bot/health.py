"""Why a trial or a build does not run, in a researcher's words: from pods and events only. Pure."""

from dataclasses import dataclass

from k8s.pods import Pod

STARTING = {"", "ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    key: str  # the same trouble has the same key and is told once
    text: str
    detail: str = ""  # the system's own words, or the log's last lines
    trial: str = ""


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


def crash(pod: Pod, log: str) -> Diagnosis | None:
    """Why the training ended badly; None when it did not, or when its node was drained under it."""
    if pod.disrupted:
        return None
    if pod.exit and pod.exit[0]:
        code, reason, message = pod.exit
        return Diagnosis(key="crash", text=_exit_words(code, reason), detail=log or message, trial=pod.job)
    if pod.failure[0]:  # Evicted, UnexpectedAdmissionError ...
        text = f"The node ended or refused its pod ({pod.failure[0]})."
        return Diagnosis(key="crash", text=text, detail=pod.failure[1], trial=pod.job)
    if pod.helper_exit:
        text = f"The training ended well, but its metrics collector with exit code {pod.helper_exit}."
        return Diagnosis(key="crash", text=text, detail=log, trial=pod.job)
    return None


def no_pod(job: str, event_message: str) -> Diagnosis:
    """The Job exists and its pod was refused, by a quota for one; the Job's events are the only sign."""
    text = "Kubernetes refuses to make its pod."
    return Diagnosis(key="no-pod", text=text, detail=event_message, trial=job)


def _exit_words(code: int, reason: str) -> str:
    if reason == "OOMKilled":
        return "The training ran out of memory (the machine's, not the GPU's) and was killed."
    if reason in {"StartError", "ContainerCannotRun"}:
        return "The command could not be started in the image."
    if code == 127:
        return "The command was not found in the image (exit code 127)."
    if code > 128:
        return f"The training was ended by signal {code - 128} (exit code {code})."
    return f"The training ended with exit code {code}."


def unreported(trial: str) -> Diagnosis:
    """The training is over and Katib has heard no metric; it would wait for ever (katib#1795)."""
    text = (
        "It ended well minutes ago, but Katib has received none of its metrics; its metrics collector or its "
        "database may be down, for which an administrator is needed. I end such a trial after ten minutes."
    )
    return Diagnosis(key="unreported", text=text, trial=trial)


def no_metrics(trial: str, metric: str) -> Diagnosis:
    """The collector looks for TensorBoard scalars whose tag starts with the metric's name."""
    text = (
        f"It ended well, but wrote no TensorBoard scalar named {metric} into the folder given as "
        "--tensorboard_dir, so it counts as failed."
    )
    return Diagnosis(key="no-metrics", text=text, trial=trial)
