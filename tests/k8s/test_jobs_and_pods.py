"""What recorded Jobs and pods mean."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.health.diagnosis import waiting
from k8s.jobs import JobState, read_job
from k8s.pods import read_pod
from tests.bot.health import real_messages
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
        (real_messages.CORDONED, "The pod can't be scheduled for now."),
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
