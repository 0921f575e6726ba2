"""Why a first trial that has a node doesn't start training (rules R8 to R12, R23, and R26): mounts, network,
devices, image pulls (by the kubelet's message), a missing command, a dead node. Pure.
"""

import re
from datetime import timedelta
from itertools import chain

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import TrialEvidence, created_at, event_time, since
from bot.platform.pod_health.rules_admission import ADMIN, RETRY_GRACE, WAIT_GRACE, after, again
from k8s.objects import Manifest, conditions, parse_time
from k8s.pods import STARTING

DELETION_TIMEOUT = timedelta(minutes=2)  # after deletionTimestamp, which includes the grace period
DEAD_NODE = "node"  # key
NO_ALIGNMENT = "TopologyAffinityError"  # of the kubelet: what is free is on several NUMA nodes
REJECTED = {"UnexpectedAdmissionError", NO_ALIGNMENT}
READY = {"Pulling", "Pulled"}  # the sandbox is there, and every volume is mounted
UNMOUNTED = "Unable to attach or mount volumes"  # the kubelet's summary every 2 min, without the cause


def mount(evidence: TrialEvidence) -> Diagnosis | None:
    """R8: the node can't mount a volume of the pod."""
    event = _last(evidence, "FailedMount", "FailedAttachVolume", "FailedMapVolume")
    if event is None or not evidence.starting:
        return None
    words, first = event.get("message", ""), event_time(event, first=True)
    missing = re.search(r'(secret|configmap|persistentvolumeclaim)s? "([^"]+)" not found', words)
    if missing:
        text = f"The pod can't start: {missing[1]} `{missing[2]}` doesn't exist."
        return evidence.found("mount", text, ADMIN, words)
    text = "The node can't mount the pod's volume."
    if "Multi-Attach" in words:
        text = "The volume is still attached to another node and allows only one."
    return evidence.found("mount", text, ADMIN, words, soft=True, report_at=after(first, WAIT_GRACE))


def sandbox(evidence: TrialEvidence) -> Diagnosis | None:
    """R9: the node's network, container runtime, or DRA driver fails; the kubelet retries."""
    event = _last(evidence, "FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources")
    if event is None or not evidence.starting:
        return None
    words, node = event.get("message", ""), evidence.pod["spec"].get("nodeName", "") if evidence.pod else ""
    what = (
        "container runtime" if "no runtime for" in words else "network" if "network" in words else "runtime"
    )
    what = "device driver" if event["reason"] == "FailedPrepareDynamicResources" else what
    text = f"Node `{node}` can't start the pod: {what} error."
    return evidence.found("sandbox", text, ADMIN, words, report_at=again(event))


def slow_start(evidence: TrialEvidence) -> Diagnosis | None:
    """R26: the containers are still being created, with no known error. Last, because errors say more."""
    if not evidence.starting:
        return None
    placed = conditions(evidence.pod).get("PodScheduled", {})
    at = since(placed, later=WAIT_GRACE) or created_at(evidence.pod, later=WAIT_GRACE)
    event = evidence.last("Pulling")
    text = f"The node is still {'pulling the image' if event else 'preparing the container'}."
    fix = "None needed yet; the first pull of a large image on a node takes several minutes."
    return evidence.found("slow-start", text, fix, (event or {}).get("message", ""), soft=True, report_at=at)


def device(evidence: TrialEvidence) -> Diagnosis | None:
    """R10: the kubelet rejected the pod: a GPU is faulty, or was allocated in the meantime."""
    reason = evidence.status.get("reason", "")
    if reason not in REJECTED and not reason.startswith("OutOf"):
        return None
    node = evidence.pod["spec"].get("nodeName", "") if evidence.pod else ""
    if reason.startswith("OutOf"):
        text = f"Node `{node}` ran out of capacity while the pod was starting ({reason})."
        fix = "None needed; the next trial goes to another node."
        return evidence.found("out-of", text, fix, evidence.status.get("message", ""))
    words = evidence.status.get("message", "")
    cpus = "not enough cpus" in words  # of the kubelet's CPU manager
    what = "the pod's CPUs" if cpus else "GPUs; one may be faulty"
    if reason == NO_ALIGNMENT:
        what = "GPUs and CPUs near each other, as its topology policy requires"
    fix = f"{ADMIN} The next trial can go to another node."
    return evidence.found("device", f"Node `{node}` couldn't allocate {what}.", fix, words)


