"""What recorded Jobs and pods mean."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.platform.pod_health.diagnosis import waiting
from k8s.jobs import JobState, read_job
from k8s.objects import timestamp
from k8s.pods import READER, read_pod
from tests.bot.sweep.features.health import real_messages
from tests.recordings.__init__ import body


@pytest.mark.parametrize(
    ("recording", "state"),
    [
        ("04-job-running", JobState.ACTIVE),
        ("04-job-while-imagepullbackoff", JobState.ACTIVE),
        ("04-job-failed", JobState.FAILED),
        ("05-job-deadline", JobState.FAILED),
        ("05-job-complete", JobState.COMPLETE),
    ],
)
def test_job_is_active_without_a_final_condition(recording, state):
    assert read_job(body(recording)).state is state


def test_job_with_terminating_pods_has_not_failed_yet():
    job = body("04-job-failed")
    job["status"]["conditions"] = [c for c in job["status"]["conditions"] if c["type"] == "FailureTarget"]
    assert read_job(job).state is JobState.ACTIVE


def test_job_that_failed_has_time_and_reason():
    job = read_job(body("05-job-deadline"))
    assert job.ended == datetime(2026, 11, 21, 12, 56, 50, tzinfo=UTC)
    assert job.message == "DeadlineExceeded: Job was active longer than specified deadline"


@pytest.mark.parametrize(
    ("recording", "key"),
    [
        ("04-pod-pending-fresh", None),
        ("04-pod-containercreating", None),
        ("04-pod-running", None),
        ("04-pod-unschedulable", "unschedulable"),
        ("04-pod-errimagepull", "image-pull"),
        ("04-pod-imagepullbackoff", "image-pull"),
    ],
)
def test_pod_waiting_reason_is_read(recording, key):
    found = waiting(read_pod(body(recording), "kaniko"))
    assert (found and found.key) == key


@pytest.mark.parametrize(
    ("scheduler_message", "text"),
    [
        (
            real_messages.NO_MEMORY,
            "The pod is pending: not enough free memory on 1 node. It starts when memory is released.",
        ),
        (
            real_messages.TAINTED_NOW,
            "The pod can't be scheduled: untolerated taints on 34 nodes.",
        ),
        (real_messages.CORDONED, "The pod can't be scheduled yet (1 node(s) were unschedulable)."),
    ],
)
def test_waiting_of_a_build_pod_names_no_gpus(scheduler_message, text):
    pod = replace(read_pod(body("04-pod-unschedulable"), "kaniko"), unschedulable=scheduler_message)
    assert waiting(pod).text == text


def test_pod_messages_are_kept_verbatim():
    found = waiting(read_pod(body("04-pod-unschedulable"), "kaniko"))
    assert found.detail.startswith("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")


def test_pod_being_deleted_still_has_its_gpus():
    pod = read_pod(body("07-pod-terminating"), "kaniko")
    assert not pod.finished


def an_init_pod(init, main):
    statuses = {"initContainerStatuses": [{"name": "fetch", "state": init}]}
    return {
        "metadata": {"name": "p"},
        "status": {**statuses, "containerStatuses": [{"name": "kaniko", "state": main}]},
    }


INITIALIZING = {"waiting": {"reason": "PodInitializing"}}


def test_pod_waits_for_what_its_init_container_waits_for():
    refused = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    assert read_pod(an_init_pod(refused, INITIALIZING), "kaniko").waiting == ("ErrImagePull", "no such image")
    runs = read_pod(an_init_pod({"running": {}}, INITIALIZING), "kaniko")
    assert (runs.waiting[0], runs.init_failed) == ("PodInitializing", "")


def test_pod_with_a_failed_init_container_names_it():
    failed = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert read_pod(an_init_pod(failed, INITIALIZING), "kaniko").init_failed == "fetch"
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert read_pod(an_init_pod(done, {"running": {}}), "kaniko").init_failed == ""


START = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("training", "collector", "unread"),
    [
        ((0, 1, 60), (1, 20, 61), True),  # it looked for the training's process, which had ended
        ((0, 1, 60), (255, 58, 62), True),
        ((0, 1, 60), (0, 20, 61), False),
        ((1, 1, 60), (1, 20, 61), False),
        ((0, 1, 900), (1, 20, 905), False),  # it has found it, and failed for another reason
        ((0, 30, 60), (1, 1, 20), False),  # it gave up before the training started
    ],
)
def test_training_is_unread_if_a_collector_that_started_late_failed(training, collector, unread):
    def state(code, started, ended):
        times = {"startedAt": timestamp(START + timedelta(seconds=started))}
        times["finishedAt"] = timestamp(START + timedelta(seconds=ended))
        return {"terminated": {"exitCode": code, **times}}

    states = {"main": state(*training), "metrics-collector": state(*collector)}
    statuses = [{"name": name, "state": each} for name, each in states.items()]
    pod = {"metadata": {"name": "t1"}, "status": {"phase": "Failed", "containerStatuses": statuses}}
    assert bool(read_pod(pod, "main").unread) is unread


NO_REPORT = "Can't report the metrics to Katib at db:6789: timed out"


@pytest.mark.parametrize(
    ("training", "reader", "why"),
    [
        (0, {"terminated": {"exitCode": 1, "message": f'{{"metric": "loss"}}\n{NO_REPORT}\n'}}, NO_REPORT),
        (0, {"terminated": {"exitCode": 137}}, "the reader ended with exit code 137"),
        (0, {"waiting": {"reason": "CrashLoopBackOff"}}, "the reader ended with exit code unknown"),
        (0, {"terminated": {"exitCode": 0}}, ""),
        (1, {"terminated": {"exitCode": 1, "message": NO_REPORT}}, ""),
    ],
)
def test_training_is_unread_if_the_reader_could_not_report(training, reader, why):
    main = {"name": "main", "state": {"terminated": {"exitCode": training}}}
    status = {"containerStatuses": [main], "initContainerStatuses": [{"name": READER, "state": reader}]}
    for phase in ("Running", "Succeeded"):
        pod = {"metadata": {"name": "t1"}, "status": {"phase": phase, **status}}
        expected = f"its metrics weren't stored: {why}" if why and phase == "Succeeded" else ""
        assert read_pod(pod, "main").unread == expected
