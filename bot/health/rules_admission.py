"""Signatures 1 to 5: why a first trial does not come to have a pod. Pure.

Numbers and order are those of the table in `bot.health.rules`. A soft one is a wait that may be no fault
and ends by itself; `tell_at` says from when on it is worth telling.
"""

import re
from datetime import datetime, timedelta

from bot.core.wording import counted
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, born, said_at
from k8s.objects import GPU, Manifest, true_conditions

ADMIN = "An administrator has to look at it."
PATIENCE = 55.0  # seconds a wait may last before it is told, which takes some of the minute, too
RETRIED = 10.0  # seconds in which a controller, or a node, mends by itself what fails at first
CONFLICT = "the object has been modified"  # of two writers one is told so, and tries again


def no_suggestion(evidence: TrialEvidence) -> Diagnosis | None:
    """1. Katib asks the search service for parameters before it makes a trial."""
    if evidence.trial or _finished(evidence.experiment):
        return None
    words, killed = _services(evidence), _out_of_memory(evidence)
    known = true_conditions(evidence.suggestion or {}).keys()
    if killed or (evidence.suggestion and not {"DeploymentReady", "Failed"} & known):
        text = "Katib's search service ran out of memory" if killed else "Katib's search service isn't up yet"
        at = None if killed else born(evidence.experiment, later=PATIENCE)
        return evidence.found(
            "suggestion", f"{text}, so no trial can start.", ADMIN, words, soft=True, tell_at=at
        )
    return None


def stuck_experiment(evidence: TrialEvidence) -> Diagnosis | None:
    """1, too. Katib fails at each try to go on and only an event says so; the experiment stays Created."""
    if evidence.trial or _finished(evidence.experiment):
        return None
    event = evidence.last("ReconcileError")
    if event and CONFLICT not in event.get("message", ""):
        text, at = "Katib can't go on with the experiment, so no trial starts.", again(event)
        return evidence.found("experiment", text, ADMIN, _reconciled(event), tell_at=at)
    text, at = "Katib has made no trial yet and doesn't say why.", born(evidence.experiment, later=PATIENCE)
    return evidence.found("no-trial", text, f"Its controller may be down. {ADMIN}", soft=True, tell_at=at)


def settings(evidence: TrialEvidence) -> Diagnosis | None:
    """2. The search service has refused what the space asks of it; the experiment ends with that."""
    failed = true_conditions(evidence.suggestion or {}).get("Failed")
    if evidence.trial or not failed:
        return None
    words = re.sub(r"^Validation failed: (Validate\w+ Error: )?", "", failed.get("message", ""))
    text = "Katib's search algorithm refuses the search space."
    fix = "Mend `algorithm` or `parameters` in the space file and start the sweep again."
    return evidence.found("settings", text, fix, words, lasting=True)


def no_job(evidence: TrialEvidence) -> Diagnosis | None:
    """3. The trial exists and its Job does not: rights, the template, an admission rule."""
    event = evidence.last("ReconcileError")
    if evidence.trial is None or evidence.job or event is None or CONFLICT in event.get("message", ""):
        return None
    text = "Katib can't make the trial's Job."
    return evidence.found(
        "no-job", text, ADMIN, _reconciled(event), tell_at=born(evidence.trial, later=RETRIED)
    )


def queued(evidence: TrialEvidence) -> Diagnosis | None:
    """4. Kueue keeps the Job suspended until its queue has room. No error, unless it waits in vain."""
    if not (evidence.job or {}).get("spec", {}).get("suspend"):
        return None
    late = born(evidence.job, later=PATIENCE)
    if evidence.workload is None:
        text = "Its Job is suspended, and no queue (Kueue) says why."
        return evidence.found("suspended", text, ADMIN, soft=True, tell_at=late)
    waits = [
        c for c in _conditions(evidence.workload) if c["type"] == "QuotaReserved" and c["status"] == "False"
    ]
    words = waits[0].get("message", "") if waits else ""
    if "doesn't exist" in words:
        fix = f"Name a queue that exists. {ADMIN}"
        return evidence.found("no-queue", "The queue for its GPUs doesn't exist.", fix, words)
    if stopped := re.search(r"(?:Local|Cluster)Queue (\S+) is inactive", words):
        text = f"The queue for its GPUs, `{stopped[1]}`, is stopped."
        return evidence.found("queue-stopped", text, ADMIN, words, tell_at=late)
    if too_much := _never(words):
        return evidence.found("queue-too-small", too_much, "Ask for fewer GPUs, or for more quota.", words)
    lacks = re.search(r"unused quota for (\S+) in flavor (\S+), (\S+) more needed", words)
    need = f": it needs {lacks[3]} more {_thing(lacks[1], lacks[3])} in {lacks[2]}" if lacks else ""
    fix = "It starts by itself as soon as others end." if lacks else ""
    return evidence.found("queued", f"It is queued by Kueue{need}.", fix, words, soft=True, tell_at=late)


