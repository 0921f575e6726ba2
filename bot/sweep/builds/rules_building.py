"""Rules B1 to B5: why a build Job has no running pod: a queue, a quota, a webhook, or a node.

The evidence is that of a trial (`rules`), the texts differ: a build needs no GPU, and an admin can
give builds their own namespace.
"""

import re

from bot.platform.clients import Clients
from bot.platform.pod_health.cluster_events import find_workload, list_events
from bot.platform.pod_health.diagnosis import Diagnosis, waiting
from bot.platform.pod_health.evidence import Rule, TrialEvidence, created_at, event_time
from bot.platform.pod_health.queue_words import NO_QUOTA_FOR
from bot.platform.pod_health.rules_admission import (
    ADMIN,
    WAIT_GRACE,
    rejection,
    unspecified,
    webhook_away,
)
from bot.platform.pod_health.rules_startup import mount, sandbox
from bot.text.wording import listed
from k8s.api.client import Manifests
from k8s.kaniko import BUILD_CONTAINER
from k8s.objects import Manifest, Ref, still_live
from k8s.pods import read_pod
from k8s.trial_kinds import is_suspended

OWN_NAMESPACE = "Ask an admin to give builds their own namespace (BUILD_NAMESPACE in docs/builds.md)"
QUOTA = re.compile(r"exceeded quota: (\S+), requested: (.+), used: (.+), limited: (.+)")
FAILED_QUOTA = re.compile(r"failed quota: (\S+): must specify")


def queued(evidence: TrialEvidence) -> Diagnosis | None:
    """B1: Kueue has suspended the Job, as it does in a namespace with a LocalQueue `default`.

    activeDeadlineSeconds doesn't count while a Job is suspended, so the wait has no limit.
    """
    if not is_suspended(evidence.job):
        return None
    late = created_at(evidence.job, later=WAIT_GRACE)
    if evidence.workload is None:
        text = "The build Job is suspended, and Kueue gives no reason."
        return evidence.found("suspended", text, f"{OWN_NAMESPACE}.", report_at=late)
    words, queue = _reserved(evidence.workload), evidence.workload.get("spec", {}).get("queueName", "")
    where = f"in its queue `{queue}`" if queue else "in a queue"
    if lacks := NO_QUOTA_FOR.search(words):
        text = f"The build can't start: Kueue holds it {where}, which has no quota for {lacks[1]}."
        return evidence.found("queue-lacks", text, f"{OWN_NAMESPACE}.", words)
    text, fix = f"Kueue holds the build {where}.", f"{OWN_NAMESPACE}, where no queue applies."
    return evidence.found("queued", text, fix, words, soft=True, report_at=late)


def refused(evidence: TrialEvidence) -> Diagnosis | None:
    """B2: a quota or a webhook rejects the pod; only the Job's events show it."""
    event = evidence.last("FailedCreate")
    if evidence.pod or event is None:
        return None
    words = str(event.get("message", "")).rpartition("Error creating: ")[2]
    if quota := QUOTA.search(words):
        return evidence.found("quota", _over(quota), f"{OWN_NAMESPACE}, or raise the quota.", words)
    if failed := FAILED_QUOTA.search(words):
        text = f"Quota `{failed[1]}` requires {unspecified(words)} on every pod, and builds set none."
        fix = f"{OWN_NAMESPACE}, or add a LimitRange with a default for {unspecified(words)}."
        return evidence.found("quota", text, fix, words)
    if away := webhook_away(words):
        return evidence.found("webhook", *away, words)
    return evidence.found("no-pod", f"Kubernetes rejected the build's pod{rejection(words)}.", ADMIN, words)


def pending(evidence: TrialEvidence) -> Diagnosis | None:
    """B5: the pod can't be scheduled, or its container can't start."""
    return waiting(read_pod(evidence.pod, BUILD_CONTAINER)) if evidence.pod else None


RULES: tuple[tuple[str, Rule], ...] = (
    ("B1", queued),
    ("B2", refused),
    ("B3", mount),
    ("B4", sandbox),
    ("B5", pending),
)


def why_not_started(evidence: TrialEvidence) -> Diagnosis | None:
    """Return the diagnosis of the first rule that matches; None before it is due."""
    found = next((found for _, rule in RULES if (found := rule(evidence))), None)
    return found if found and (found.report_at is None or found.report_at <= evidence.now) else None


def _reserved(workload: Manifest) -> str:
    for each in workload.get("status", {}).get("conditions") or ():
        if each["type"] == "QuotaReserved" and each["status"] == "False":
            return str(each.get("message", ""))
    return ""


def _over(quota: re.Match[str]) -> str:
    """Name only the requested resources: the message lists all that the quota limits."""
    requested, used, limited = (  # such as `requests.memory=2Gi,limits.memory=8Gi`
        dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair) for text in quota.groups()[1:]
    )
    each = [
        f"{name} ({requested[name]} requested, {used.get(name, '0')} of {most} used)"
        for name, most in limited.items()
        if name in requested
    ]
    return f"The build exceeds the namespace's quota `{quota[1]}`: {listed(each)}."


async def diagnose_build(
    ref: Ref, job: Manifest | None, pods: Manifests, clients: Clients
) -> Diagnosis | None:
    """Return why the build Job `ref` with these pods has not started; None if nothing is wrong so far.

    Raises ApiError, UnreachableError.
    """
    pod = next((pod for pod in pods if still_live(pod)), None)
    kind, name = ("Pod", pod["metadata"]["name"]) if pod else ("Job", ref.name)
    events = await list_events(kind, ref.namespace, name, clients)
    evidence = TrialEvidence(
        now=clients.now(),
        metric="",
        gpus=0,
        job=job,
        pod=pod,
        workload=await find_workload(job, clients),
        events=tuple(sorted(events, key=lambda event: str(event_time(event)))),
    )
    return why_not_started(evidence)
