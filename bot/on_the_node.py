"""Signatures 8 to 12: why a first trial that has a node does not come to train. Pure."""

import re

from bot.before_training import ADMIN, PATIENCE, RETRIED, after, again
from bot.health import Diagnosis
from bot.scene import Scene, born, said_at, since
from k8s.objects import Manifest

READY = {"Pulling", "Pulled"}  # the sandbox is there, and every volume is mounted


def mount(scene: Scene) -> Diagnosis | None:
    """8. The node can't mount what the pod needs. A missing Secret may still come, so may a volume."""
    event = _last(scene, "FailedMount", "FailedAttachVolume")
    if event is None or not scene.being_made:
        return None
    words, first = event.get("message", ""), said_at(event, first=True)
    missing = re.search(r'(secret|configmap|persistentvolumeclaim)s? "([^"]+)" not found', words)
    if missing:
        text = f"Its node can't mount {missing[1]} `{missing[2]}`: there is none."
        return scene.found("mount", text, ADMIN, words)
    text = "Its node can't mount its storage."
    if "Multi-Attach" in words:
        text = "Its storage is still attached to another node, and only one may have it."
    return scene.found("mount", text, ADMIN, words, soft=True, tell_at=after(first, PATIENCE))


def sandbox(scene: Scene) -> Diagnosis | None:
    """9. The node's network or container runtime fails; the kubelet tries on."""
    event = _last(scene, "FailedCreatePodSandBox")
    if event is None or not scene.being_made:
        return None
    words, node = event.get("message", ""), scene.pod["spec"].get("nodeName", "") if scene.pod else ""
    what = (
        "container runtime" if "no runtime for" in words else "network" if "network" in words else "runtime"
    )
    text = f"Node `{node}` can't prepare the pod: its {what} is broken."
    return scene.found("sandbox", text, ADMIN, words, tell_at=again(event))


def slow_start(scene: Scene) -> Diagnosis | None:
    """8, too: nothing is known to be wrong, but the containers are still being made. So it comes late."""
    if not scene.being_made:
        return None
    placed = next((c for c in scene.status.get("conditions") or () if c["type"] == "PodScheduled"), None)
    at = since(placed or {}, later=PATIENCE) or born(scene.pod, later=PATIENCE)
    event = scene.last("Pulling")
    text = "Its node is still pulling the image." if event else "Its node is still preparing the container."
    mend = "A large image takes minutes on a node that has never had it."
    return scene.found("slow-start", text, mend, (event or {}).get("message", ""), soft=True, tell_at=at)


def device(scene: Scene) -> Diagnosis | None:
    """10. The kubelet has refused the pod: a GPU is broken, or was taken in between."""
    reason = scene.status.get("reason", "")
    if reason != "UnexpectedAdmissionError" and not reason.startswith("OutOf"):
        return None
    node = scene.pod["spec"].get("nodeName", "") if scene.pod else ""
    if reason.startswith("OutOf"):
        text = f"Node `{node}` had no room left when the pod came ({reason})."
        return scene.found("out-of", text, "The next trial lands elsewhere.", scene.status.get("message", ""))
    text = f"Node `{node}` could not hand out its GPUs: one may be broken."
    mend = f"The next trial may land elsewhere. {ADMIN}"
    return scene.found("device", text, mend, scene.status.get("message", ""))


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
MENDS = {
    "wait": "Kubernetes tries again by itself; a login or a mirror would lift the limit.",
    "login": "An administrator has to give the namespace a pull secret for this registry.",
    "tag": "If `image=` names it, check the tag; else start the sweep again, so that it is built anew.",
    "admin": ADMIN,
}


def may_pass(reason: str, message: str) -> bool:
    """Return whether a failed pull may succeed without anybody's help."""
    key = next((key for pattern, key, _, _ in PULLS if re.search(pattern, message)), "")
    return reason in {"ErrImagePull", "ImagePullBackOff"} and key in {"", "image-dns"}


def image(scene: Scene) -> Diagnosis | None:
    """11. A first failure may pass; what the registry clearly refused, or a second failure, does not.

    After the first failure a kubelet before 1.31 says only `Back-off pulling image`; its event has the cause.
    """
    reason, message = scene.waiting
    if reason not in IMAGE:
        return None
    event = next((e for e in reversed(scene.events) if "ailed to pull" in e.get("message", "")), None)
    words = message if "ailed to" in message or event is None else event["message"]
    if reason in {"InvalidImageName", "ErrImageNeverPull"}:
        why = "its name is not valid" if reason == "InvalidImageName" else "it may not be pulled there"
        return scene.found("image-name", f"The image can't be used: {why}.", MENDS["tag"], words)
    for pattern, key, why, mend in PULLS:
        if re.search(pattern, words):
            return scene.found(key, f"The node can't pull the image: {why}.", MENDS[mend], words)
    at = again(event) if event else after(born(scene.pod), RETRIED)
    text = "The node can't pull the image. Kubernetes keeps trying."
    return scene.found("image-pull", text, ADMIN, words, tell_at=at)


CONFIGS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
NO_START = {"StartError", "ContainerCannotRun"}


def config(scene: Scene) -> Diagnosis | None:
    """12. The container can't be made, or its command is not in the image."""
    reason, message = scene.waiting
    if reason in CONFIGS:
        missing = re.search(r'(secret|configmap)s? "([^"]+)" not found', message)
        what = f"{missing[1]} `{missing[2]}` is missing" if missing else reason
        return scene.found("config", f"The container can't start: {what}.", ADMIN, message)
    over = scene.exit or {}
    if over.get("reason") in NO_START:
        text, mend = "The command could not be started in the image.", "Check `command` and the Dockerfile."
        return scene.found("command", text, mend, over.get("message", ""))
    if over.get("exitCode") in {126, 127}:
        text = f"The command was not found in the image (exit code {over['exitCode']})."
        return scene.found("command", text, "Check `command` and the Dockerfile.", scene.tail)
    return None


def _last(scene: Scene, *reasons: str) -> Manifest | None:
    """The latest event with one of these reasons, unless one after it shows that it is over."""
    event = scene.last(*reasons)
    volume = re.search(r'volume "[^"]+"', event.get("message", "")) if event else None
    for later in reversed(scene.events if event else ()):
        if later is event:
            return event
        attached = later.get("reason") == "SuccessfulAttachVolume" and volume
        if later.get("reason") in READY or (attached and attached[0] in later.get("message", "")):
            return None
    return None
