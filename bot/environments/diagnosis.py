"""Diagnose why an environment isn't ready, with the rules for trials and in their words.

Its log isn't read: a server can print its credentials there.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.clients import Clients
from bot.environments.record import Environment
from bot.health import rules_admission as admission
from bot.health import rules_scheduling as scheduling
from bot.health import rules_startup as startup
from bot.health.cluster_events import list_events, list_if_allowed
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import Rule, TrialEvidence, event_time
from bot.health.rules_training import dead_node
from k8s.api.client import Manifests
from k8s.environments import home_ref
from k8s.objects import Manifest

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
    dead_node,
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
        experiment={},
        job=environment.manifest,
        pod=pod,
    )
    nodes = await list_if_allowed("Node", "", clients) if evidence.unscheduled else []
    return replace(evidence, nodes=tuple(nodes), events=tuple(await _events(environment, evidence, clients)))


async def _events(environment: Environment, evidence: TrialEvidence, clients: Clients) -> Manifests:
    """Return the events about the pod, or why there is none, and about a home that isn't bound."""
    meta = (evidence.pod or environment.manifest)["metadata"]
    namespace = meta["namespace"]
    if evidence.pod or environment.record.service is None:
        kind = "Pod" if evidence.pod else "StatefulSet"
        found = await list_events(kind, namespace, meta["name"], clients)
    else:
        found = await _replica_set_events(namespace, meta["name"], clients)
    found = [each for each in found if _is_recent(each, environment.record.since)]
    if environment.record.home and "claim" in (evidence.unscheduled or {}).get("message", "").lower():
        claim = home_ref(namespace, environment.record.home).name
        found += await list_events("PersistentVolumeClaim", namespace, claim, clients)
    return sorted(found, key=lambda event: str(event_time(event)))


async def _replica_set_events(namespace: str, deployment: str, clients: Clients) -> Manifests:
    """Return the events about a Deployment's ReplicaSets, which add the template's hash to its name."""
    events = await clients.trials.list("Event", namespace, fields="involvedObject.kind=ReplicaSet")
    return [each for each in events if each["involvedObject"]["name"].rpartition("-")[0] == deployment]


def _is_recent(event: Manifest, since: datetime) -> bool:
    """Return whether an event is of this start; clocks can differ a little."""
    at = event_time(event)
    return at is None or at >= since - CLOCK_SKEW
