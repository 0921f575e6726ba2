"""Read a pod's status. Only pods show whether a trial is running: Katib reports it earlier."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from k8s.objects import Manifest, parse_time, true_conditions
from k8s.trial_kinds import JOB, TRAIN_JOB, job_of_pod, owner_of, pod_index, training_container

COLLECTORS = {"metrics-collector", "metrics-logger-and-collector"}  # Katib's sidecars


@dataclass(frozen=True, kw_only=True)
class Pod:
    name: str
    uid: str = ""
    index: int = 0  # among the pods of its trial
    job: str  # a trial's Job has the trial's name
    job_uid: str = ""
    container: str = JOB.container  # the main one
    node: str
    finished: bool  # phase Succeeded or Failed: its GPUs are free
    scheduled: datetime | None = None  # its GPUs are allocated from then on
    running_since: datetime | None = None  # of the main container
    began: datetime | None = None  # of the main container, also once it has ended
    ended: datetime | None = None  # of the main container
    unschedulable: str = ""  # the scheduler's message
    waiting: tuple[str, str] = ("", "")  # reason and message
    exit: tuple[int, str, str] | None = None  # code, reason, message
    seconds: float | None = None  # run time of the main container; None until it has ended
    failure: tuple[str, str] = ("", "")  # reason and message of a pod that failed as a whole
    abandoned: datetime | None = None  # when Katib's collector failed, before the container had started
    deleted: bool = False
    disruption: tuple[str, str] = ("", "")  # reason and message of DisruptionTarget
    disrupted_at: datetime | None = None
    init_failed: str = ""  # the name of the init container that failed: the others never start

    @property
    def running(self) -> bool:
        """Return whether the main container is running."""
        return self.running_since is not None and not self.finished


def read_trial_pod(obj: Manifest) -> Pod:
    """Read a pod whose main container is the training."""
    return read_pod(obj, training_container(obj))


def read_trial_pods(pods: Iterable[Manifest], jobs: Iterable[Manifest]) -> Iterator[Pod]:
    """Read the pods of trials among these; that of a TrainJob refers only to the Job below it."""
    train_jobs = {
        job["metadata"]["name"]: job["metadata"] for job in jobs if job.get("kind") == TRAIN_JOB.kind
    }
    for obj in filter(is_trial_pod, pods):
        pod, meta = read_trial_pod(obj), train_jobs.get(job_of_pod(obj))
        if meta is None:
            yield pod
        else:  # an older pod belongs to a TrainJob of the same name that was deleted
            own = obj["metadata"].get("creationTimestamp", "") >= meta.get("creationTimestamp", "")
            yield replace(pod, job_uid=meta["uid"] if own else "")


def read_pod(obj: Manifest, container: str) -> Pod:
    """Read a pod. `container`: the main one."""
    status = obj.get("status", {})
    state = _state(status, container)
    running, over = state.get("running"), state.get("terminated")
    waiting, meta = _waiting(status, state), obj["metadata"]
    began = parse_time((running or over or {}).get("startedAt"))
    ended = parse_time(over.get("finishedAt")) if over else None
    disruption = true_conditions(obj).get("DisruptionTarget", {})
    return Pod(
        name=meta["name"],
        uid=meta.get("uid", ""),
        index=pod_index(obj),
        job=job_of_pod(obj),
        job_uid=owner_of(obj).get("uid", ""),
        container=container,
        node=obj.get("spec", {}).get("nodeName", ""),
        finished=status.get("phase") in {"Succeeded", "Failed"},
        scheduled=_scheduled(status),
        running_since=began if running else None,
        began=began,
        ended=ended,
        unschedulable=_unschedulable(status),
        waiting=(waiting.get("reason", ""), waiting.get("message", "")),
        exit=(over["exitCode"], over.get("reason", ""), over.get("message", "")) if over else None,
        seconds=(ended - began).total_seconds() if began and ended else None,
        failure=(status.get("reason", ""), status.get("message", "")),
        abandoned=_abandoned(status, state),
        deleted="deletionTimestamp" in meta,
        disruption=(disruption.get("reason", ""), disruption.get("message", "")),
        disrupted_at=parse_time(disruption.get("lastTransitionTime")),
        init_failed=_init_failed(status),
    )


def is_trial_pod(obj: Manifest) -> bool:
    """Return whether a pod belongs to a Job: suggestion pods have the experiment's labels, too."""
    return bool(job_of_pod(obj))


def _abandoned(status: Manifest, state: Manifest) -> datetime | None:
    """Return when Katib's collector failed before the training started.

    While an image can't be pulled, the kubelet starts the pod's other containers. Without a training process,
    the collector fails, and restartPolicy Never keeps it from running again.
    """
    began = parse_time((state.get("running") or state.get("terminated") or {}).get("startedAt"))
    for entry in status.get("containerStatuses") or []:
        over = (entry.get("state") or {}).get("terminated") or {}
        if entry["name"] not in COLLECTORS or not over.get("exitCode") or not over.get("finishedAt"):
            continue
        ended = parse_time(over["finishedAt"])
        if ended and ("waiting" in state or (began and began > ended)):
            return ended
    return None


def _waiting(status: Manifest, state: Manifest) -> Manifest:
    """Prefer a waiting init container: until it finishes, the others only have PodInitializing."""
    waiting: Manifest = state.get("waiting") or {}
    inits = [(entry.get("state") or {}).get("waiting") for entry in status.get("initContainerStatuses") or []]
    return next(filter(None, inits), waiting) if waiting else waiting


def _init_failed(status: Manifest) -> str:
    for entry in status.get("initContainerStatuses") or []:
        if ((entry.get("state") or {}).get("terminated") or {}).get("exitCode"):
            return str(entry["name"])
    return ""


def _state(status: Manifest, container: str) -> Manifest:
    for entry in status.get("containerStatuses") or []:
        if entry["name"] == container:
            state: Manifest = entry.get("state") or {}
            return state
    return {}


def _scheduled(status: Manifest) -> datetime | None:
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            return parse_time(condition.get("lastTransitionTime"))
    return None


def _unschedulable(status: Manifest) -> str:
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""
