"""What the signatures of trouble find in the real systems' words, and when it is worth telling."""

from datetime import timedelta

import pytest

from bot.firsttrial import follow
from bot.lifecycle import look_again
from bot.models import EventKind, Mood, Phase
from bot.observation import Observation
from bot.signatures import SIGNATURES, due
from tests.bot import words
from tests.bot.scenes import (
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
from tests.bot.sweeps import NOW, a_sweep


def test_the_table_has_the_order_of_the_reference_but_for_four():
    order = [1, 2, 3, 4, 5, 20, *range(6, 13), *range(14, 24), 1, 8, 13]
    assert [number for number, _ in SIGNATURES] == order


@pytest.mark.parametrize("cause", words.PULLS)
def test_why_an_image_is_not_pulled(cause):
    assert key(waiting("ErrImagePull", words.PULLS[cause])) == cause.strip()
    assert (
        key(waiting("ImagePullBackOff", f"{words.BACK_OFF}: ErrImagePull: {words.PULLS[cause]}"))
        == cause.strip()
    )


@pytest.mark.parametrize("cause", words.PULLS)
def test_an_older_kubelet_has_the_cause_in_its_event(cause):
    events = (an_event("Failed", f'Failed to pull image "reg.example/lab/x:1": {words.PULLS[cause]}'),)
    assert key(waiting("ImagePullBackOff", words.BACK_OFF), events=events) == cause.strip()


def test_a_first_failure_to_pull_may_pass_and_a_second_is_told():
    failed = f"Failed to pull image: {words.PULLS['image-pull']}"
    pod = waiting("ErrImagePull", words.PULLS["image-pull"])
    once, twice = (found(pod, events=(an_event("Failed", failed, count),)) for count in (1, 2))
    assert (once.tell_at, twice.tell_at) == (NOW - timedelta(seconds=20), None)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (words.TRACEBACK, "crash"),
        (words.SHM, "shared-memory"),
        (words.KILLED_LOADER, "memory"),
        (words.CUDA_OOM, "gpu-memory"),
        (words.OLD_CUDA_OOM, "gpu-memory"),
        (words.NO_DRIVER, "cuda"),
        (words.OLD_DRIVER, "cuda"),
        (words.NOT_AVAILABLE, "cuda"),
        (words.NOT_AVAILABLE_PRINTED, "cuda"),
        (words.NOT_AVAILABLE_EQUALS, "cuda"),
        (words.NO_MPS, "crash"),
        (words.NCCL, "nccl"),
        (words.HUNG, "nccl"),
        (f"{words.NCCL}\n{words.CUDA_OOM}", "gpu-memory"),  # the other ranks only lose their connection
        (words.NAN, "nan"),
        ("step 3 loss 0.4 nanoseconds 12", "crash"),
    ],
)
def test_what_the_log_of_a_failed_training_says(log, expected):
    diagnosis = found(ended(1), log=f"starting\n{log}")
    assert (diagnosis.key, diagnosis.failed, diagnosis.lasting) == (expected, True, True)
    assert diagnosis.parameters == {"lr": "0.1"}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (words.CUDA_OOM, None),
        (words.NCCL, None),
        (words.HUNG, "nccl"),
        (words.NAN, "nan"),
        (f"{words.NOT_AVAILABLE_PRINTED}, using cpu", "cuda"),
        (words.NOT_AVAILABLE_EQUALS, "cuda"),
        (words.NO_MPS, None),
    ],
)
def test_a_running_training_may_have_caught_an_error(log, expected):
    """Some look for the largest batch by trying."""
    assert key(running(), log=log) == expected


@pytest.mark.parametrize(
    ("pod", "log", "expected"),
    [
        (running(), words.NOT_AVAILABLE_PRINTED, None),
        (ended(1), f"{words.NOT_AVAILABLE_PRINTED}\n{words.TRACEBACK}", "crash"),
        (ended(1), words.NOT_AVAILABLE, "cuda"),
    ],
)
def test_who_asks_for_no_gpu_may_say_that_there_is_none(pod, log, expected):
    assert key(pod, log=log, gpus=0) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [(words.UNHEALTHY_GPU, "device"), (words.LOST_GPU, "device"), (words.OUT_OF_GPU, "out-of")],
)
def test_a_node_refuses_the_pod(message, expected):
    reason = "UnexpectedAdmissionError" if expected == "device" else "OutOfnvidia.com/gpu"
    assert key(a_pod(phase="Failed", reason=reason, message=message)) == expected


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("CreateContainerConfigError", words.NO_ENV_SECRET, "config"),
        ("CreateContainerConfigError", words.NO_KEY, "config"),
        ("ErrImageNeverPull", words.NEVER_PULL, "image-name"),
        ("CrashLoopBackOff", words.CRASH_LOOP, "crash"),
    ],
)
def test_what_a_container_waits_for(reason, message, expected):
    assert key(waiting(reason, message)) == expected


