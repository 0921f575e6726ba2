"""Rules for a Job without a pod: Kueue's queue, quotas, and webhooks."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.record import Phase
from bot.platform.pod_health.queue_words import fits_quota
from bot.sweep.features.health.collect import EvidenceCollector
from k8s.kueue import read_workload
from k8s.objects import timestamp
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
    ADMIN,
    JOB,
    META,
    READ_TRIAL,
    TRIAL,
    a_pod,
    an_event,
    expected,
    found,
    key,
)
from tests.bot.sweep.model.observations import OPEN


def kueue(message, reason="Pending", **known):
    why = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    job = {**JOB, "spec": {"suspend": True}}
    workload = {"metadata": META, "status": {"conditions": [why]}} if message else None
    return found(job=job, workload=workload, **known)


@pytest.mark.parametrize(
    ("message", "cause", "soft", "text"),
    [
        (real_messages.NO_QUOTA, "queued", True, "needs 2 more GPUs in gpu-a100."),
        (real_messages.ONE_FLAVOR_TOO_SMALL, "queued", True, "needs 1 more GPU in ml.g5.8xlarge."),
        (real_messages.TOO_MUCH, "queue-too-small", False, "its queue's quota is 8 GPUs in gpu-a100, less"),
        (
            real_messages.TOO_MUCH_BEFORE,
            "queue-too-small",
            False,
            "its queue's quota is 16 GPUs in gpu-flavor, less",
        ),
        (real_messages.STOPPED_QUEUE, "queue-stopped", False, "`team-cq` is stopped or misconfigured."),
        (real_messages.NO_QUEUE, "no-queue", False, "doesn't exist"),
        ("", "suspended", True, "Kueue gives no reason"),
    ],
)
def test_queued_real_message_names_the_cause(message, cause, soft, text):
    diagnosis = kueue(message)
    assert (diagnosis.key, diagnosis.soft) == (cause, soft)
    assert text in diagnosis.text
    assert ("None needed" in diagnosis.fix) == (cause == "queued")


def test_queued_names_what_is_missing_and_who_can_change_it():
    lacks = (
        "couldn't assign flavors to pod set {}: insufficient unused quota for nvidia.com/gpu in flavor a100, "
    )
    words = f"{lacks.format('master')}2 more needed; {lacks.format('worker')}6 more needed"
    assert "needs 6 more GPUs in a100" in kueue(words).text
    fix = "Request fewer nodes or GPUs, or ask an admin for more quota."
    assert kueue(real_messages.TOO_MUCH, workers=3).fix == fix
    job = {**JOB, "spec": {"suspend": True}}
    workload = {"metadata": META, "spec": {"active": False}}
    diagnosis = found(job=job, workload=workload)
    assert (diagnosis.key, diagnosis.soft) == ("parked", True)
    text = "The trial's Kueue queue `team-cq` is stopped or misconfigured."
    assert kueue(real_messages.STOPPED_QUEUE) == expected(
        "queue-stopped", text, ADMIN, real_messages.STOPPED_QUEUE, due=25
    )
    text = "The trial's Job is suspended, and Kueue gives no reason."
    assert kueue("") == expected("suspended", text, ADMIN, soft=True, due=25)
    workload = {"metadata": META, "status": {"conditions": [OTHER, RESERVED]}}
    assert found(job=job, workload=workload).detail == ""
    assert found(job=job, workload={"metadata": META}).text == "Queued by Kueue."
    one, two = (
        real_messages.TOO_MUCH,
        real_messages.TOO_MUCH.replace("gpu-a100", "gpu-l4").replace("(8)", "(1)"),
    )
    assert "quota is 8 GPUs in gpu-a100 and 1 GPU in gpu-l4, less" in kueue(f"{one}, {two}").text


def test_no_operator_only_if_no_condition_and_no_job_set_shows_one():
    job = {**JOB, "kind": "PyTorchJob"}
    restart = "`kubectl -n kubeflow rollout restart deployment training-operator`"
    assert found(job=job) == expected(
        "no-operator",
        "The Training Operator isn't responding, so the trial has no pods.",
        f"Ask an admin to restore it, for example with {restart}.",
        due=25,
    )
    created = {"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "x"}
    assert key(job={**job, "status": {"conditions": [created]}}) is None
    assert key(job=JOB) is None
    job = {**JOB, "kind": "TrainJob"}
    missing = found(job=job)
    assert missing.key == "no-operator"
    assert (
        missing.text
        == "Kubeflow Trainer 2 or its JobSet controller isn't responding, so the trial has no pods."
    )
    deployments = "kubeflow-trainer-controller-manager jobset-controller-manager"
    assert f"`kubectl -n kubeflow-system rollout restart deployment {deployments}`" in missing.fix
    assert key(job={**job, "status": {"jobsStatus": [{"name": "node", "active": 1}]}}) is None
    # Trainer 2.0 sets no counts.
    suspended = {"type": "Suspended", "status": "True", "reason": "Suspended", "message": "x"}
    suspended["lastTransitionTime"] = timestamp(NOW - timedelta(seconds=600))
    assert key(job={**job, "status": {"conditions": [suspended]}}) is None
    resumed = {**suspended, "status": "False", "lastTransitionTime": timestamp(NOW - timedelta(seconds=5))}
    assert found(job={**job, "status": {"conditions": [resumed]}}).report_at == NOW + timedelta(seconds=50)


@pytest.mark.parametrize(
    ("reason", "words", "cause"),
    [
        ("TrainJobResourcesCreationFailed", real_messages.JOBSET_REFUSED, "no-jobset"),
        ("JobCreationFailed", "jobs.batch is forbidden: exceeded quota: jobs", "no-jobset"),
        ("TrainJobResourcesCreationFailed", real_messages.JOBSET_AWAY, "webhook"),
    ],
)
def test_train_job_without_pods_is_explained_by_the_event_of_trainer_or_jobset(reason, words, cause):
    diagnosis = found(job={**JOB, "kind": "TrainJob"}, events=(an_event(reason, words),))
    assert (diagnosis.key, diagnosis.detail) == (cause, words)
    if cause == "no-jobset":
        assert diagnosis.text == "Kubeflow Trainer 2 can't create the trial's pods."
    else:
        assert diagnosis.text.startswith("The webhook `vjobset.kb.io` isn't responding")


def test_refused_pod_above_the_quota_can_never_start_and_others_wait():
    fits, never = (
        found(events=(an_event("FailedCreate", words),))
        for words in (real_messages.QUOTA, real_messages.SMALL_QUOTA)
    )
    assert "requests 8 GPUs; 56 of the namespace's 60 are in use" in fits.text
    assert "Wait for running jobs to finish" in fits.fix
    assert never.text.startswith(
        "The trial can never start: it requests 8 GPUs, and the namespace quota is 4"
    )
    assert "Wait" not in never.fix
    assert refused(real_messages.SMALL_QUOTA.replace("gpu=4", "gpu=8")).text.startswith("Over quota")
    assert refused(real_messages.QUOTA.replace("gpu=8", "gpu=1")).text.startswith(
        "Over quota: the trial requests 1 GPU;"
    )
    diagnosis = found(events=(an_event("FailedCreatePod", f"Error creating: {real_messages.QUOTA}"),))
    assert "requests 8 GPUs; 56 of the namespace's 60 are in use" in diagnosis.text
    assert refused(real_messages.QUOTA, pod=a_pod(phase="Running")) is None
    assert refused(real_messages.QUOTA, job=None) is None
    assert key() is None
    why = ("no-pod", "Kubernetes rejected the trial's pod.", ADMIN, real_messages.NO_RIGHT)
    assert refused(real_messages.NO_RIGHT) == expected(*why, due=-20)
    assert found(events=(an_event("FailedCreate", real_messages.NO_RIGHT, 2),)) == expected(*why)


NO_ANSWER = "The webhook `{}` isn't responding, so Kubernetes rejects every pod in this namespace."
LABEL = "kubectl label namespace kubeflow katib.kubeflow.org/metrics-collector-injection"
RESTORE_KATIB = (  # its webhook rejects the controller's own new pod while the label is there
    f"Ask an admin to restore Katib, such as by `{LABEL}- && "
    "kubectl -n kubeflow rollout restart deployment katib-controller && "
    f"kubectl -n kubeflow rollout status deployment katib-controller && {LABEL}=enabled`."
)
NEVER_ENOUGH_MEMORY = (
    "The trial can never start: it requests limits.memory=512Gi, and the namespace quota is 256Gi."
)
NEVER_ADMITTED = (
    "The trial can never be admitted: its queue's quota is 8 GPUs in gpu-a100, less than the trial requests."
)
LESS = "Request fewer GPUs, or ask an admin for more quota."
OTHER = {"type": "Evicted", "status": "False", "message": "not evicted"}
RESERVED = {"type": "QuotaReserved", "status": "True", "message": "Quota reserved in ClusterQueue team-cq"}


@pytest.mark.parametrize(
    ("message", "diagnosis"),
    [
        (
            real_messages.NO_QUEUE,
            ("no-queue", "The trial's Kueue queue doesn't exist.", "Use an existing queue, or ask an admin."),
        ),
        (
            real_messages.NO_RESOURCE,
            (
                "queue-lacks",
                "The trial can't start: its Kueue queue has no quota for cpu.",
                "Ask an admin to add cpu to the ClusterQueue.",
            ),
        ),
        (
            real_messages.TOO_MUCH,
            (
                "queue-too-small",
                NEVER_ADMITTED,
                LESS,
            ),
        ),
        (
            real_messages.TOO_MUCH.replace("nvidia.com/gpu", "memory"),
            (
                "queue-too-small",
                NEVER_ADMITTED.replace("8 GPUs", "8 memory"),
                "Request less memory, or ask an admin for more quota.",
            ),
        ),
    ],
)
def test_queued_that_can_never_start_is_reported_at_once(message, diagnosis):
    assert kueue(message) == expected(*diagnosis, message)


@pytest.mark.parametrize(
    ("reason", "text", "soft", "fits"),
    [
        ("WaitingForQuota", "Queued by Kueue: needs more quota.", True, True),
        (
            "ExceedsMaxQuota",
            "Kueue can't start the trial: its queue's quota is too small for it.",
            False,
            False,
        ),
        ("NoMatchingFlavor", "Kueue can't start the trial: no flavor of its queue fits it.", False, False),
    ],
)
def test_trial_that_kueue_refuses_like_an_equal_one_has_only_a_reason(reason, text, soft, fits):
    diagnosis = kueue(real_messages.BYPASSED, reason)
    assert (diagnosis.text, diagnosis.soft) == (text, soft)
    why = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": real_messages.BYPASSED}
    workload = read_workload({"metadata": {"name": "w"}, "status": {"conditions": [why]}})
    assert fits_quota(workload) is fits


def test_fix_for_too_few_slices_of_gpus_is_fewer_of_them():
    message = real_messages.TOO_MUCH.replace("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")
    assert kueue(message, resource="nvidia.com/mig-1g.5gb").fix == LESS


@pytest.mark.parametrize(
    ("message", "diagnosis"),
    [
        (
            real_messages.NO_QUOTA,
            (
                "queued",
                "Queued by Kueue: needs 2 more GPUs in gpu-a100.",
                "None needed; the trial starts when quota is released.",
            ),
        ),
        ("inactive workload", ("queued", "Queued by Kueue.", "")),
        (
            real_messages.NO_QUOTA.replace("nvidia.com/gpu", "cpu"),
            (
                "queued",
                "Queued by Kueue: needs 2 more cpu in gpu-a100.",
                "None needed; the trial starts when quota is released.",
            ),
        ),
    ],
)
def test_queued_that_can_start_is_a_wait(message, diagnosis):
    assert kueue(message) == expected(*diagnosis, message, soft=True, due=25)


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (real_messages.NO_QUOTA, True),
        (real_messages.TOO_MUCH, False),
        (real_messages.ONE_FLAVOR_TOO_SMALL, True),
        (f"{real_messages.TOO_MUCH}, {real_messages.TOPOLOGY}", True),
        (real_messages.NO_RESOURCE, False),
        (real_messages.NO_DEVICE_CLASS, False),
        (real_messages.STOPPED_QUEUE, False),
        (real_messages.NO_QUEUE, False),
    ],
)
def test_workload_fits_its_queue_unless_no_flavor_can_ever_take_it(message, fits):
    reserved = {"type": "QuotaReserved", "status": "False", "message": message}
    assert (
        fits_quota(read_workload({"metadata": {"name": "w"}, "status": {"conditions": [reserved]}})) is fits
    )


@pytest.mark.parametrize(
    ("position", "place"),
    [
        (None, ""),
        (0, "; next in its queue"),
        (1, "; 1 ahead of it in its queue"),
        (20, "; 20 ahead of it in its queue"),
        (21, "; more than 20 ahead of it in its queue"),
        (100, "; more than 50 ahead of it in its queue"),
        (501, "; more than 500 ahead of it in its queue"),
    ],
)
def test_queued_names_the_place_in_rounded_steps(position, place):
    job = {**JOB, "spec": {"suspend": True}}
    diagnosis = found(job=job, workload={"metadata": META}, position=position)
    assert diagnosis.text == f"Queued by Kueue{place}."


@pytest.mark.parametrize(
    ("state", "cause"), [("Pending", "checks"), ("Retry", "checks"), ("Ready", "queued")]
)
def test_queued_with_quota_waits_for_its_admission_checks(state, cause):
    job = {**JOB, "spec": {"suspend": True}}
    reserved = {"type": "QuotaReserved", "status": "True"}
    check = {"name": "machines", "state": state, "message": "Creating 2 nodes."}
    status = {"conditions": [reserved], "admissionChecks": [check]}
    diagnosis = found(job=job, workload={"metadata": META, "status": status})
    assert (diagnosis.key, diagnosis.detail) == (cause, "Creating 2 nodes." if cause == "checks" else "")


def refused(message, **known):
    return found(events=(an_event("FailedCreate", message), an_event("SuccessfulDelete", "x")), **known)


@pytest.mark.parametrize(
    ("message", "diagnosis"),
    [
        (
            real_messages.QUOTA,
            (
                "quota",
                "Over quota: the trial requests 8 GPUs; 56 of the namespace's 60 are in use.",
                "Wait for running jobs to finish, request fewer GPUs, or ask an admin for more quota.",
            ),
        ),
        (
            real_messages.SMALL_QUOTA,
            (
                "quota",
                "The trial can never start: it requests 8 GPUs, and the namespace quota is 4.",
                LESS,
            ),
        ),
        (
            real_messages.QUOTA.replace("nvidia.com/gpu", "cpu"),
            (
                "quota",
                "The namespace's quota of requests.cpu is used up.",
                "Wait for running jobs to finish, or ask an admin for more quota.",
            ),
        ),
        (
            real_messages.MEMORY_QUOTA,
            (
                "quota",
                NEVER_ENOUGH_MEMORY,
                "Ask an admin for more quota, or for smaller trials.",
            ),
        ),
        (
            real_messages.KATIB_AWAY,
            (
                "webhook",
                NO_ANSWER.format("mutator.pod.katib.kubeflow.org"),
                RESTORE_KATIB,
            ),
        ),
        (
            real_messages.KATIB_AWAY.replace("katib-controller.kubeflow.", "katib-controller.katib."),
            (
                "webhook",
                NO_ANSWER.format("mutator.pod.katib.kubeflow.org"),
                RESTORE_KATIB.replace("namespace kubeflow", "namespace katib").replace(
                    "-n kubeflow", "-n katib"
                ),
            ),
        ),
        (
            real_messages.KATIB_AWAY.replace("mutator.pod.katib.kubeflow.org", "policy.kyverno.svc"),
            (
                "webhook",
                NO_ANSWER.format("policy.kyverno.svc"),
                "Ask an admin to restore the webhook; the pod then starts without further action.",
            ),
        ),
        (
            real_messages.NO_PRIMARY,
            ("no-pod", "Katib rejected the trial's pod: it didn't find the training container.", ADMIN),
        ),
    ],
)
def test_refused_pod_names_who_rejected_it(message, diagnosis):
    assert refused(message) == expected(*diagnosis, message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            real_messages.POD_SECURITY,
            "the namespace's Pod Security level `restricted:latest` doesn't allow it",
        ),
        (
            real_messages.LIMIT_RANGE,
            "the namespace's LimitRange: maximum memory usage per Container is 16Gi, but limit is 64Gi",
        ),
        (real_messages.GATEKEEPER, "the policy of webhook `validation.gatekeeper.sh` doesn't allow it"),
        (
            "failed quota: team: must specify limits.cpu for: a,b; limits.memory for: a",
            "the namespace's quota requires `limits.cpu` and `limits.memory` to be set",
        ),
    ],
)
def test_refused_pod_names_the_policy(message, why):
    text = f"Kubernetes rejected the trial's pod: {why}."
    assert refused(message) == expected("no-pod", text, ADMIN, message, due=-20)


@pytest.mark.parametrize("amount", ["9e9", "x", "1" * 40])
def test_refused_pod_with_an_unreadable_quota_is_reported_without_it(amount):
    message = f"exceeded quota: team, requested: limits.memory={amount}, used: a=1, limited: limits.memory=1"
    assert refused(message).text == "The namespace's quota is used up."


FLAVORS = "couldn't assign flavors to pod set main: "


@pytest.mark.parametrize(
    ("message", "cause", "text"),
    [
        ("ClusterQueue team-cq is stopped", "queue-stopped", "`team-cq` is stopped or misconfigured."),
        ("LocalQueue lab is terminating or missing", "no-queue", "doesn't exist."),
        (
            f"{FLAVORS}flavor a100 doesn't match node affinity",
            "queue-refuses",
            "no flavor of its queue has nodes that match its node selector.",
        ),
        (
            f"{FLAVORS}flavor a100 doesn't match node affinity, {real_messages.NO_QUOTA}",
            "queued",
            "needs 2 more GPUs in gpu-a100.",
        ),
        ("Workload namespace doesn't match ClusterQueue selector", "queue-refuses", "this namespace."),
        (
            real_messages.NO_DEVICE_CLASS,
            "queue-refuses",
            "isn't configured for the DeviceClass that it requests.",
        ),
        (real_messages.NO_TOPOLOGY, "queue-refuses", "fits its request for a topology."),
        (
            f"{real_messages.TOO_MUCH}, {real_messages.TOPOLOGY}",
            "queued",
            "Queued by Kueue: the nodes of topology default have no room for all its pods.",
        ),
    ],
)
def test_queued_says_whether_waiting_helps(message, cause, text):
    diagnosis = kueue(message)
    assert (diagnosis.key, diagnosis.soft) == (cause, cause == "queued")
    assert diagnosis.text.endswith(text)


def test_deactivated_workload_quotes_why():
    why = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    evicted = {"type": "Evicted", "status": "True", "reason": "DeactivatedDueToRequeuingLimitExceeded"}
    workload = {
        "metadata": META,
        "spec": {"active": False},
        "status": {"conditions": [evicted | {"message": why}]},
    }
    assert found(job={**JOB, "spec": {"suspend": True}}, workload=workload).detail == why


@pytest.mark.parametrize(("seconds", "reported"), [(60, []), (5, ["quota"])])
async def test_events_of_an_earlier_job_of_the_same_name_are_not_the_jobs(seconds, reported):
    """A trial of several nodes that starts again has a new Job of the same name."""
    at = timestamp(NOW - timedelta(seconds=seconds))
    event = an_event("FailedCreate", real_messages.QUOTA) | {"firstTimestamp": at, "lastTimestamp": at}
    event["involvedObject"] = {"kind": "Job", "name": "t1"}

    async def listed(kind, *_, **__):
        return [event] if kind == "Event" else []

    clients = SimpleNamespace(now=lambda: NOW, trials=SimpleNamespace(list=listed))
    collector = EvidenceCollector(a_sweep(Phase.PENDING), PLAN, clients)
    await collector.run(OPEN, (READ_TRIAL(TRIAL),), [JOB], [])
    assert [each.key for each in collector.found] == reported
