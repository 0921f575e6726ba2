"""Signatures 8 to 12: why a first trial that has a node does not come to train. Pure."""

import re

from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, born, said_at, since
from bot.health.rules_admission import ADMIN, PATIENCE, RETRIED, after, again
from k8s.objects import Manifest

READY = {"Pulling", "Pulled"}  # the sandbox is there, and every volume is mounted


def mount(evidence: TrialEvidence) -> Diagnosis | None:
    """8. The node can't mount what the pod needs. A missing Secret may still come, so may a volume."""
    event = _last(evidence, "FailedMount", "FailedAttachVolume")
    if event is None or not evidence.being_made:
        return None
    words, first = event.get("message", ""), said_at(event, first=True)
    missing = re.search(r'(secret|configmap|persistentvolumeclaim)s? "([^"]+)" not found', words)
    if missing:
        text = f"Its node can't mount {missing[1]} `{missing[2]}`: there is none."
        return evidence.found("mount", text, ADMIN, words)
    text = "Its node can't mount its storage."
    if "Multi-Attach" in words:
        text = "Its storage is still attached to another node, and only one may have it."
    return evidence.found("mount", text, ADMIN, words, soft=True, tell_at=after(first, PATIENCE))


def sandbox(evidence: TrialEvidence) -> Diagnosis | None:
    """9. The node's network or container runtime fails; the kubelet tries on."""
    event = _last(evidence, "FailedCreatePodSandBox")
    if event is None or not evidence.being_made:
        return None
    words, node = event.get("message", ""), evidence.pod["spec"].get("nodeName", "") if evidence.pod else ""
    what = (
        "container runtime" if "no runtime for" in words else "network" if "network" in words else "runtime"
    )
    text = f"Node `{node}` can't prepare the pod: its {what} is broken."
    return evidence.found("sandbox", text, ADMIN, words, tell_at=again(event))


def slow_start(evidence: TrialEvidence) -> Diagnosis | None:
    """8, too: nothing is known to be wrong, but the containers are still being made. So it comes late."""
    if not evidence.being_made:
        return None
    placed = next((c for c in evidence.status.get("conditions") or () if c["type"] == "PodScheduled"), None)
    at = since(placed or {}, later=PATIENCE) or born(evidence.pod, later=PATIENCE)
    event = evidence.last("Pulling")
    text = "Its node is still pulling the image." if event else "Its node is still preparing the container."
    fix = "A large image takes minutes on a node that has never had it."
    return evidence.found("slow-start", text, fix, (event or {}).get("message", ""), soft=True, tell_at=at)


def device(evidence: TrialEvidence) -> Diagnosis | None:
    """10. The kubelet has refused the pod: a GPU is broken, or was taken in between."""
    reason = evidence.status.get("reason", "")
    if reason != "UnexpectedAdmissionError" and not reason.startswith("OutOf"):
        return None
    node = evidence.pod["spec"].get("nodeName", "") if evidence.pod else ""
    if reason.startswith("OutOf"):
        text = f"Node `{node}` had no room left when the pod came ({reason})."
        return evidence.found(
            "out-of", text, "The next trial lands elsewhere.", evidence.status.get("message", "")
        )
    text = f"Node `{node}` could not hand out its GPUs: one may be broken."
    fix = f"The next trial may land elsewhere. {ADMIN}"
    return evidence.found("device", text, fix, evidence.status.get("message", ""))


IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
# What the registry, or the way to it, says; the first one that is in the words counts.
PULLS = (
    ("toomanyrequests|Too Many Requests", "image-limit", "the registry's rate limit is reached", "wait"),
    (
        "unauthorized|Unauthorized|denied|authorization failed|no basic auth|may require|403 Forbidden",
        "image-login",
        "the registry wants a login that the node doesn't have",
        "login",
    ),
    ("x509|certificate", "image-tls", "the node doesn't trust the registry's certificate", "admin"),
    ("no such host|server misbehaving", "image-dns", "the node doesn't find the registry's name", "admin"),
    ("not found|manifest unknown|NotFound", "image-missing", "the registry doesn't have it", "tag"),
    ("http: server gave HTTP response", "image-tls", "the registry speaks plain HTTP, the node TLS", "admin"),
)
FIXES = {
    "wait": "Kubernetes tries again by itself; a login or a mirror would lift the limit.",
    "login": "An administrator has to give the namespace a pull secret for this registry.",
    "tag": "If `image=` names it, check the tag; else start the sweep again, so that it is built anew.",
    "admin": ADMIN,
}


def may_pass(reason: str, message: str) -> bool:
    """Return whether a failed pull may succeed without anybody's help."""
    key = next((key for pattern, key, _, _ in PULLS if re.search(pattern, message)), "")
    return reason in {"ErrImagePull", "ImagePullBackOff"} and key in {"", "image-dns"}


def image(evidence: TrialEvidence) -> Diagnosis | None:
    """11. A first failure may pass; what the registry clearly refused, or a second failure, does not.

    After the first failure a kubelet before 1.31 says only `Back-off pulling image`; its event has the cause.
    """
    reason, message = evidence.waiting
    if reason not in IMAGE:
        return None
    event = next((e for e in reversed(evidence.events) if "ailed to pull" in e.get("message", "")), None)
    words = message if "ailed to" in message or event is None else event["message"]
    if reason in {"InvalidImageName", "ErrImageNeverPull"}:
        why = "its name is not valid" if reason == "InvalidImageName" else "it may not be pulled there"
        return evidence.found("image-name", f"The image can't be used: {why}.", FIXES["tag"], words)
    for pattern, key, why, fix in PULLS:
        if re.search(pattern, words):
            return evidence.found(key, f"The node can't pull the image: {why}.", FIXES[fix], words)
    at = again(event) if event else after(born(evidence.pod), RETRIED)
    text = "The node can't pull the image. Kubernetes keeps trying."
    return evidence.found("image-pull", text, ADMIN, words, tell_at=at)


CONFIGS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
NO_START = {"StartError", "ContainerCannotRun"}


def config(evidence: TrialEvidence) -> Diagnosis | None:
    """12. The container can't be made, or its command is not in the image."""
    reason, message = evidence.waiting
    if reason in CONFIGS:
        missing = re.search(r'(secret|configmap)s? "([^"]+)" not found', message)
        what = f"{missing[1]} `{missing[2]}` is missing" if missing else reason
        return evidence.found("config", f"The container can't start: {what}.", ADMIN, message)
    over = evidence.exit or {}
    if over.get("reason") in NO_START:
        text, fix = "The command could not be started in the image.", "Check `command` and the Dockerfile."
        return evidence.found("command", text, fix, over.get("message", ""))
    if over.get("exitCode") in {126, 127}:
        text = f"The command was not found in the image (exit code {over['exitCode']})."
        return evidence.found("command", text, "Check `command` and the Dockerfile.", evidence.tail)
    return None


def _last(evidence: TrialEvidence, *reasons: str) -> Manifest | None:
    """The latest event with one of these reasons, unless one after it shows that it is over."""
    event = evidence.last(*reasons)
    volume = re.search(r'volume "[^"]+"', event.get("message", "")) if event else None
    for later in reversed(evidence.events if event else ()):
        if later is event:
            return event
        attached = later.get("reason") == "SuccessfulAttachVolume" and volume
        if later.get("reason") in READY or (attached and attached[0] in later.get("message", "")):
            return None
    return None
