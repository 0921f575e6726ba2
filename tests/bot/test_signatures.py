"""What the signatures of trouble find in the real systems' words, and when it is worth telling."""

from datetime import timedelta

import pytest

from bot.firsttrial import follow
from bot.lifecycle import look_again
from bot.models import EventKind, Mood, Phase
from bot.observation import Observation
from bot.scene import Scene
from bot.signatures import SIGNATURES, diagnose, due, next_due
from k8s.objects import timestamp
from tests.bot import words
from tests.bot.sweeps import NOW, a_sweep

EARLIER = timestamp(NOW - timedelta(seconds=30))
META = {"name": "t1", "namespace": "sweeps", "uid": "u", "creationTimestamp": EARLIER}
TRIAL = {"metadata": META, "spec": {"parameterAssignments": [{"name": "lr", "value": "0.1"}]}, "status": {}}
JOB = {"metadata": META, "spec": {}, "status": {}}
CONTAINERS = [{"name": "main"}, {"name": "metrics-logger-and-collector"}]


def a_pod(**status):
    return {"metadata": META, "spec": {"nodeName": "n1", "containers": CONTAINERS}, "status": status}


def in_state(state, **status):
    return a_pod(containerStatuses=[{"name": "main", "state": state}], **status)


def ended(code, reason="Error", **status):
    return in_state({"terminated": {"exitCode": code, "reason": reason}}, phase="Failed", **status)


def running(**status):
    return in_state({"running": {"startedAt": EARLIER}}, phase="Running", **status)


def waiting(reason, message):
    return in_state({"waiting": {"reason": reason, "message": message}}, phase="Pending")


def an_event(reason, message, count=1):
    return {
        "reason": reason,
        "message": message,
        "count": count,
        "firstTimestamp": EARLIER,
        "lastTimestamp": EARLIER,
    }


def found(pod=None, trial=TRIAL, job=JOB, **known):
    experiment = {"metadata": META, "status": {}}
    scene = Scene(
        now=NOW, metric="loss", gpus=1, experiment=experiment, trial=trial, job=job, pod=pod, **known
    )
    return diagnose(scene)


def key(*args, **known):
    diagnosis = found(*args, **known)
    return diagnosis and diagnosis.key


def test_the_table_has_all_numbers_of_the_reference():
    assert {number for number, _ in SIGNATURES} == set(range(1, 24))


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
    [(words.CUDA_OOM, None), (words.NCCL, None), (words.HUNG, "nccl"), (words.NAN, "nan")],
)
def test_a_running_training_may_have_caught_an_error(log, expected):
    """Some look for the largest batch by trying."""
    assert key(running(), log=log) == expected


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


def unscheduled(message, seconds):
    at = timestamp(NOW - timedelta(seconds=seconds))
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return a_pod(phase="Pending", conditions=[{**why, "lastTransitionTime": at}])


@pytest.mark.parametrize(("seconds", "told"), [(2, 0), (54, 0), (55, 1)])
def test_a_pod_waits_for_a_node_most_of_a_minute_before_it_is_told(seconds, told):
    diagnosis = found(unscheduled(words.UNSCHEDULABLE, seconds))
    assert len(due([diagnosis], NOW)) == told
    assert next_due([diagnosis], NOW) == (None if told else NOW + timedelta(seconds=55 - seconds))


def test_a_cluster_that_grows_is_no_reason_to_say_never():
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    scene = {
        "pod": unscheduled(words.UNSCHEDULABLE, 5),
        "trial": TRIAL,
        "nodes": (node,),
        "experiment": {"metadata": META},
    }
    assert diagnose(Scene(now=NOW, metric="loss", gpus=8, **scene)).key == "never-fits"
    grows = diagnose(
        Scene(now=NOW, metric="loss", gpus=8, **scene, events=(an_event("TriggeredScaleUp", words.SCALE_UP),))
    )
    assert (grows.key, grows.soft) == ("unschedulable", True)
    assert "adding one" in grows.text


@pytest.mark.parametrize(
    ("reason", "message"),
    [("PreemptionByScheduler", words.PREEMPTED), ("DeletionByTaintManager", words.TAINT)],
)
def test_a_disrupted_pod_is_nobodys_failure(reason, message):
    """The Job's podFailurePolicy makes another one."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    diagnosis = found(ended(137, conditions=[condition]))
    assert (diagnosis.key, diagnosis.soft, diagnosis.failed) == ("evicted", True, False)


def test_the_training_is_blamed_when_its_collector_fails_with_it():
    over = [
        {"name": n, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        for n in ("main", "metrics-collector")
    ]
    assert key(a_pod(phase="Failed", containerStatuses=over), log=words.TRACEBACK) == "crash"


def test_katibs_two_writers_in_each_others_way_are_no_trouble():
    assert key(job=None, events=(an_event("ReconcileError", words.CONFLICT, 9),)) is None


def test_nan_that_katib_counts_as_a_success_is_told():
    metrics = [{"name": "loss", "min": "NaN", "max": "NaN", "latest": "NaN"}]
    done = [{"type": "Succeeded", "status": "True"}]
    trial = {**TRIAL, "status": {"conditions": done, "observation": {"metrics": metrics}}}
    assert key(in_state({"terminated": {"exitCode": 0}}, phase="Succeeded"), trial=trial) == "nan"


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