def refused_pod(evidence: TrialEvidence) -> Diagnosis | None:
    """5. The Job exists, and a quota or a webhook refuses its pod; the Job's events are the only sign."""
    event = evidence.last("FailedCreate")
    if evidence.job is None or evidence.pod or event is None or evidence.ended_badly:
        return None
    words = event.get("message", "")
    if "exceeded quota" in words:
        return evidence.found("quota", *_quota(words), words)
    if away := webhook_away(words):
        return evidence.found("webhook", *away, words)
    text = "Kubernetes refuses to make its pod."
    if "Unable to find primary container" in words:
        text = "Katib finds no training container in the pod, and refuses it."
    return evidence.found("no-pod", text, ADMIN, words)


def webhook_away(words: str) -> tuple[str, str] | None:
    """Return text and fix for a webhook that doesn't answer; with failurePolicy Fail it stops every pod.

    Katib's is asked about all pods of a namespace with its label, also about those of builds.
    """
    hook = re.search(r'failed calling webhook "([^"]+)"', words)
    if hook is None:
        return None
    text = f"The webhook `{hook[1]}` doesn't answer, so Kubernetes refuses every pod in this namespace."
    if not hook[1].endswith(".katib.kubeflow.org"):
        return text, f"It starts by itself when the webhook is back. {ADMIN}"
    restart = "`kubectl -n kubeflow rollout restart deployment katib-controller`"
    return text, f"An admin must bring Katib back, for example with {restart}."


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


def _services(evidence: TrialEvidence) -> str:
    """What the pods of the search service wait for, or what the suggestion says."""
    said = []
    for pod in evidence.services:
        for each in pod.get("status", {}).get("containerStatuses") or ():
            for state in (each.get("state") or {}, each.get("lastState") or {}):
                why = state.get("waiting") or state.get("terminated") or {}
                said.append(": ".join(filter(None, (why.get("reason"), why.get("message")))))
        said += [
            c.get("message", "")
            for c in _conditions(pod)
            if c["type"] == "PodScheduled" and c["status"] == "False"
        ]
    said += [c.get("message", "") for c in _conditions(evidence.suggestion) if c["type"] == "DeploymentReady"]
    return "\n".join(dict.fromkeys(filter(None, said)))


def _out_of_memory(evidence: TrialEvidence) -> bool:
    states = [
        each for pod in evidence.services for each in pod.get("status", {}).get("containerStatuses") or ()
    ]
    ends = [
        (each.get(key) or {}).get("terminated") or {} for each in states for key in ("state", "lastState")
    ]
    return any(end.get("reason") == "OOMKilled" for end in ends)


def _thing(resource: str, number: str) -> str:
    return resource if resource != GPU else "GPU" if number == "1" else "GPUs"


def _never(words: str) -> str:
    """Too much for every flavor of the queue. An older Kueue says `(24 > 16)` at the end."""
    most = re.findall(
        r"insufficient quota for (\S{1,300}) in flavor (\S{1,300}), .{0,300}?"
        r"maximum capacity \((?:[^()]{1,200} > )?([^\s()]{1,40})\)",
        words,
    )
    if not most or "unused quota" in words:
        return ""
    said = " and ".join(
        f"{number} {_thing(resource, number)} in {flavor}" for resource, flavor, number in most
    )
    return f"Its queue can never admit it: it may use {said} in all, which is less than it asks for."


def _quota(words: str) -> tuple[str, str]:
    """And what to do: a request above the limit itself waits in vain."""
    numbers = [
        re.search(rf"{word}: [^:]*?nvidia\.com/gpu=(\d{{1,9}})", words)
        for word in ("requested", "used", "limited")
    ]
    more = "ask for fewer GPUs, or for more quota."
    if not all(numbers):
        return (
            "Your namespace's quota is used up.",
            f"When others of your namespace end, it may start; else {more}",
        )
    asked, used, limit = (int(n[1]) for n in numbers if n)
    requests = counted(asked, "GPU")
    if asked > limit:
        text = f"The trial can never start: it requests {requests}, and the namespace quota is {limit}."
        return text, f"{more[0].upper()}{more[1:]}"
    text = f"Over quota: the trial requests {requests}; {used} of the namespace's {limit} are in use."
    return text, f"It starts by itself when others of your namespace end; {more}"
