"""Why a build Job has no running pod: a queue, a quota, a webhook, a node. Pure.

The same evidence as for a trial (`bot.health.rules`), in other words: a build needs no GPU, and what holds it
back is for an admin, who can give builds a namespace of their own.
"""

import re
from collections.abc import Callable

from bot.core.wording import listed
from bot.health.diagnosis import Diagnosis, waiting
from bot.health.evidence import TrialEvidence, born
from bot.health.rules_admission import ADMIN, PATIENCE, webhook_away
from bot.health.rules_startup import mount, sandbox
from k8s.kaniko import CONTAINER
from k8s.objects import Manifest
from k8s.pods import read_pod

OWN_NAMESPACE = "An admin can give builds a namespace of their own: BUILD_NAMESPACE in docs/builds.md"
QUOTA = re.compile(r"exceeded quota: (\S+), requested: (.+), used: (.+), limited: (.+)")
UNSPECIFIED = re.compile(r"failed quota: (\S+): must specify (\S+)")


def queued(evidence: TrialEvidence) -> Diagnosis | None:
    """Kueue has suspended the Job, as it does in a namespace with a LocalQueue `default`.

    activeDeadlineSeconds does not run meanwhile, so nothing else would ever end the wait.
    """
    if not (evidence.job or {}).get("spec", {}).get("suspend"):
        return None
    late = born(evidence.job, later=PATIENCE)
    if evidence.workload is None:
        text = "The build Job is suspended, and no Workload of Kueue says why."
        return evidence.found("suspended", text, f"{OWN_NAMESPACE}.", tell_at=late)
    words, queue = _reserved(evidence.workload), evidence.workload.get("spec", {}).get("queueName", "")
    where = f"in its queue `{queue}`" if queue else "in a queue"
    if lacks := re.search(r"resource (\S+) unavailable in ClusterQueue", words):
        text = f"Kueue holds the build {where}, which has no quota for {lacks[1]}, so the build can't start."
        return evidence.found("queue-lacks", text, f"{OWN_NAMESPACE}.", words)
    text, fix = f"Kueue holds the build {where}.", f"{OWN_NAMESPACE}, where no queue holds them."
    return evidence.found("queued", text, fix, words, soft=True, tell_at=late)


def refused(evidence: TrialEvidence) -> Diagnosis | None:
    """The Job exists, and something refuses its pod; only the Job's events say so."""
    event = evidence.last("FailedCreate")
    if evidence.pod or event is None:
        return None
    words = str(event.get("message", "")).removeprefix("Error creating: ")
    if quota := QUOTA.search(words):
        return evidence.found("quota", _over(quota), f"{OWN_NAMESPACE}, or raise the quota.", words)
    if missing := UNSPECIFIED.search(words):
        text = f"The quota `{missing[1]}` wants {missing[2]} of every pod, and builds set none."
        fix = f"{OWN_NAMESPACE}, or add a LimitRange with a default for {missing[2]}."
        return evidence.found("quota", text, fix, words)
    if away := webhook_away(words):
        return evidence.found("webhook", *away, words)
    return evidence.found("no-pod", "Kubernetes refuses the build's pod.", ADMIN, words)


def pending(evidence: TrialEvidence) -> Diagnosis | None:
    return waiting(read_pod(evidence.pod, CONTAINER)) if evidence.pod else None


SIGNATURES: tuple[Callable[[TrialEvidence], Diagnosis | None], ...] = (
    queued,
    refused,
    mount,
    sandbox,
    pending,
)


def why_not_started(evidence: TrialEvidence) -> Diagnosis | None:
    """What there is to tell now: the first signature that fits, when its time has come."""
    found = next((found for sign in SIGNATURES if (found := sign(evidence))), None)
    return found if found and (found.tell_at is None or found.tell_at <= evidence.now) else None


def _reserved(workload: Manifest) -> str:
    for each in workload.get("status", {}).get("conditions") or ():
        if each["type"] == "QuotaReserved" and each["status"] == "False":
            return str(each.get("message", ""))
    return ""


def _over(quota: re.Match[str]) -> str:
    """Only the resources that are too much: a quota tells of all that it limits."""
    requested, used, limited = (_amounts(text) for text in quota.groups()[1:])
    each = [
        f"{name} ({requested[name]} requested, {used.get(name, '0')} of {most} used)"
        for name, most in limited.items()
        if name in requested
    ]
    return f"The quota `{quota[1]}` of the namespace leaves no room for the build: {listed(each)}."


def _amounts(text: str) -> dict[str, str]:
    """`requests.memory=2Gi,limits.memory=8Gi`"""
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