IMAGE_ERRORS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
}
# (pattern of the message, key, cause, key of FIXES); the first match counts.
PULLS = (
    ("toomanyrequests|Too Many Requests", "image-limit", "registry rate limit reached", "wait"),
    (
        "unauthorized|Unauthorized|denied|authorization failed|no basic auth|may require|403 Forbidden",
        "image-login",
        "missing registry credentials",
        "login",
    ),
    ("x509|tls: ", "image-tls", "it doesn't trust the registry's certificate", "certificate"),
    ("no match for platform|no image found in", "image-platform", "not built for its CPU type", "platform"),
    ("short.name", "image-name", "its name has no registry", "name"),
    ("no space left on device", "image-disk", "the node's disk is full", "disk"),
    ("no such host|server misbehaving", "image-dns", "it can't resolve the registry's name", "dns"),
    ("not found|manifest unknown|name unknown|NotFound", "image-missing", "not found in the registry", "tag"),
    (
        "http: server gave HTTP response",
        "image-tls",
        "it expects HTTPS, and the registry serves HTTP",
        "http",
    ),
)
FIXES = {
    "wait": "Wait; Kubernetes is retrying. Registry credentials or a mirror would raise the limit.",
    "login": "Ask an admin to add a pull secret for this registry to the namespace.",
    "tag": "If you set `image=`, check its tag. Otherwise, start the sweep again to rebuild the image.",
    "certificate": "Ask an admin to add the registry's CA certificate to the node's container runtime.",
    "platform": "Build the image for the nodes' CPU type, such as `linux/amd64`.",
    "name": "Write the image's name with its registry, such as `docker.io/lab/name:tag`.",
    "disk": "Ask an admin to free space on the node. A smaller image helps, too.",
    "dns": "Ask an admin to check the registry's name and the node's DNS.",
    "http": "Ask an admin to serve HTTPS, or allow HTTP for it in the node's container runtime.",
}


def may_pass(reason: str, message: str) -> bool:
    """Return whether a failed pull can succeed on a retry."""
    key, _, _ = _pull_error(message)
    return reason in {"ErrImagePull", "ImagePullBackOff"} and key in {"", "image-dns"}


def _pull_error(words: str) -> tuple[str, str, str]:
    """Return key, cause, and fix; names of images and URLs can have any word, also without quotes."""
    said = re.sub(r'"[^"]*"|(?<!\S)\S*/\S*', "", words)
    causes = ((key, why, fix) for pattern, key, why, fix in PULLS if re.search(pattern, said))
    return next(causes, ("", "", ""))


def image(evidence: TrialEvidence) -> Diagnosis | None:
    """R11: the node can't pull the image. A known cause is reported now, an unknown one when it repeats.

    After the first failure a kubelet before 1.31 says only `Back-off pulling image`; its event has the cause.
    """
    reason, message = evidence.waiting
    if reason not in IMAGE_ERRORS:
        return None
    event = next((e for e in reversed(evidence.events) if "ailed to pull" in e.get("message", "")), None)
    words = message if "ailed to" in message or event is None else event["message"]
    if reason in {"InvalidImageName", "ErrImageNeverPull"}:
        why = "invalid name" if reason == "InvalidImageName" else "the node isn't allowed to pull it"
        return evidence.found("image-name", f"The image can't be used: {why}.", FIXES["tag"], words)
    key, why, fix = _pull_error(words)
    if key:
        return evidence.found(key, f"The node can't pull the image: {why}.", FIXES[fix], words)
    at = again(event) if event else after(created_at(evidence.pod), RETRY_GRACE)
    text = "The node can't pull the image; Kubernetes is retrying."
    return evidence.found("image-pull", text, ADMIN, words, report_at=at)


NO_START = {"StartError", "ContainerCannotRun"}
NO_COMMAND = r"(?<!version: )exec: |executable file|exec format error|no command specified|chdir to cwd"


