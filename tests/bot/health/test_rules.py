"""The rules with messages of the real systems, and when a diagnosis is due."""

from datetime import timedelta

import pytest

from bot.core.events import EventKind, HealthStatus
from bot.core.record import Phase
from bot.health.rules import RULES, due
from bot.sweeps.first_trials import follow
from bot.sweeps.lifecycle import requeue_after
from bot.sweeps.observation import Observation
from tests.bot.factories import NOW, a_sweep
from tests.bot.health import real_messages
from tests.bot.health.snapshots import (
    TRIAL,
    a_pod,
    an_event,
    ended,
    found,
    in_state,
    key,
    running,
    unscheduled,
    waiting,
)


def test_rules_have_unique_ids_and_start_their_docstrings_with_them():
    order = [1, 2, 3, 4, 5, 24, *range(6, 13), *range(14, 24), 25, 26, 13]
    assert [id_ for id_, _ in RULES] == [f"R{number}" for number in order]
    assert all(rule.__doc__.startswith(f"{id_}: ") for id_, rule in RULES)


@pytest.mark.parametrize("cause", real_messages.PULLS)
def test_image_real_message_names_the_cause(cause):
    assert key(waiting("ErrImagePull", real_messages.PULLS[cause])) == cause.strip()
    assert (
        key(
            waiting(
                "ImagePullBackOff", f"{real_messages.BACK_OFF}: ErrImagePull: {real_messages.PULLS[cause]}"
            )
        )
        == cause.strip()
    )


@pytest.mark.parametrize("cause", real_messages.PULLS)
def test_image_of_an_older_kubelet_reads_the_event(cause):
    events = (
        an_event("Failed", f'Failed to pull image "reg.example/lab/x:1": {real_messages.PULLS[cause]}'),
    )
    assert key(waiting("ImagePullBackOff", real_messages.BACK_OFF), events=events) == cause.strip()


def test_image_unknown_cause_is_reported_when_repeated():
    failed = f"Failed to pull image: {real_messages.PULLS['image-pull']}"
    pod = waiting("ErrImagePull", real_messages.PULLS["image-pull"])
    once, twice = (found(pod, events=(an_event("Failed", failed, count),)) for count in (1, 2))
    assert (once.report_at, twice.report_at) == (NOW - timedelta(seconds=20), None)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (real_messages.TRACEBACK, "crash"),
        (real_messages.SHM, "shared-memory"),
        (real_messages.KILLED_LOADER, "memory"),
        (real_messages.CUDA_OOM, "gpu-memory"),
        (real_messages.OLD_CUDA_OOM, "gpu-memory"),
        (real_messages.NO_DRIVER, "cuda"),
        (real_messages.OLD_DRIVER, "cuda"),
        (real_messages.NOT_AVAILABLE, "cuda"),
        (real_messages.NOT_AVAILABLE_PRINTED, "cuda"),
        (real_messages.NOT_AVAILABLE_EQUALS, "cuda"),
        (real_messages.NO_MPS, "crash"),
        (real_messages.NCCL, "nccl"),
        (real_messages.HUNG, "nccl"),
        (
            f"{real_messages.NCCL}\n{real_messages.CUDA_OOM}",
            "gpu-memory",
        ),  # the other ranks only lose their connection
        (real_messages.NAN, "nan"),
        ("step 3 loss 0.4 nanoseconds 12", "crash"),
    ],
)
def test_diagnose_failed_training_reads_its_log(log, expected):
    diagnosis = found(ended(1), log=f"starting\n{log}")
    assert (diagnosis.key, diagnosis.failed, diagnosis.lasting) == (expected, True, True)
    assert diagnosis.parameters == {"lr": "0.1"}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (real_messages.CUDA_OOM, None),
        (real_messages.NCCL, None),
        (real_messages.HUNG, "nccl"),
        (real_messages.NAN, "nan"),
        (f"{real_messages.NOT_AVAILABLE_PRINTED}, using cpu", "cuda"),
        (real_messages.NOT_AVAILABLE_EQUALS, "cuda"),
        (real_messages.NO_MPS, None),
    ],
)
def test_diagnose_running_training_ignores_errors_it_can_catch(log, expected):
    """Some look for the largest batch by trying."""
    assert key(running(), log=log) == expected


