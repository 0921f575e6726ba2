"""Why a first trial has no pod, and what to do (rules R1 to R5, R25, R29, and R31): suggestion service,
rejected space, Kueue's queue, place in it, and too few GPUs, quotas, webhooks, policies, operators. Pure.

A soft diagnosis is a wait that can end without a fix; it is reported from `report_at` on.
"""

import re
from datetime import datetime, timedelta
from typing import TypeGuard

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import TrialEvidence, created_at, event_time, since
from bot.platform.pod_health.queue_words import (
    NEVER,
    NO_QUEUE,
    NO_QUOTA_FOR,
    STOPPED,
    is_bypassed,
    lacking,
    refused,
    resource_name,
    waits,
)
from bot.text.wording import listed, trial_size
from k8s.engine import Experiment, ExperimentState
from k8s.katib.training import INJECTION_LABEL
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL, has_fitting_flavor, read_workload
from k8s.objects import Manifest, condition, conditions, true_conditions
from k8s.quantities import any_amount
from k8s.trial_kinds import PYTORCH_JOB, TRAIN_JOB, is_suspended

ADMIN = "Ask an admin to check."
WAIT_GRACE = 55.0  # seconds before a wait is reported, so that the message is there within a minute
RETRY_GRACE = 10.0  # seconds in which a controller or kubelet retries what failed once
# Of trials of several nodes: what runs them, and its Deployments.
OPERATORS = {
    PYTORCH_JOB.kind: ("The Training Operator", "kubeflow", "training-operator"),
    TRAIN_JOB.kind: (
        *("Kubeflow Trainer 2 or its JobSet controller", "kubeflow-system"),
        "kubeflow-trainer-controller-manager jobset-controller-manager",
    ),
}
KATIB_SERVICE = re.compile(r"//katib-controller\.([a-z0-9-]{1,63})\.svc[:/]")
KUEUE_SERVICE = re.compile(r"//kueue-webhook-service\.([a-z0-9-]{1,63})\.svc[:/]")
# What the API server says of a pod that it refuses, and what that is in words
REFUSALS = (
    (r"exceeded quota: ([^,]{1,253}),", "the namespace's quota `{}` has no room"),
    (r'violates PodSecurity "([^"]{1,80})"', "the namespace's Pod Security level `{}` doesn't allow it"),
    (r'admission webhook "([^"]{1,253})" denied', "the policy of webhook `{}` doesn't allow it"),
    (r"ValidatingAdmissionPolicy '([^']{1,253})'", "the policy `{}` doesn't allow it"),
    (
        r"(m(?:ax|in)imum \S{1,300} usage per \w{1,20} is [^,]{1,40}, but \w{1,20} is \w{1,40})",
        "the namespace's LimitRange: {}",
    ),
    (r'serviceaccount "([^"]{1,253})" not found', "service account `{}` doesn't exist"),
    (r"no PriorityClass with name (\S{1,253})", "PriorityClass `{}` doesn't exist"),
    (r'RuntimeClass "([^"]{1,253})" not found', "RuntimeClass `{}` doesn't exist"),
)
AMOUNT = re.compile(r"([\w./-]{1,300})=(\d{1,20}(?:[KMGTPE]i|[mkMGTPE])?)(?![\w.])")  # of a quota
UNSPECIFIED = re.compile(r"([a-z.]{1,20}) for: ")
CONFLICT = "the object has been modified"  # optimistic locking: the controller retries


