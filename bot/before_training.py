"""Signatures 1 to 7: why a first trial does not come to a node. Pure.

Numbers and order are those of the table in `bot.signatures`. A soft one is a wait that may be nobody's fault
and ends by itself; `tell_at` says from when on it is worth telling.
"""

import re
from datetime import datetime, timedelta

from bot.health import Diagnosis
from bot.hints import counted
from bot.scene import Scene, born, said_at, since
from k8s.objects import GPU, Manifest, true_conditions

ADMIN = "An administrator has to look at it."
PATIENCE = 55.0  # seconds a wait may last before it is told, which takes some of the minute, too
RETRIED = 10.0  # seconds in which a controller, or a node, mends by itself what fails at first
CONFLICT = "the object has been modified"  # of two writers one is told so, and tries again


def no_suggestion(scene: Scene) -> Diagnosis | None:
    """1. Katib asks the search service for parameters before it makes a trial."""
    if scene.trial or _finished(scene.experiment):
        return None
    words, killed = _services(scene), _out_of_memory(scene)
    known = true_conditions(scene.suggestion or {}).keys()
    if killed or (scene.suggestion and not {"DeploymentReady", "Failed"} & known):
        text = "Katib's search service ran out of memory" if killed else "Katib's search service isn't up yet"
        at = None if killed else born(scene.experiment, later=PATIENCE)
        return scene.found(
            "suggestion", f"{text}, so no trial can start.", ADMIN, words, soft=True, tell_at=at
        )
    return None


def stuck_experiment(scene: Scene) -> Diagnosis | None:
    """1, too. Katib fails at each try to go on and only an event says so; the experiment stays Created."""
    if scene.trial or _finished(scene.experiment):
        return None
    event = scene.last("ReconcileError")
    if event and CONFLICT not in event.get("message", ""):
        text, at = "Katib can't go on with the experiment, so no trial starts.", again(event)
        return scene.found("experiment", text, ADMIN, _reconciled(event), tell_at=at)
    text, at = "Katib has made no trial yet and doesn't say why.", born(scene.experiment, later=PATIENCE)
    return scene.found("no-trial", text, f"Its controller may be down. {ADMIN}", soft=True, tell_at=at)


def settings(scene: Scene) -> Diagnosis | None:
    """2. The search service has refused what the space asks of it; the experiment ends with that."""
    failed = true_conditions(scene.suggestion or {}).get("Failed")
    if scene.trial or not failed:
        return None
    words = re.sub(r"^Validation failed: (Validate\w+ Error: )?", "", failed.get("message", ""))
    text = "Katib's search algorithm refuses the search space."
    mend = "Mend `algorithm` or `parameters` in the space file and start the sweep again."
    return scene.found("settings", text, mend, words, lasting=True)


def no_job(scene: Scene) -> Diagnosis | None:
    """3. The trial exists and its Job does not: rights, the template, an admission rule."""
    event = scene.last("ReconcileError")
    if scene.trial is None or scene.job or event is None or CONFLICT in event.get("message", ""):
        return None
    text = "Katib can't make the trial's Job."
    return scene.found("no-job", text, ADMIN, _reconciled(event), tell_at=born(scene.trial, later=RETRIED))


def queued(scene: Scene) -> Diagnosis | None:
    """4. Kueue keeps the Job suspended until its queue has room. No error, unless the queue is missing."""
    if not (scene.job or {}).get("spec", {}).get("suspend"):
        return None
    waits = [
        c for c in _conditions(scene.workload) if c["type"] == "QuotaReserved" and c["status"] == "False"
    ]
    words = waits[0].get("message", "") if waits else ""
    if "doesn't exist" in words:
        mend = f"Name a queue that exists. {ADMIN}"
        return scene.found("no-queue", "The queue for its GPUs doesn't exist.", mend, words)
    lacks = re.search(r"unused quota for (\S+) in flavor (\S+), (\S+) more needed", words)
    need = f": it needs {lacks[3]} more {_thing(lacks[1])} in {lacks[2]}" if lacks else ""
    text = f"It is queued by Kueue{need}."
    mend = "It starts by itself as soon as others end."
    return scene.found("queued", text, mend, words, soft=True, tell_at=born(scene.job, later=PATIENCE))


def refused_pod(scene: Scene) -> Diagnosis | None:
    """5. The Job exists, and a quota or a webhook refuses its pod; the Job's events are the only sign."""
    event = scene.last("FailedCreate")
    if scene.job is None or scene.pod or event is None or scene.ended_badly:
        return None
    words = event.get("message", "")
    if "exceeded quota" in words:
        mend = "It starts by itself when others of your namespace end; ask for fewer GPUs, or for more quota."
        return scene.found("quota", _quota(words), mend, words)
    text = "Kubernetes refuses to make its pod."
    if "Unable to find primary container" in words:
        text = "Katib finds no training container in the pod, and refuses it."
    return scene.found("no-pod", text, ADMIN, words)