@pytest.mark.parametrize(
    ("pod", "log", "expected"),
    [
        (running(), real_messages.NOT_AVAILABLE_PRINTED, None),
        (ended(1), f"{real_messages.NOT_AVAILABLE_PRINTED}\n{real_messages.TRACEBACK}", "crash"),
        (ended(1), real_messages.NOT_AVAILABLE, "cuda"),
    ],
)
def test_no_cuda_without_requested_gpus_is_fine(pod, log, expected):
    assert key(pod, log=log, gpus=0) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (real_messages.UNHEALTHY_GPU, "device"),
        (real_messages.LOST_GPU, "device"),
        (real_messages.OUT_OF_GPU, "out-of"),
    ],
)
def test_device_rejected_pod_names_the_node(message, expected):
    reason = "UnexpectedAdmissionError" if expected == "device" else "OutOfnvidia.com/gpu"
    assert key(a_pod(phase="Failed", reason=reason, message=message)) == expected


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("CreateContainerConfigError", real_messages.NO_ENV_SECRET, "config"),
        ("CreateContainerConfigError", real_messages.NO_KEY, "config"),
        ("ErrImageNeverPull", real_messages.NEVER_PULL, "image-name"),
        ("CrashLoopBackOff", real_messages.CRASH_LOOP, "crash"),
    ],
)
def test_config_waiting_container_names_the_cause(reason, message, expected):
    assert key(waiting(reason, message)) == expected


@pytest.mark.parametrize(
    ("reason", "message"),
    [("PreemptionByScheduler", real_messages.PREEMPTED), ("DeletionByTaintManager", real_messages.TAINT)],
)
def test_evicted_disrupted_pod_is_a_soft_diagnosis(reason, message):
    """The Job's podFailurePolicy makes another one."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    diagnosis = found(ended(137, conditions=[condition]))
    assert (diagnosis.key, diagnosis.soft, diagnosis.failed) == ("evicted", True, False)


def test_evicted_over_its_time_limit_says_so():
    pod = ended(137, message=real_messages.OVER_TIME)
    pod["status"]["reason"] = "DeadlineExceeded"
    pod["spec"] = {**pod["spec"], "activeDeadlineSeconds": 5400}
    diagnosis = found(pod, log="step 9")
    assert (diagnosis.key, diagnosis.soft) == ("over-time", False)
    assert "time limit of 1.5 h." in diagnosis.text
    assert "`trial_hours:`" in diagnosis.fix


def test_evicted_full_disk_is_not_soft():
    """At node pressure the kubelet says so itself: kubernetes' pkg/kubelet/eviction/eviction_manager.go."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "reason": "Evicted",
        "message": real_messages.EVICTED,
        "conditions": [{**why, "message": real_messages.EVICTED}],
    }
    diagnosis = found(ended(137, **status))
    assert (diagnosis.key, diagnosis.soft, diagnosis.lasting) == ("disk", False, False)
    sweep = follow(a_sweep(Phase.RUNNING), seen(diagnosis))
    assert (sweep.health.status, sweep.health.text) == (HealthStatus.UNHEALTHY, diagnosis.text)


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (real_messages.OVER_DISK, "1Gi"),
        (real_messages.OVER_CONTAINER_DISK, "2Gi"),
        (real_messages.OVER_VOLUME, "3Gi"),
    ],
)
def test_evicted_over_its_own_disk_limit_names_it(message, limit):
    pod = ended(137, message=message)
    pod["status"]["reason"] = "Evicted"
    diagnosis = found(pod)
    assert diagnosis.key == "disk-limit"
    assert diagnosis.text == f"The trial exceeded its limit of {limit} for the container's disk."