def no_suggestion(evidence: TrialEvidence) -> Diagnosis | None:
    """R1: Katib creates a trial only after its suggestion service has answered."""
    experiment, search = evidence.experiment, evidence.search
    if evidence.trial or not _is_open(experiment):
        return None
    rejected = None if evidence.services else evidence.last("FailedCreate")
    if rejected:
        words = rejected.get("message", "").rpartition("Error creating: ")[2]
        what = f"Kubernetes rejected the pod of Katib's suggestion service{rejection(words)}."
        text, fix = webhook_away(words) or (what, ADMIN)
        return evidence.found("suggestion-pod", text, fix, words, report_at=again(rejected))
    words, killed = _services(evidence), _out_of_memory(evidence)
    if queue := _queue_of_services(evidence):
        text = f"Kueue holds Katib's suggestion service in its queue `{queue}`, so no trial can start."
        fix = "Ask an admin to give that LocalQueue another name: docs/queues.md."
        late = after(experiment.created, WAIT_GRACE)
        return evidence.found("suggestion-queued", text, fix, words, soft=True, report_at=late)
    if killed or (search and not search.ready and search.rejection is None):
        state = "ran out of memory" if killed else "isn't ready"
        text = f"Katib's suggestion service {state}"
        at = None if killed else after(experiment.created, WAIT_GRACE)
        return evidence.found(
            "suggestion", f"{text}, so no trial can start.", ADMIN, words, soft=True, report_at=at
        )
    return None


def stuck_experiment(evidence: TrialEvidence) -> Diagnosis | None:
    """R25: Katib fails to reconcile the experiment; only an event shows it, the experiment stays Created."""
    experiment = evidence.experiment
    if evidence.trial or not _is_open(experiment):
        return None
    event = evidence.last("ReconcileError")
    if event and CONFLICT not in event.get("message", ""):
        text, at = "Katib can't reconcile the experiment, so no trial can start.", again(event)
        return evidence.found("experiment", text, ADMIN, _reconciled(event), report_at=at)
    text = "Katib hasn't created a trial and gives no reason."
    at = after(experiment.created, WAIT_GRACE)
    fix = "Ask an admin to check the Katib controller."
    return evidence.found("no-trial", text, fix, soft=True, report_at=at)


def settings(evidence: TrialEvidence) -> Diagnosis | None:
    """R2: the suggestion service rejected the search space, which fails the experiment."""
    search = evidence.search
    if evidence.trial or search is None or search.rejection is None:
        return None
    words = re.sub(r"^Validation failed: (Validate\w+ Error: )?", "", search.rejection)
    text = "Katib rejected the search space."
    fix = "Correct `algorithm` or `parameters` in the space file, then start the sweep again."
    return evidence.found("settings", text, fix, words, lasting=True)


def no_job(evidence: TrialEvidence) -> Diagnosis | None:
    """R3: the trial has no Job: permissions, the template, or an admission policy."""
    event = evidence.last("ReconcileError")
    if evidence.trial is None or evidence.job or event is None or CONFLICT in event.get("message", ""):
        return None
    words, late = _reconciled(event), after(evidence.trial.created, RETRY_GRACE)
    if away := webhook_away(words, "the trial's Job"):
        return evidence.found("webhook", *away, words, report_at=late)
    return evidence.found("no-job", "Katib can't create the trial's Job.", ADMIN, words, report_at=late)


def queued(evidence: TrialEvidence) -> Diagnosis | None:
    """R4: Kueue keeps the Job suspended until its queue has quota; an error only if it never can."""
    if not is_suspended(evidence.job):
        return None
    late = created_at(evidence.job, later=WAIT_GRACE)
    if evidence.workload is None:
        return _unqueued(evidence, late)
    reserved = condition(evidence.workload, "QuotaReserved", "False")
    words, reason = reserved.get("message", ""), reserved.get("reason", "")
    if NO_QUEUE.search(words):
        text = "The trial's Kueue queue doesn't exist."
        return evidence.found("no-queue", text, "Use an existing queue, or ask an admin.", words)
    if stopped := STOPPED.search(words):
        text = f"The trial's Kueue queue `{stopped[1]}` is stopped or misconfigured."
        return evidence.found("queue-stopped", text, ADMIN, words, report_at=late)
    if too_much := _exceeds_quota(words):
        resources = {resource for resource, _, _ in NEVER.findall(words)}
        less = fewer(evidence) if evidence.resource in resources else f"less {listed(sorted(resources))}"
        fix = f"Request {less}, or ask an admin for more quota."
        return evidence.found("queue-too-small", too_much, fix, words)
    if no_quota := NO_QUOTA_FOR.search(words):
        text = f"The trial can't start: its Kueue queue has no quota for {no_quota[1]}."
        fix = f"Ask an admin to add {no_quota[1]} to the ClusterQueue."
        return evidence.found("queue-lacks", text, fix, words)
    if why := refused(words, reason):
        text = f"Kueue can't start the trial: {why}."
        return evidence.found("queue-refuses", text, ADMIN, words, report_at=late)
    found, place = read_workload(evidence.workload), _place(evidence.position)
    if not found.active:
        text = "Held in its queue: the Workload is inactive."
        fix = "If the sweep is held, run `/sweep queue release`; otherwise, ask an admin."
        why = found.eviction[1] or words  # such as too many retries
        return evidence.found("parked", text, fix, why, soft=True, report_at=late)
    if found.checks:
        text = "Kueue reserved quota and waits for machines."
        return evidence.found("checks", text, "", found.checks, soft=True, report_at=late)
    lacks = lacking(words)
    need = f": needs {lacks[2]} more {resource_name(lacks[0], lacks[2])} in {lacks[1]}" if lacks else ""
    need = need or (f": {clause}" if (clause := waits(words, reason)) else "")
    fix = "None needed; the trial starts when quota is released." if lacks or is_bypassed(words) else ""
    return evidence.found("queued", f"Queued by Kueue{need}{place}.", fix, words, soft=True, report_at=late)