def unschedulable(scene: Scene) -> Diagnosis | None:
    """6. No node takes the pod: all are full, or reserved, or too small for ever."""
    condition = scene.unscheduled
    if condition is None or _about_claims(condition):
        return None
    words = condition.get("message") or condition.get("reason", "")
    if condition.get("reason") == "SchedulingGated":
        text = "It is held back by a scheduling gate, as queues set them."
        return scene.found("gated", text, ADMIN, words, soft=True, tell_at=since(condition, later=PATIENCE))
    largest = max(map(_gpus, scene.nodes), default=0)
    if 0 < largest < scene.gpus and not scene.last("TriggeredScaleUp"):
        text = f"It can never fit: it asks for {counted(scene.gpus, 'GPU')}, the largest node has {largest}."
        return scene.found("never-fits", text, f"Start it with `gpus={largest}` or fewer.", words)
    text = f"No node has room for it{_full(words)}; it stays queued until GPUs come free."
    if scene.last("TriggeredScaleUp"):
        text = "No node has room for it; the cluster is adding one, which takes minutes."
    mend = f"{_reserved(words)}Ask for fewer GPUs if it takes too long."
    tell_at = since(condition, later=PATIENCE)
    return scene.found("unschedulable", text, mend, words, soft=True, tell_at=tell_at)


def no_volume(scene: Scene) -> Diagnosis | None:
    """7. A claim for storage is missing, or nothing fills it. WaitForFirstConsumer is no trouble."""
    condition = scene.unscheduled
    if condition is None or not _about_claims(condition):
        return None
    words = condition.get("message", "")
    why = scene.last("ProvisioningFailed", "FailedBinding")
    words = "\n".join(filter(None, (words, (why or {}).get("message", ""))))
    if missing := re.search(r'persistentvolumeclaim "([^"]+)" not found', words):
        return scene.found("no-volume", f"Its storage `{missing[1]}` doesn't exist.", ADMIN, words)
    text = f"Its storage{_claims(scene)} isn't ready."
    if "no storage class is set" in words:
        text = f"Its storage{_claims(scene)} has no StorageClass, and the cluster has no default one."
    return scene.found("volume", text, ADMIN, words, soft=True, tell_at=since(condition, later=PATIENCE))


def again(event: Manifest) -> datetime | None:
    """At once when it has happened twice, else when there was time for a second try."""
    return None if event.get("count", 1) > 1 else after(said_at(event, first=True), RETRIED)


def after(at: datetime | None, seconds: float) -> datetime | None:
    return at and at + timedelta(seconds=seconds)


def _finished(experiment: Manifest) -> bool:
    return bool({"Succeeded", "Failed"} & true_conditions(experiment).keys())


def _reconciled(event: Manifest) -> str:
    return str(event.get("message", "")).removeprefix("Failed to reconcile: ")


def _conditions(obj: Manifest | None) -> list[Manifest]:
    return (obj or {}).get("status", {}).get("conditions") or []


def _services(scene: Scene) -> str:
    """What the pods of the search service wait for, or what the suggestion says."""
    said = []
    for pod in scene.services:
        for each in pod.get("status", {}).get("containerStatuses") or ():
            for state in (each.get("state") or {}, each.get("lastState") or {}):
                why = state.get("waiting") or state.get("terminated") or {}
                said.append(": ".join(filter(None, (why.get("reason"), why.get("message")))))
        said += [
            c.get("message", "")
            for c in _conditions(pod)
            if c["type"] == "PodScheduled" and c["status"] == "False"
        ]
    said += [c.get("message", "") for c in _conditions(scene.suggestion) if c["type"] == "DeploymentReady"]
    return "\n".join(dict.fromkeys(filter(None, said)))


def _out_of_memory(scene: Scene) -> bool:
    states = [each for pod in scene.services for each in pod.get("status", {}).get("containerStatuses") or ()]
    ends = [
        (each.get(key) or {}).get("terminated") or {} for each in states for key in ("state", "lastState")
    ]
    return any(end.get("reason") == "OOMKilled" for end in ends)


def _thing(resource: str) -> str:
    return "GPUs" if resource == GPU else resource


def _quota(words: str) -> str:
    numbers = [
        re.search(rf"{word}: [^:]*?nvidia\.com/gpu=(\d+)", words) for word in ("requested", "used", "limited")
    ]
    if all(numbers):
        asked, used, limit = (n[1] for n in numbers if n)
        return f"Your namespace may use {limit} GPUs, {used} are in use, and this trial asks for {asked}."
    return "Your namespace's quota is used up."


def _about_claims(condition: Manifest) -> bool:
    return "persistentvolumeclaim" in condition.get("message", "").lower()


def _gpus(node: Manifest) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(GPU, 0))


def _full(words: str) -> str:
    full = re.search(rf"(\d+) Insufficient {re.escape(GPU)}", words)
    return f" ({counted(int(full[1]), 'node')} without enough free GPUs)" if full else ""


def _reserved(words: str) -> str:
    taints = re.findall(r"(\d+) node\(s\) had untolerated taint \{([^}]*)\}", words)
    return "".join(f"{counted(int(n), 'node')} reserved by the taint `{t.strip(': ')}`. " for n, t in taints)


def _claims(scene: Scene) -> str:
    volumes = scene.pod["spec"].get("volumes") or () if scene.pod else ()
    names = [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]
    return f" `{', '.join(names)}`" if names else ""
