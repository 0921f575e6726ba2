"""Signatures 6 and 7: why no node takes a first trial's pod, by the scheduler and by the nodes. Pure."""

import re
from collections import Counter

from bot.core.wording import counted
from bot.health.diagnosis import LABELS, TAINT, Diagnosis, chief, refusals, unplaced
from bot.health.evidence import TrialEvidence, since
from bot.health.rules_admission import ADMIN, PATIENCE
from k8s.objects import GPU, Manifest

SYSTEMS = "node.kubernetes.io/"  # taints of nodes that are cordoned, not ready or short of something


def unschedulable(evidence: TrialEvidence) -> Diagnosis | None:
    """6. No node takes the pod: all are full, or reserved, or too small for ever."""
    condition = evidence.unscheduled
    if condition is None or _about_claims(condition):
        return None
    words, tell_at = condition.get("message") or condition.get("reason", ""), since(condition, later=PATIENCE)
    if condition.get("reason") == "SchedulingGated":
        text = "It is held back by a scheduling gate, as queues set them."
        return evidence.found("gated", text, ADMIN, words, soft=True, tell_at=tell_at)
    if evidence.last("TriggeredScaleUp"):
        text = "No node has room for it; the cluster is adding one, which takes minutes."
        fix = "Ask for fewer GPUs if it takes too long."
        return evidence.found("unschedulable", text, fix, words, soft=True, tell_at=tell_at)
    largest = max(map(_gpus, evidence.nodes), default=evidence.gpus)
    if 0 < largest < evidence.gpus:
        text = (
            f"It can never fit: it asks for {counted(evidence.gpus, 'GPU')}, the largest node has {largest}."
        )
        return evidence.found("never-fits", text, f"Start it with `gpus={largest}` or fewer.", words)
    if largest < evidence.gpus:  # a cluster that grows may have its first one in a minute
        text = f"No node has GPUs, and it asks for {evidence.gpus}."
        fix = f"Their nodes or the device plugin may be down. {ADMIN}"
        return evidence.found("no-gpus", text, fix, words, soft=True, tell_at=tell_at)
    found = _by_nodes(evidence) or refusals(words)
    fix = _mend(evidence, words, found)
    return evidence.found("unschedulable", unplaced(found), fix, words, soft=True, tell_at=tell_at)


def no_volume(evidence: TrialEvidence) -> Diagnosis | None:
    """7. A claim for storage is missing, or nothing fills it. WaitForFirstConsumer is no trouble."""
    condition = evidence.unscheduled
    if condition is None or not _about_claims(condition):
        return None
    words = condition.get("message", "")
    why = evidence.last("ProvisioningFailed", "FailedBinding")
    words = "\n".join(filter(None, (words, (why or {}).get("message", ""))))
    if missing := re.search(r'persistentvolumeclaim "([^"]+)" not found', words):
        return evidence.found("no-volume", f"Its storage `{missing[1]}` doesn't exist.", ADMIN, words)
    text = f"Its storage{_claims(evidence)} isn't ready."
    if "no storage class is set" in words:
        text = f"Its storage{_claims(evidence)} has no StorageClass, and the cluster has no default one."
    return evidence.found("volume", text, ADMIN, words, soft=True, tell_at=since(condition, later=PATIENCE))


def _by_nodes(evidence: TrialEvidence) -> Counter[str]:
    """When none of the nodes with enough GPUs may take it: others, as a rule more, only lack GPUs."""
    able = [node for node in evidence.nodes if _gpus(node) >= evidence.gpus]
    why = Counter(_shuts_out(node, evidence) for node in able)
    return Counter() if why[""] else why


def _shuts_out(node: Manifest, evidence: TrialEvidence) -> str:
    if _untolerated(node, evidence):
        return TAINT
    wanted = evidence.pod["spec"].get("nodeSelector") or {} if evidence.pod else {}
    return "" if wanted.items() <= (node["metadata"].get("labels") or {}).items() else LABELS


def _untolerated(node: Manifest, evidence: TrialEvidence) -> list[str]:
    """Its taints as the scheduler named them until kubernetes#134740: `dedicated: gpu`."""
    tolerated = evidence.pod["spec"].get("tolerations") or () if evidence.pod else ()
    return [
        f"{taint['key']}: {taint.get('value', '')}".strip(": ")
        for taint in node.get("spec", {}).get("taints") or ()
        if taint["effect"] != "PreferNoSchedule"
        and not taint["key"].startswith(SYSTEMS)
        and not any(_tolerates(each, taint) for each in tolerated)
    ]


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    """A toleration without a key is one of all keys, without an effect of all effects."""
    key, effect = toleration.get("key") or taint["key"], toleration.get("effect") or taint["effect"]
    same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return same and (key, effect) == (taint["key"], taint["effect"])


def _mend(evidence: TrialEvidence, words: str, found: Counter[str]) -> str:
    said = [taint.strip(": ") for taint in re.findall(r" taint \{([^{}]*)\}", words)]
    able = (node for node in evidence.nodes if _gpus(node) >= evidence.gpus)
    taints = dict.fromkeys(said or [taint for node in able for taint in _untolerated(node, evidence)])
    which = counted((refusals(words) | found)[TAINT], "node")
    reserved = f"{which} reserved by the taint {', '.join(f'`{t}`' for t in taints)}. " if taints else ""
    if chief(found) in {TAINT, LABELS}:
        return f"{reserved}`trials:` in the bot's configuration has `tolerations` and `nodes`. {ADMIN}"
    return f"{reserved}{'Ask for fewer GPUs if it takes too long.' if chief(found) == GPU else ''}".strip()


def _about_claims(condition: Manifest) -> bool:
    return "persistentvolumeclaim" in condition.get("message", "").lower()


def _gpus(node: Manifest) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(GPU, 0))


def _claims(evidence: TrialEvidence) -> str:
    volumes = evidence.pod["spec"].get("volumes") or () if evidence.pod else ()
    names = [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]
    return f" `{', '.join(names)}`" if names else ""