def _place(position: int | None) -> str:
    """Return the place in the queue, rounded: each new text is an edit in Slack."""
    if position is None:
        return ""
    if position == 0:
        return "; next in its queue"
    rounded = next((step for step in (500, 200, 100, 50, 20) if position > step), 0)
    return f"; {f'more than {rounded}' if rounded else position} ahead of it in its queue"


def _unqueued(evidence: TrialEvidence, late: datetime | None) -> Diagnosis:
    """Kueue creates no Workload, and up to 0.19 no event, for a Job with an unknown priority class."""
    name = (evidence.job or {}).get("metadata", {}).get("labels", {}).get(PRIORITY_LABEL)
    fix = f"Ask an admin to check that the WorkloadPriorityClass `{name}` exists." if name else ADMIN
    if event := evidence.last("WorkloadPriorityClassNotFound"):
        text, words = "Kueue can't queue the trial: its priority class doesn't exist.", event["message"]
        return evidence.found("no-class", text, fix, words, report_at=again(event))
    text = "The trial's Job is suspended, and Kueue gives no reason."
    return evidence.found("suspended", text, fix, soft=True, report_at=late)


def unspecified(words: str) -> str:
    """Name what a quota requires and containers don't set, of `limits.cpu for: a; limits.memory for: a,b`."""
    return listed(f"`{name}`" for name in UNSPECIFIED.findall(words.partition("must specify ")[2]))


def refused_pod(evidence: TrialEvidence) -> Diagnosis | None:
    """R5: a quota or a webhook rejects the pod; only the Job's events show it."""
    event = evidence.last("FailedCreate", "FailedCreatePod")  # the latter of PyTorchJobs
    if evidence.job is None or evidence.pod or event is None or evidence.trial_failed:
        return None
    words = event.get("message", "")
    if "exceeded quota" in words:
        return evidence.found("quota", *_quota(words, evidence), words)
    if away := webhook_away(words):
        return evidence.found("webhook", *away, words)
    if "Unable to find primary container" in words:
        text = "Katib rejected the trial's pod: it didn't find the training container."
        return evidence.found("no-pod", text, ADMIN, words)
    text = f"Kubernetes rejected the {evidence.noun}'s pod{rejection(words)}."
    return evidence.found("no-pod", text, ADMIN, words, report_at=again(event))


def rejection(words: str) -> str:
    """Return why the API server rejects a pod, after a colon; "" if that isn't known."""
    matches = ((re.search(pattern, words), why) for pattern, why in REFUSALS)
    needs = unspecified(words)
    quota = f": the namespace's quota requires {needs} to be set" if needs else ""
    return next((f": {why.format(match[1])}" for match, why in matches if match), quota)


