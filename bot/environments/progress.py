"""Where an environment is on its way to ready, and how long each stage took. Pure."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from bot.health.evidence import event_time
from k8s.environments import CONTAINER
from k8s.objects import Manifest, parse_time

MOUNTED = "PodReadyToStartContainers"  # condition: volumes are mounted, and the sandbox has its network


class Stage(StrEnum):
    """The stages of a start, in order."""

    NODE = "node"  # a node with the GPUs
    VOLUME = "volume"
    IMAGE = "image"
    SERVER = "server"  # from the container's start until it answers
    READY = "ready"


def deciding(pods: Sequence[Manifest], replicas: int) -> Manifest | None:
    """Return the pod that shows the state: one that isn't ready, if any; None if a pod is missing.

    If all pods are terminating, it is one of them.
    """
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if not live:
        return pods[0] if pods else None
    if len(live) < replicas:
        return None
    return next((pod for pod in live if stage_of(pod, ()) is not Stage.READY), live[0])


def ready_pods(pods: Sequence[Manifest]) -> int:
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return sum(stage_of(pod, ()) is Stage.READY for pod in live)


def stage_of(pod: Manifest | None, events: Sequence[Manifest]) -> Stage:
    if pod is None or not _since(pod, "PodScheduled"):
        return Stage.VOLUME if pod and "persistentvolumeclaim" in _unscheduled(pod).lower() else Stage.NODE
    if _since(pod, "Ready"):
        return Stage.READY
    if started_at(pod):
        return Stage.SERVER
    return Stage.IMAGE if _mounted(pod, events) else Stage.VOLUME


def durations(pod: Manifest, events: Sequence[Manifest], since: datetime) -> dict[str, float]:
    """Return the seconds of each stage of a ready pod; a stage that wasn't observed counts to the next.

    Args:
        since: when the start was requested.
    """
    ends = {
        Stage.NODE: _since(pod, "PodScheduled"),
        Stage.VOLUME: _mounted(pod, events),
        Stage.IMAGE: started_at(pod),
        Stage.SERVER: _since(pod, "Ready"),
    }
    found = {}
    for stage, end in ends.items():
        if end:
            found[stage.value] = max((end - since).total_seconds(), 0.0)
            since = max(end, since)
    return found


def started_at(pod: Manifest) -> datetime | None:
    """Return when its container started; None if it doesn't run."""
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if each["name"] == CONTAINER:
            return parse_time(((each.get("state") or {}).get("running") or {}).get("startedAt"))
    return None


def _mounted(pod: Manifest, events: Sequence[Manifest]) -> datetime | None:
    """Return when its volumes were mounted: a pull begins afterwards."""
    pulls = (event_time(e, first=True) for e in events if e.get("reason") in {"Pulling", "Pulled"})
    return _since(pod, MOUNTED) or next(pulls, None)


def _since(pod: Manifest, condition: str) -> datetime | None:
    """Return since when a condition of the pod is True."""
    for each in pod.get("status", {}).get("conditions") or ():
        if (each["type"], each["status"]) == (condition, "True"):
            return parse_time(each.get("lastTransitionTime"))
    return None


def _unscheduled(pod: Manifest) -> str:
    for each in pod.get("status", {}).get("conditions") or ():
        if (each["type"], each["status"]) == ("PodScheduled", "False"):
            return str(each.get("message", ""))
    return ""