def config(evidence: TrialEvidence) -> Diagnosis | None:
    """R12: the container can't be created, or its command is not in the image.

    Init containers of a trial come from webhooks, such as Istio's in a Kubeflow profile's namespace.
    """
    reason, message = evidence.waiting
    if reason not in {*STARTING, "CrashLoopBackOff"}:  # CreateContainerConfigError, RunContainerError ...
        return _no_start(evidence, reason, message)
    if name := evidence.init_failed:
        text = f"Init container `{name}` failed, so the training didn't start."
        return evidence.found("init", text, ADMIN, evidence.status.get("message", ""))
    over = evidence.exit or {}
    if over.get("reason") in NO_START:
        return _no_start(evidence, over["reason"], over.get("message", ""))
    if over.get("exitCode") in {126, 127}:
        found = "not executable" if over["exitCode"] == 126 else "not found"
        text = f"Command {found} in the image (exit code {over['exitCode']})."
        return evidence.found("command", text, "Check `command` and the Dockerfile.", evidence.tail)
    return None


def _no_start(evidence: TrialEvidence, reason: str, words: str) -> Diagnosis:
    """Return why the runtime can't start the container: NVIDIA's hooks run before the command."""
    if "unsatisfied condition: cuda" in words:
        text = "The image's CUDA is newer than the node's driver supports."
        fix = "Use a base image with an older CUDA, or ask an admin to update the node's driver."
        return evidence.found("cuda", text, fix, words)
    if re.search(r"nvidia-container-cli|CDI device", words):
        text = "The node couldn't give the container its GPUs."
        return evidence.found("device", text, f"{ADMIN} The next trial can go to another node.", words)
    if re.search(NO_COMMAND, words):
        text, fix = "The container couldn't start the command.", "Check `command` and the Dockerfile."
        return evidence.found("command", text, fix, words)
    what = reason
    if missing := re.search(r'(secret|configmap)s? "([^"]+)" not found', words):
        what = f"{missing[1]} `{missing[2]}` doesn't exist"
    elif missing := re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (\S+)", words):
        what = f"{missing[2]} `{missing[3]}` has no key `{missing[1]}`"
    return evidence.found("config", f"The container can't start: {what}.", ADMIN, words)


def _last(evidence: TrialEvidence, *reasons: str) -> Manifest | None:
    """Return the latest event with one of these reasons, unless a later one shows that it is resolved.

    The kubelet's summary, which names no cause, is returned only without an event that does.
    """
    found = [each for each in reversed(evidence.events) if each.get("reason") in reasons]
    told = (each for each in found if UNMOUNTED not in each.get("message", ""))
    event = next(chain(told, found), None)
    volume = re.search(r'volume "[^"]+"', event.get("message", "")) if event else None
    for later in reversed(evidence.events if event else ()):
        if later is event:
            return event
        attached = later.get("reason") == "SuccessfulAttachVolume" and volume
        if later.get("reason") in READY or (attached and attached[0] in later.get("message", "")):
            return None
    return None


def dead_node(evidence: TrialEvidence) -> Diagnosis | None:
    """R23: the node is not responding; for minutes its pods still look running or starting."""
    if evidence.pod is None or evidence.status.get("phase") in {"Succeeded", "Failed"}:
        return None
    name = evidence.pod["spec"].get("nodeName", "")
    node = next((n for n in evidence.nodes if n["metadata"]["name"] == name), {})
    ready = conditions(node).get("Ready", {})
    event = None if ready else evidence.last("NodeNotReady")  # without permission to list nodes
    gone = ready.get("status", "True") != "True" or evidence.status.get("reason") == "NodeLost"
    if not (gone or event or _long_deleted(evidence)):
        return None
    words = ready.get("message") or (event or evidence.status).get("message", "")
    text = f"Node `{name}` isn't responding."
    # A Job with a podFailurePolicy replaces a pod only once it is Failed, which its node has to report.
    fix = (
        f"Ask an admin to restore or remove `{name}`; until then the {evidence.noun} can't restart elsewhere."
    )
    return evidence.found(DEAD_NODE, text, fix, words)


def _long_deleted(evidence: TrialEvidence) -> bool:
    at = parse_time((evidence.pod or {})["metadata"].get("deletionTimestamp"))
    return at is not None and evidence.now - at > DELETION_TIMEOUT