def no_operator(evidence: TrialEvidence) -> Diagnosis | None:
    """R29: no operator has seen the PyTorchJob or TrainJob.

    The Training Operator sets the condition Created at once. Trainer creates a JobSet and copies its counts
    of Jobs, which the JobSet controller sets at once. Trainer 2.0 copies none, so the time counts from when
    it resumed a TrainJob.
    """
    kind = (evidence.job or {}).get("kind", "")
    if kind not in OPERATORS or evidence.pod or _is_seen(evidence.job):
        return None
    operator, namespace, deployments = OPERATORS[kind]
    text = f"{operator} isn't responding, so the trial has no pods."
    restart = f"`kubectl -n {namespace} rollout restart deployment {deployments}`"
    fix = f"Ask an admin to restore it, for example with {restart}."
    times = [
        created_at(evidence.job, later=WAIT_GRACE),
        *(since(each, later=WAIT_GRACE) for each in conditions(evidence.job).values()),
    ]
    return evidence.found("no-operator", text, fix, report_at=max(filter(None, times), default=None))


def _is_seen(job: Manifest | None) -> bool:
    if job is None or job["kind"] != TRAIN_JOB.kind:
        return bool(conditions(job))
    return bool(job.get("status", {}).get("jobsStatus") or true_conditions(job))


def refused_by_trainer(evidence: TrialEvidence) -> Diagnosis | None:
    """R31: Trainer or JobSet can't create what is between a TrainJob and its pods."""
    event = evidence.last(
        "TrainJobResourcesCreationFailed", "JobCreationFailed", "HeadlessServiceCreationFailed"
    )
    if evidence.job is None or evidence.pod or event is None or evidence.trial_failed:
        return None
    words, at = event.get("message", ""), again(event)
    if away := webhook_away(words):
        return evidence.found("webhook", *away, words, report_at=at)
    text = f"{TRAIN_JOB.operator} can't create the trial's pods."
    return evidence.found("no-jobset", text, ADMIN, words, report_at=at)


def webhook_away(words: str, what: str = "every pod in this namespace") -> tuple[str, str] | None:
    """Return text and fix for a webhook that doesn't answer; with failurePolicy Fail it blocks every object.

    Katib's webhook reviews all pods of a namespace with its label, also those of builds. Kueue's review all
    Jobs, in a queue or not, but nothing in its own namespace. Their names don't say whose they are.
    """
    hook = re.search(r'failed calling webhook "([^"]+)"', words)
    if hook is None:
        return None
    if kueue := KUEUE_SERVICE.search(words):
        text = f"Kueue's webhook `{hook[1]}` isn't responding, so Kubernetes rejects {what}."
        restart = f"`kubectl -n {kueue[1]} rollout restart deployment kueue-controller-manager`"
        return text, f"Ask an admin to restore Kueue, for example with {restart}."
    text = f"The webhook `{hook[1]}` isn't responding, so Kubernetes rejects {what}."
    if not hook[1].endswith(".katib.kubeflow.org"):
        return text, "Ask an admin to restore the webhook; the pod then starts without further action."
    katib = KATIB_SERVICE.search(words)
    restart = katib_restart(katib[1] if katib else "kubeflow")
    return text, f"Ask an admin to restore Katib, such as by `{restart}`."


def katib_restart(namespace: str, controller: str = "deployment") -> str:
    """Return shell commands that start katib-controller, a `deployment` or a `statefulset`, again.

    Stock manifests label Katib's own namespace, too. While the label is there and no controller answers,
    the webhook rejects the pod of a new one.
    """
    label, rollout = (
        f"kubectl label namespace {namespace} {INJECTION_LABEL}",
        f"kubectl -n {namespace} rollout",
    )
    steps = (
        f"{label}-",
        f"{rollout} restart {controller} katib-controller",
        f"{rollout} status {controller} katib-controller",
        f"{label}=enabled",
    )
    return " && ".join(steps)


def again(event: Manifest) -> datetime | None:
    """Return when to report an event: now (None) if it repeated, else after RETRY_GRACE."""
    return None if event.get("count", 1) > 1 else after(event_time(event, first=True), RETRY_GRACE)


