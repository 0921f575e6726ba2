"""Why the pod of a first trial can't be scheduled (rules R6, R7, and R32): too large, full or tainted nodes,
no GPUs, an autoscaler, an unbound PersistentVolumeClaim. Pure.
"""

import re
from collections import Counter
from datetime import datetime

from bot.platform.pod_health.diagnosis import (
    LABELS,
    TAINT,
    VOLUME,
    Diagnosis,
    main_reason,
    refusals,
    unschedulable_text,
)
from bot.platform.pod_health.evidence import TrialEvidence, since
from bot.platform.pod_health.rules_admission import ADMIN, WAIT_GRACE, fewer
from bot.text.wording import counted, trial_size
from k8s.katib.device_claims import device_class
from k8s.nodes.machines import PASSING_TAINTS, can_run, untolerated
from k8s.objects import GPU, Manifest

SCALES = {"TriggeredScaleUp", "Nominated"}  # a node is added: events of cluster-autoscaler and of Karpenter
SCALE_EVENTS = (*SCALES, "FailedScaleUp", "NotTriggerScaleUp")  # the third is GKE's


def too_large(evidence: TrialEvidence) -> Diagnosis | None:
    """R32: the trial doesn't fit the nodes, even without other pods. Its other workers can have GPUs."""
    condition, gpus, workers = evidence.unscheduled, evidence.gpus, evidence.workers
    has = [_gpus(node, evidence) for node in evidence.nodes]
    if condition is None or about_claims(condition) or _can_change(condition, evidence):
        return None
    if not gpus or not any(has):
        return None
    room = sum(each // gpus for each in has)
    if room == 0:
        return _never(evidence, condition, f"the largest node has {max(has)}", f"`gpus={max(has)}` or fewer")
    if room < workers:  # soon, an autoscaler can report that it adds nodes
        why = f"all nodes together have room for {room} of its {workers} workers"
        most = f"`nodes={room}` or fewer" if room > 1 else "`nodes=1`"
        return _never(evidence, condition, why, most, since(condition, later=WAIT_GRACE))
    return None


def _never(
    evidence: TrialEvidence, condition: Manifest, why: str, most: str, at: datetime | None = None
) -> Diagnosis:
    size = trial_size(evidence.workers, evidence.gpus)
    text = f"The {evidence.noun} can't fit: it requests {size}, and {why}."
    fix = f"Cancel the sweep, and start it again with {most}."
    return evidence.found("never-fits", text, fix, condition.get("message", ""), report_at=at)


def unschedulable(evidence: TrialEvidence) -> Diagnosis | None:
    """R6: the scheduler finds no node: all are full or tainted, or none has GPUs."""
    condition = evidence.unscheduled
    if condition is None or about_claims(condition):
        return None
    words, at = condition.get("message") or condition.get("reason", ""), since(condition, later=WAIT_GRACE)
    if condition.get("reason") == "SchedulingGated":
        text = "A scheduling gate is holding the pod (usually set by a queue)."
        return evidence.found("gated", text, ADMIN, words, soft=True, report_at=at)
    if _is_scaling(evidence):
        text = "No node has room; the autoscaler is adding one. This takes a few minutes."
        fix = f"If it takes too long, request {fewer(evidence)}."
        return evidence.found("unschedulable", text, fix, words, soft=True, report_at=at)
    has = [_gpus(node, evidence) for node in evidence.nodes]
    known = not device_class(evidence.resource)  # of some DeviceClasses, GPUs can't be counted
    if evidence.gpus and has and known and not any(has):  # soft: an autoscaler can add one in a minute
        text = f"No node has GPUs; the {evidence.noun} requests {evidence.gpus}."
        fix = "Ask an admin to check the GPU nodes and the device plugin."
        return evidence.found("no-gpus", text, fix, words, soft=True, report_at=at)
    if (event := evidence.last(*SCALE_EVENTS)) and event["reason"] == "FailedScaleUp":
        text = "No node has room, and the autoscaler couldn't add one."
        fix = "Wait, or ask an admin to check the cloud's quota and capacity."
        return evidence.found("unschedulable", text, fix, event["message"], soft=True, report_at=at)
    found = _by_nodes(evidence) or refusals(words)
    fix = _fix(evidence, words, found)
    return evidence.found("unschedulable", unschedulable_text(found), fix, words, soft=True, report_at=at)


def no_volume(evidence: TrialEvidence) -> Diagnosis | None:
    """R7: a PersistentVolumeClaim is missing or unbound. WaitForFirstConsumer is normal."""
    condition = evidence.unscheduled
    if condition is None or not about_claims(condition):
        return None
    words = condition.get("message", "")
    why = evidence.last("ProvisioningFailed", "FailedBinding")
    words = "\n".join(filter(None, (words, (why or {}).get("message", ""))))
    if missing := re.search(r'persistentvolumeclaim "([^"]+)" not found', words):
        text = f"PersistentVolumeClaim `{missing[1]}` doesn't exist."
        return evidence.found("no-volume", text, ADMIN, words)
    text = f"PersistentVolumeClaim{_claims(evidence)} isn't bound."
    if "no storage class is set" in words:
        text = (
            f"PersistentVolumeClaim{_claims(evidence)} has no StorageClass, and the cluster has no default."
        )
    return evidence.found(
        "volume", text, ADMIN, words, soft=True, report_at=since(condition, later=WAIT_GRACE)
    )


def _by_nodes(evidence: TrialEvidence) -> Counter[str]:
    """Count why nodes with enough GPUs exclude the pod; empty if one of them does not."""
    able = [node for node in evidence.nodes if _gpus(node, evidence) >= evidence.gpus]
    why = Counter(_exclusion(node, evidence) for node in able)
    return Counter() if why[""] else why


def _exclusion(node: Manifest, evidence: TrialEvidence) -> str:
    if _untolerated(node, evidence):
        return TAINT
    labels = node["metadata"].get("labels") or {}
    return "" if can_run(evidence.pod["spec"] if evidence.pod else {}, labels, ()) else LABELS


def _untolerated(node: Manifest, evidence: TrialEvidence) -> list[str]:
    """Return the taints as the scheduler wrote them until kubernetes#134740: `dedicated: gpu`."""
    taints = tuple(node.get("spec", {}).get("taints") or ())
    found = untolerated(evidence.pod["spec"] if evidence.pod else {}, taints)
    return [f"{taint['key']}: {taint.get('value', '')}".strip(": ") for taint in found]


def _fix(evidence: TrialEvidence, words: str, found: Counter[str]) -> str:
    named = [taint.strip(": ") for taint in re.findall(r" taint \{([^{}]*)\}", words)]
    able = (node for node in evidence.nodes if _gpus(node, evidence) >= evidence.gpus)
    taints = dict.fromkeys(named or [taint for node in able for taint in _untolerated(node, evidence)])
    which = counted((refusals(words) | found)[TAINT], "node")
    names = ", ".join(f"`{t}`" for t in taints)
    tainted = f"{'Taint' if len(taints) == 1 else 'Taints'} {names} on {which}. " if taints else ""
    if main_reason(found) == VOLUME:
        return f"{tainted}Ask an admin to check the volume, such as its zone."
    if main_reason(found) == TAINT and all(map(PASSING_TAINTS.match, taints or [""])):
        return f"{tainted}Ask an admin to check these nodes."
    if main_reason(found) in {TAINT, LABELS}:
        admin = "Ask an admin to set `tolerations` or `nodes` under `trials:` in Sweepbot's configuration."
        return f"{tainted}{admin}"
    less = f"If it takes too long, request {fewer(evidence)}." if main_reason(found) == GPU else ""
    return f"{tainted}{less}".strip()


def _can_change(condition: Manifest, evidence: TrialEvidence) -> bool:
    """Return whether a queue or an autoscaler is about to change what the scheduler found."""
    return condition.get("reason") == "SchedulingGated" or _is_scaling(evidence)


def _is_scaling(evidence: TrialEvidence) -> bool:
    event = evidence.last(*SCALE_EVENTS)
    return event is not None and event["reason"] in SCALES


def about_claims(condition: Manifest) -> bool:
    """Return whether PodScheduled names a claim, or volumes that are being provisioned for claims."""
    words = condition.get("message", "")
    return "persistentvolumeclaim" in words.lower() or "binding volumes:" in words


def _gpus(node: Manifest, evidence: TrialEvidence) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(evidence.resource, 0))


def _claims(evidence: TrialEvidence) -> str:
    volumes = evidence.pod["spec"].get("volumes") or () if evidence.pod else ()
    names = [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]
    return f" `{', '.join(names)}`" if names else ""
