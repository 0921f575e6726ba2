"""Read a pod's status: since when it runs, why it waits, its exit code, a disruption, why the metrics of a
training that succeeded are lost; and choose a trial's latest pod.

Only pods show whether a trial is running: Katib reports it earlier.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

from k8s.objects import Manifest, condition, parse_time, read_each, read_once
from k8s.trial_kinds import JOB, TRAIN_JOB, job_of_pod, owner_of, pod_index, training_container

READER = "metrics-reader"  # Sweepbot's sidecar, an init container
COLLECTORS = {"metrics-collector", "metrics-logger-and-collector", READER}  # the others are Katib's
COLLECTOR_START = timedelta(minutes=2)  # it has found the training's process by then
STARTING = {"", "ContainerCreating", "PodInitializing"}  # reasons to wait
MAX_SAID = 300  # characters of a reader's last line


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
    unread: str = ""  # why the metrics of a training that succeeded are lost, as a clause; "" if they aren't
    deleted: bool = False
    disruption: tuple[str, str] = ("", "")  # reason and message of DisruptionTarget
    disrupted_at: datetime | None = None
    init_failed: str = ""  # the name of the init container that failed: the others never start
    place: tuple[str, bool] = field(default=("", True), compare=False, repr=False)  # among a trial's pods

    @cached_property
    def running(self) -> bool:
        """Whether the main container is running."""
        return self.running_since is not None and not self.finished

    @cached_property
    def notable(self) -> bool:
        """Whether it is more than a pod that starts, runs, or has ended by itself: few of many are."""
        told = self.unschedulable or self.waiting[0] not in STARTING or self.disruption[0] or self.failure[0]
        return bool(told or self.abandoned or self.unread or self.deleted)


def read_trial_pod(obj: Manifest) -> Pod:
    """Read a pod whose main container is the training."""
    return read_pod(obj, training_container(obj))


def read_trial_pods(pods: Sequence[Manifest], jobs: Sequence[Manifest]) -> Iterable[Pod]:
    """Read the pods of trials among these, the latest last.

    That of a TrainJob refers only to the Job below it. A trial whose pod was evicted has another one, and the
    API server sorts both by the random ends of their names.
    """
    train_jobs, read = read_once(_train_jobs, jobs), read_each(read_trial_pod, pods)
    if train_jobs:
        read = tuple(_of_train_job(pod, obj, train_jobs) for obj, pod in zip(pods, read, strict=True))
    # A suggestion's pod has the experiment's labels, too. C's loops, because a long sweep has hundreds.
    return sorted(filter(attrgetter("job"), read), key=attrgetter("place"))


def _of_train_job(pod: Pod, obj: Manifest, train_jobs: Mapping[str, Manifest]) -> Pod:
    meta = train_jobs.get(pod.job)
    if meta is None:
        return pod
    # An older pod belongs to a TrainJob of the same name that was deleted.
    own = obj["metadata"].get("creationTimestamp", "") >= meta.get("creationTimestamp", "")
    return replace(pod, job_uid=meta["uid"] if own else "")


def _train_jobs(jobs: Sequence[Manifest]) -> dict[str, Manifest]:
    """Return the metadata of the TrainJobs among these, by name."""
    return {job["metadata"]["name"]: job["metadata"] for job in jobs if job.get("kind") == TRAIN_JOB.kind}


def read_pod(obj: Manifest, container: str) -> Pod:
    """Read a pod. `container`: the main one."""
    status = obj.get("status", {})
    state = _state(status, container)
    running, over = state.get("running"), state.get("terminated")
    waiting, meta = _waiting(status, state), obj["metadata"]
    began = parse_time((running or over or {}).get("startedAt"))
    ended = parse_time(over.get("finishedAt")) if over else None
    disruption, refused = condition(obj, "DisruptionTarget"), condition(obj, "PodScheduled", "False")
    finished = status.get("phase") in {"Succeeded", "Failed"}
    return Pod(
        name=meta["name"],
        uid=meta.get("uid", ""),
        index=pod_index(obj),
        job=job_of_pod(obj),
        job_uid=owner_of(obj).get("uid", ""),
        container=container,
        node=obj.get("spec", {}).get("nodeName", ""),
        finished=finished,
        scheduled=parse_time(condition(obj, "PodScheduled").get("lastTransitionTime")),
        running_since=began if running else None,
        began=began,
        ended=ended,
        unschedulable=str(refused.get("message") or refused.get("reason") or ""),
        waiting=(waiting.get("reason", ""), waiting.get("message", "")),
        exit=(over["exitCode"], over.get("reason", ""), over.get("message", "")) if over else None,
        seconds=(ended - began).total_seconds() if began and ended else None,
        failure=(status.get("reason", ""), status.get("message", "")),
        abandoned=_abandoned(status, state),
        unread=_unread(status, began, over or {}) or _unreported(status, over or {}),
        deleted="deletionTimestamp" in meta,
        disruption=(disruption.get("reason", ""), disruption.get("message", "")),
        disrupted_at=parse_time(disruption.get("lastTransitionTime")),
        init_failed=_init_failed(status),
        place=(meta.get("creationTimestamp", ""), not finished),
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
    for collector in _failed_collectors(status):
        ended = parse_time(collector.get("finishedAt"))
        if ended and ("waiting" in state or (began and began > ended)):
            return ended
    return None


def _failed_collectors(status: Manifest) -> list[Manifest]:
    """Return how the containers that collect metrics ended, if they failed."""
    statuses = [each for each in status.get("containerStatuses") or () if each["name"] in COLLECTORS]
    over = ((each.get("state") or {}).get("terminated") or {} for each in statuses)
    return [each for each in over if each.get("exitCode")]


def _unread(status: Manifest, began: datetime | None, over: Manifest) -> str:
    """Say so if a training succeeded soon after the start of Katib's collector, which then failed.

    Mostly, it looked for the training's process when that had ended. Its database can be away as well.
    """
    ended = parse_time(over.get("finishedAt"))
    for collector in _failed_collectors(status) if over.get("exitCode") == 0 else ():
        started, failed = parse_time(collector.get("startedAt")), parse_time(collector.get("finishedAt"))
        if began and ended and started and failed and failed >= began and ended - started < COLLECTOR_START:
            return "Katib's metrics collector wasn't ready or failed"
    return ""


def _unreported(status: Manifest, over: Manifest) -> str:
    """Return why the reader couldn't report a training that succeeded: its last line, or how it ended.

    Its exit code doesn't fail the pod. One that waits has crashed, and isn't started again.
    """
    if status.get("phase") != "Succeeded" or over.get("exitCode") != 0:
        return ""
    for entry in status.get("initContainerStatuses") or ():
        reader = (entry.get("state") or {}).get("terminated") or {}
        if entry["name"] == READER and reader.get("exitCode") != 0:
            code = reader.get("exitCode", "unknown")
            said = str(reader.get("message") or "").strip().rpartition("\n")[2]
            return (
                f"its metrics weren't stored: {said[:MAX_SAID] or f'the reader ended with exit code {code}'}"
            )
    return ""


def _waiting(status: Manifest, state: Manifest) -> Manifest:
    """Prefer a waiting init container: until it finishes, the others only have PodInitializing."""
    waiting: Manifest = state.get("waiting") or {}
    inits = [(entry.get("state") or {}).get("waiting") for entry in status.get("initContainerStatuses") or []]
    return next(filter(None, inits), waiting) if waiting else waiting


def _init_failed(status: Manifest) -> str:
    for entry in status.get("initContainerStatuses") or []:
        if entry["name"] != READER and ((entry.get("state") or {}).get("terminated") or {}).get("exitCode"):
            return str(entry["name"])
    return ""


def _state(status: Manifest, container: str) -> Manifest:
    for entry in status.get("containerStatuses") or []:
        if entry["name"] == container:
            state: Manifest = entry.get("state") or {}
            return state
    return {}