@pytest.mark.parametrize(
    ("reason", "message"),
    [("PreemptionByScheduler", words.PREEMPTED), ("DeletionByTaintManager", words.TAINT)],
)
def test_a_disrupted_pod_is_nobodys_failure(reason, message):
    """The Job's podFailurePolicy makes another one."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    diagnosis = found(ended(137, conditions=[condition]))
    assert (diagnosis.key, diagnosis.soft, diagnosis.failed) == ("evicted", True, False)


def test_a_trial_that_took_too_long_is_told_what_ended_it():
    pod = ended(137, message=words.OVER_TIME)
    pod["status"]["reason"] = "DeadlineExceeded"
    pod["spec"] = {**pod["spec"], "activeDeadlineSeconds": 5400}
    diagnosis = found(pod, log="step 9")
    assert (diagnosis.key, diagnosis.soft) == ("over-time", False)
    assert "ended after 1.5 hours" in diagnosis.text
    assert "`hours:`" in diagnosis.mend


def test_a_full_disk_is_no_wait_though_the_job_makes_another_pod():
    """At node pressure the kubelet says so itself: kubernetes' pkg/kubelet/eviction/eviction_manager.go."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "reason": "Evicted",
        "message": words.EVICTED,
        "conditions": [{**why, "message": words.EVICTED}],
    }
    diagnosis = found(ended(137, **status))
    assert (diagnosis.key, diagnosis.soft, diagnosis.lasting) == ("disk", False, False)
    sweep = follow(a_sweep(Phase.RUNNING), seen(diagnosis))
    assert (sweep.health.mood, sweep.health.text) == (Mood.TROUBLED, diagnosis.text)


@pytest.mark.parametrize(
    ("message", "limit"),
    [(words.OVER_DISK, "1Gi"), (words.OVER_CONTAINER_DISK, "2Gi"), (words.OVER_VOLUME, "3Gi")],
)
def test_a_limit_of_its_own_is_not_the_nodes_full_disk(message, limit):
    pod = ended(137, message=message)
    pod["status"]["reason"] = "Evicted"
    diagnosis = found(pod)
    assert diagnosis.key == "disk-limit"
    assert diagnosis.text == f"The trial wrote more than its limit of {limit} to the container's disk."


def test_katibs_database_is_blamed_only_when_the_collector_says_so():
    pod = a_pod(
        phase="Failed",
        containerStatuses=[
            {"name": "main", "state": {"terminated": {"exitCode": 0}}},
            {"name": "metrics-collector", "state": {"terminated": {"exitCode": 1}}},
        ],
    )
    said = [found(pod, collector_log=log).text for log in (words.NO_DB, words.TRACEBACK)]
    assert ["can't reach Katib's database" in text for text in said] == [True, False]


def test_the_training_is_blamed_when_its_collector_fails_with_it():
    over = [
        {"name": n, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        for n in ("main", "metrics-collector")
    ]
    assert key(a_pod(phase="Failed", containerStatuses=over), log=words.TRACEBACK) == "crash"


def test_katibs_two_writers_in_each_others_way_are_no_trouble():
    assert key(job=None, events=(an_event("ReconcileError", words.CONFLICT, 9),)) is None


@pytest.mark.parametrize(
    ("latest", "text"), [("NaN", "`loss` is NaN."), ("-inf", "`loss` is infinite."), ("0.5", None)]
)
def test_what_is_no_number_and_katib_counts_as_a_success_is_told(latest, text):
    metrics = [{"name": "loss", "min": latest, "max": latest, "latest": latest}]
    done = [{"type": "Succeeded", "status": "True"}]
    trial = {**TRIAL, "status": {"conditions": done, "observation": {"metrics": metrics}}}
    diagnosis = found(in_state({"terminated": {"exitCode": 0}}, phase="Succeeded"), trial=trial)
    assert getattr(diagnosis, "text", None) == text


@pytest.mark.parametrize(
    "pod", [None, a_pod(phase="Pending"), running(), in_state({"terminated": {"exitCode": 0}})]
)
def test_nothing_is_wrong_with_a_trial_on_its_way(pod):
    diagnosis = found(pod, log="epoch 1 loss: 0.71")
    assert diagnosis is None or due([diagnosis], NOW) == ()


def seen(*diagnoses):
    return Observation(trouble=diagnoses)


def test_the_message_follows_what_is_found_and_a_failure_stays():
    waits = found(unscheduled(words.UNSCHEDULABLE, 61))
    sweep = follow(a_sweep(Phase.PROVING), seen(waits))
    assert sweep.health.mood is Mood.WAITING
    assert follow(sweep, seen(waits)) == sweep
    assert follow(sweep, seen()) == sweep
    sweep = follow(sweep, seen(found(waiting("ErrImagePull", words.PULLS["image-login"]))))
    assert (sweep.health.mood, sweep.health.key) == (Mood.TROUBLED, "image-login")
    sweep = follow(sweep, seen(found(ended(1), log=words.CUDA_OOM)))
    assert (sweep.health.mood, sweep.examined) == (Mood.FAILED, ("t1",))
    assert follow(sweep, seen(waits)) == sweep
    other = follow(sweep, seen(found(ended(1), log=words.NAN)))
    assert other.health == sweep.health
    assert [e.kind for e in other.unsaid] == [EventKind.HEALTH, EventKind.TRIAL_FAILED]


def test_what_is_due_is_looked_at_in_time():
    proving = a_sweep(Phase.PROVING)
    assert look_again(proving, proving, timedelta(seconds=7)) == timedelta(seconds=7)
    assert look_again(proving, proving, timedelta(minutes=7)) == timedelta(seconds=20)


DENIED = "Traceback (most recent call last):\nPermissionError: [Errno 13] Permission denied: 'checkpoints'"


def test_a_training_that_may_not_write_is_told_as_whom_it_runs():
    pod = ended(1)
    main = {"name": "main", "securityContext": {"runAsUser": 1000}}
    mine = {**pod, "spec": {**pod["spec"], "containers": [main, *pod["spec"]["containers"][1:]]}}
    assert "runs as user 1000, not as root: write below /tmp" in found(mine, log=DENIED).mend
    assert "not as root" not in found(pod, log=DENIED).mend, "the image says who it is"
    assert "not as root" not in found(mine, log=words.TRACEBACK).mend