def after(at: datetime | None, seconds: float) -> datetime | None:
    return at and at + timedelta(seconds=seconds)


def _is_open(experiment: Experiment | None) -> TypeGuard[Experiment]:
    return experiment is not None and experiment.state is ExperimentState.RUNNING


def _reconciled(event: Manifest) -> str:
    return str(event.get("message", "")).removeprefix("Failed to reconcile: ")


def _services(evidence: TrialEvidence) -> str:
    """Return why the pods of the suggestion service wait, or what is known of its start."""
    reasons = []
    for pod in evidence.services:
        stops = [state.get("waiting") or state.get("terminated") or {} for state in _states(pod)]
        reasons += [": ".join(filter(None, (why.get("reason"), why.get("message")))) for why in stops]
        reasons.append(condition(pod, "PodScheduled", "False").get("message", ""))
    reasons.append(evidence.search.message if evidence.search else "")
    return "\n".join(dict.fromkeys(filter(None, reasons)))


def _queue_of_services(evidence: TrialEvidence) -> str:
    """Return the LocalQueue in which pods of the suggestion service wait; "" if none does."""
    for pod in evidence.services:
        why = condition(pod, "PodScheduled", "False").get("reason")
        queue = (pod["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        if queue and why == "SchedulingGated":
            return str(queue)
    return ""


def _out_of_memory(evidence: TrialEvidence) -> bool:
    states = (state for pod in evidence.services for state in _states(pod))
    return any((state.get("terminated") or {}).get("reason") == "OOMKilled" for state in states)


def _states(pod: Manifest) -> list[Manifest]:
    """Return the current and the last state of each container."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return [each.get(key) or {} for each in statuses for key in ("state", "lastState")]


def _exceeds_quota(words: str) -> str:
    """Return a text if the request exceeds every flavor's quota. An older Kueue ends with `(24 > 16)`."""
    most = NEVER.findall(words)
    if not most or has_fitting_flavor(words):
        return ""
    quota = " and ".join(
        f"{number} {resource_name(resource, number)} in {flavor}" for resource, flavor, number in most
    )
    return f"The trial can never be admitted: its queue's quota is {quota}, less than the trial requests."


def _quota(words: str, evidence: TrialEvidence) -> tuple[str, str]:
    """Return text and fix; a request above the limit itself can never start."""
    numbers = [
        re.search(rf"{word}: [^:]*?nvidia\.com/gpu=(\d{{1,9}})", words)
        for word in ("requested", "used", "limited")
    ]
    noun, workers = evidence.noun, evidence.workers
    more = f"request {fewer(evidence)}, or ask an admin for more quota."
    if not all(numbers):
        return _other_quota(words, evidence)
    requested, used, limit = (int(n[1]) for n in numbers if n)
    requests = trial_size(workers, requested)
    if requested * workers > limit:
        text = f"The {noun} can never start: it requests {requests}, and the namespace quota is {limit}."
        return text, f"{more[0].upper()}{more[1:]}"
    text = f"Over quota: the {noun} requests {requests}; {used} of the namespace's {limit} are in use."
    return text, f"Wait for running jobs to finish, {more}"


def _other_quota(words: str, evidence: TrialEvidence) -> tuple[str, str]:
    """Return text and fix for a quota of other resources, such as `limits.memory`."""
    before, _, after = words.partition(", used: ")
    requested, limits = (dict(AMOUNT.findall(part)) for part in (before, after.partition("limited: ")[2]))
    for name, wanted in requested.items():
        if name in limits and any_amount(wanted) > any_amount(limits[name]):
            text = (
                f"The {evidence.noun} can never start: it requests {name}={wanted}, and the namespace quota"
            )
            return f"{text} is {limits[name]}.", "Ask an admin for more quota, or for smaller trials."
    names = f" of {', '.join(requested)}" if requested else ""
    fix = "Wait for running jobs to finish, or ask an admin for more quota."
    return f"The namespace's quota{names} is used up.", fix


def fewer(evidence: TrialEvidence) -> str:
    return "fewer GPUs" if evidence.workers == 1 else "fewer nodes or GPUs"
