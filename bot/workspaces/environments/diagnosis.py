"""Tell where an environment is on its way to ready, and diagnose why it isn't, by the rules for trials.

Its log isn't read: a server can print its credentials there.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from bot.platform.clients import Clients
from bot.platform.pod_health import rules_admission as admission
from bot.platform.pod_health import rules_scheduling as scheduling
from bot.platform.pod_health import rules_startup as startup
from bot.platform.pod_health.cluster_events import list_events, nodes_if_allowed, rejected_replicas
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import Rule, TrialEvidence, event_time
from bot.workspaces.environments.record import Environment
from k8s.api.client import Manifests
from k8s.environments import CONTAINER, home_ref
from k8s.objects import Manifest, condition, parse_time
from k8s.pods import read_pod

CLOCK_SKEW = timedelta(seconds=5)
AT_ONCE = {"unschedulable", "no-gpus", "gated"}  # the scheduler has tried: someone waits for the answer
ADMIN_IMAGE = "Ask an admin to check this image under `environments:` in Sweepbot's configuration."
FIXES = {
    **dict.fromkeys(("image-missing", "image-name", "command", "config"), ADMIN_IMAGE),
    "out-of": "None needed; Kubernetes replaces the pod.",
    "device": "Ask an admin to check the node. `stop` and `start` can move the environment to another one.",
}

OWN_IMAGE = "Delete the service, then start it with another image or command."
SERVICE_FIXES = dict.fromkeys(("image-missing", "image-name", "command", "config"), OWN_IMAGE)

MOUNTED = "PodReadyToStartContainers"  # condition: volumes are mounted, and the sandbox has its network


def crash(evidence: TrialEvidence) -> Diagnosis | None:
    """The server keeps exiting: a wrong command, a full home, or not enough memory."""
    over, pod = evidence.exit or {}, evidence.pod
    if (
        pod is None
        or evidence.running
        or not ("exitCode" in over or evidence.waiting[0] == "CrashLoopBackOff")
    ):
        return None
    why = (
        "out of memory"
        if over.get("reason") == "OOMKilled"
        else f"exit code {over.get('exitCode', 'unknown')}"
    )
    meta = pod["metadata"]
    fix = f"Check `kubectl -n {meta['namespace']} logs {meta['name']} --previous`, or ask an admin to."
    return evidence.found("crash", f"The server keeps exiting ({why}); Kubernetes restarts it.", fix)


RULES: tuple[Rule, ...] = (
    admission.refused_pod,
    scheduling.too_large,
    scheduling.unschedulable,
    scheduling.no_volume,
    startup.mount,
    startup.sandbox,
    startup.device,
    startup.image,
    startup.config,
    startup.dead_node,
    crash,
    startup.slow_start,
)


def diagnose(evidence: TrialEvidence) -> Diagnosis | None:
    """Return the first rule's diagnosis that is due; None if nothing is wrong so far."""
    found = next((each for rule in RULES if (each := rule(evidence))), None)
    if found is None:
        return None
    due = found.report_at is None or found.report_at <= evidence.now or found.key in AT_ONCE
    fixes = FIXES | SERVICE_FIXES if evidence.noun == "service" else FIXES
    return replace(found, fix=fixes.get(found.key, found.fix)) if due else None


async def collect(environment: Environment, pod: Manifest | None, clients: Clients) -> TrialEvidence:
    """Raises ApiError, UnreachableError."""
    evidence = TrialEvidence(
        now=clients.now(),
        metric="",
        gpus=environment.record.gpus // environment.record.replicas,
        noun=environment.record.noun,
        job=environment.manifest,
        pod=pod,
    )
    nodes = await nodes_if_allowed(clients) if evidence.unscheduled else []
    return replace(evidence, nodes=tuple(nodes), events=tuple(await _events(environment, evidence, clients)))


async def _events(environment: Environment, evidence: TrialEvidence, clients: Clients) -> Manifests:
    """Return the events about the pod, or why there is none, and about a home that isn't bound."""
    meta = (evidence.pod or environment.manifest)["metadata"]
    namespace = meta["namespace"]
    if evidence.pod or environment.record.service is None:
        kind = "Pod" if evidence.pod else "StatefulSet"
        found = await list_events(kind, namespace, meta["name"], clients)
    else:
        found = await rejected_replicas(namespace, meta["name"], clients)
    found = [each for each in found if _is_recent(each, environment.record.since)]
    if environment.record.home and scheduling.about_claims(evidence.unscheduled or {}):
        claim = home_ref(namespace, environment.record.home).name
        found += await list_events("PersistentVolumeClaim", namespace, claim, clients)
    return sorted(found, key=lambda event: str(event_time(event)))


def _is_recent(event: Manifest, since: datetime) -> bool:
    """Return whether an event is of this start; clocks can differ a little."""
    at = event_time(event)
    return at is None or at >= since - CLOCK_SKEW


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
    if read_pod(pod, CONTAINER).running_since:
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
        Stage.IMAGE: read_pod(pod, CONTAINER).running_since,
        Stage.SERVER: _since(pod, "Ready"),
    }
    found = {}
    for stage, end in ends.items():
        if end:
            found[stage.value] = max((end - since).total_seconds(), 0.0)
            since = max(end, since)
    return found


def _mounted(pod: Manifest, events: Sequence[Manifest]) -> datetime | None:
    """Return when its volumes were mounted: a pull begins afterwards."""
    pulls = (event_time(e, first=True) for e in events if e.get("reason") in {"Pulling", "Pulled"})
    return _since(pod, MOUNTED) or next(pulls, None)


def _since(pod: Manifest, kind: str) -> datetime | None:
    """Return since when a condition of the pod is True."""
    return parse_time(condition(pod, kind).get("lastTransitionTime"))


def _unscheduled(pod: Manifest) -> str:
    return str(condition(pod, "PodScheduled", "False").get("message", ""))
