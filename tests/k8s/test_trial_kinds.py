"""What is read of Jobs and PyTorchJobs, and of their pods."""

import pytest

from k8s.jobs import JobState, read_job
from k8s.kueue import read_workload
from k8s.pods import is_trial_pod, read_trial_pod
from k8s.slim import slim
from k8s.trial_kinds import pod_index

OPERATOR = "training.kubeflow.org"


def operators_pod(kind, index, state):
    labels = {
        f"{OPERATOR}/job-name": "t1",
        f"{OPERATOR}/replica-type": kind,
        f"{OPERATOR}/replica-index": index,
    }
    owner = {"kind": "PyTorchJob", "name": "t1", "uid": "u1", "controller": True}
    meta = {"name": f"t1-{kind}-{index}", "labels": labels, "ownerReferences": [owner]}
    statuses = [{"name": "metrics-collector", "state": {}}, {"name": "pytorch", "state": state}]
    return {"kind": "Pod", "metadata": meta, "status": {"phase": "Running", "containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("kind", "index", "number"), [("master", "0", 0), ("worker", "0", 1), ("worker", "2", 3)]
)
def test_pod_index_of_a_pytorch_job_counts_the_master_as_the_first_worker(kind, index, number):
    assert pod_index(operators_pod(kind, index, {})) == number


@pytest.mark.parametrize(
    ("labels", "number"),
    [
        ({}, 0),
        ({"batch.kubernetes.io/job-completion-index": "2"}, 2),
        ({f"{OPERATOR}/replica-index": "-1"}, 0),
    ],
)
def test_pod_index_of_other_pods(labels, number):
    assert pod_index({"metadata": {"labels": labels}}) == number


def test_read_trial_pod_of_a_pytorch_job_reads_the_training_and_its_job():
    pod = slim(operators_pod("worker", "1", {"running": {"startedAt": "2026-11-21T12:00:00Z"}}))
    seen = read_trial_pod(pod)
    assert (seen.job, seen.job_uid, seen.index, seen.container) == ("t1", "u1", 2, "pytorch")
    assert seen.running
    assert is_trial_pod(pod)


def pytorch_job(*conditions, suspend=False):
    at = "2026-11-21T12:00:00Z"
    status = {"startTime": at, "completionTime": "2026-11-21T12:01:00Z"}
    status["conditions"] = [{"type": each, "status": "True", "lastTransitionTime": at} for each in conditions]
    spec = {"runPolicy": {"suspend": suspend, "cleanPodPolicy": "Running"}}
    return {"kind": "PyTorchJob", "metadata": {"name": "t1", "uid": "u1"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        (("Created",), JobState.ACTIVE),
        (("Created", "Running"), JobState.ACTIVE),
        (("Created", "Succeeded"), JobState.COMPLETE),
        (("Created", "Failed"), JobState.FAILED),
    ],
)
def test_read_job_of_a_pytorch_job_reads_its_state(conditions, state):
    job = read_job(slim(pytorch_job(*conditions)))
    assert (job.kind, job.name, job.state, job.suspended) == ("PyTorchJob", "t1", state, False)


def test_read_job_of_a_suspended_pytorch_job():
    assert read_job(slim(pytorch_job("Created", "Suspended", suspend=True))).suspended


def test_read_workload_of_a_pytorch_job_names_it_and_counts_all_gpus():
    container = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {"metadata": {"labels": {"sweepbot/sweep": "lr-otter"}}, "spec": {"containers": [container]}}
    sets = [{"name": name, "count": n, "template": template} for name, n in (("master", 1), ("worker", 3))]
    owner = {"kind": "PyTorchJob", "name": "t1", "uid": "u1"}
    meta = {"name": "pytorchjob-t1-1a2b3", "ownerReferences": [owner]}
    found = read_workload({"metadata": meta, "spec": {"podSets": sets}})
    assert (found.job, found.sweep, found.gpus) == ("t1", "lr-otter", 32)