def test_collector_names_the_database_only_if_its_log_does():
    pod = a_pod(
        phase="Failed",
        containerStatuses=[
            {"name": "main", "state": {"terminated": {"exitCode": 0}}},
            {"name": "metrics-collector", "state": {"terminated": {"exitCode": 1}}},
        ],
    )
    texts = [found(pod, collector_log=log).text for log in (real_messages.NO_DB, real_messages.TRACEBACK)]
    assert ["can't reach Katib's database" in text for text in texts] == [True, False]


def test_collector_that_fails_with_the_training_is_a_crash():
    over = [
        {"name": n, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        for n in ("main", "metrics-collector")
    ]
    assert key(a_pod(phase="Failed", containerStatuses=over), log=real_messages.TRACEBACK) == "crash"


def test_no_job_ignores_update_conflicts():
    assert key(job=None, events=(an_event("ReconcileError", real_messages.CONFLICT, 9),)) is None


@pytest.mark.parametrize(
    ("latest", "text"), [("NaN", "`loss` is NaN."), ("-inf", "`loss` is infinite."), ("0.5", None)]
)
def test_not_a_number_in_a_succeeded_trial_is_reported(latest, text):
    metrics = [{"name": "loss", "min": latest, "max": latest, "latest": latest}]
    done = [{"type": "Succeeded", "status": "True"}]
    trial = {**TRIAL, "status": {"conditions": done, "observation": {"metrics": metrics}}}
    diagnosis = found(in_state({"terminated": {"exitCode": 0}}, phase="Succeeded"), trial=trial)
    assert getattr(diagnosis, "text", None) == text


@pytest.mark.parametrize(
    "pod", [None, a_pod(phase="Pending"), running(), in_state({"terminated": {"exitCode": 0}})]
)
def test_diagnose_healthy_trial_finds_nothing(pod):
    diagnosis = found(pod, log="epoch 1 loss: 0.71")
    assert diagnosis is None or due([diagnosis], NOW) == ()


def seen(*diagnoses):
    return Observation(trouble=diagnoses)


def test_progress_updates_the_message_and_keeps_a_failure():
    waits = found(unscheduled(real_messages.UNSCHEDULABLE, 61))
    sweep = follow(a_sweep(Phase.PENDING), seen(waits))
    assert sweep.health.status is HealthStatus.WAITING
    assert follow(sweep, seen(waits)) == sweep
    assert follow(sweep, seen()) == sweep
    sweep = follow(sweep, seen(found(waiting("ErrImagePull", real_messages.PULLS["image-login"]))))
    assert (sweep.health.status, sweep.health.key) == (HealthStatus.UNHEALTHY, "image-login")
    sweep = follow(sweep, seen(found(ended(1), log=real_messages.CUDA_OOM)))
    assert (sweep.health.status, sweep.examined) == (HealthStatus.FAILED, ("t1",))
    assert follow(sweep, seen(waits)) == sweep
    other = follow(sweep, seen(found(ended(1), log=real_messages.NAN)))
    assert other.health == sweep.health
    assert [e.kind for e in other.outbox] == [EventKind.HEALTH, EventKind.TRIAL_FAILED]


def test_next_due_is_the_earliest_time_in_the_future():
    proving = a_sweep(Phase.PENDING)
    assert requeue_after(proving, proving, timedelta(seconds=7)) == timedelta(seconds=7)
    assert requeue_after(proving, proving, timedelta(minutes=7)) == timedelta(seconds=20)


DENIED = "Traceback (most recent call last):\nPermissionError: [Errno 13] Permission denied: 'checkpoints'"


def test_crash_without_write_permission_names_the_user():
    pod = ended(1)
    main = {"name": "main", "securityContext": {"runAsUser": 1000}}
    mine = {**pod, "spec": {**pod["spec"], "containers": [main, *pod["spec"]["containers"][1:]]}}
    assert (
        "Write below /tmp or to a volume that user 1000 can write to: the training runs as user 1000"
        in found(mine, log=DENIED).fix
    )
    assert "not as root" not in found(pod, log=DENIED).fix, "the image says who it is"
    assert "not as root" not in found(mine, log=real_messages.TRACEBACK).fix
