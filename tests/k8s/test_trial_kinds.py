"""What is read of Jobs, PyTorchJobs, and TrainJobs, and of their pods."""

import pytest

from k8s.jobs import JobState, read_job
from k8s.kueue import read_workload
from k8s.pods import is_trial_pod, read_trial_pod, read_trial_pods
from k8s.slim import slim
from k8s.trial_kinds import JOB, TRAIN_JOB, creators_of_pods, pod_index

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


def jobsets_pod(index, created="2026-11-21T12:00:05Z"):
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "t1",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-name": "t1-node-0",
        "batch.kubernetes.io/job-completion-index": index,
    }
    owner = {"kind": "Job", "name": "t1-node-0", "uid": "below", "controller": True}
    name = f"t1-node-0-{index}-abcde"
    meta = {"name": name, "labels": labels, "ownerReferences": [owner], "creationTimestamp": created}
    states = [{"name": "node", "state": {"running": {"startedAt": created}}}]
    return {"kind": "Pod", "metadata": meta, "status": {"phase": "Running", "containerStatuses": states}}


def train_job(*conditions, suspend=False):
    at = "2026-11-21T12:03:00Z"
    found = [{"type": each, "status": "True", "lastTransitionTime": at} for each in conditions]
    meta = {"name": "t1", "uid": "u1", "creationTimestamp": "2026-11-21T12:00:00Z"}
    status = {"conditions": found, "jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}
    return {"kind": "TrainJob", "metadata": meta, "spec": {"suspend": suspend}, "status": status}


def test_read_trial_pods_of_a_train_job_reads_its_name_and_its_uid():
    pods = [slim(jobsets_pod(index)) for index in ("0", "2")]
    found = list(read_trial_pods(pods, [slim(train_job())]))
    assert [(p.job, p.job_uid, p.index, p.container, p.running) for p in found] == [
        ("t1", "u1", 0, "node", True),
        ("t1", "u1", 2, "node", True),
    ]


def test_read_trial_pods_of_an_earlier_train_job_of_that_name_has_no_uid():
    pods = [slim(jobsets_pod("0", created="2026-11-21T11:59:00Z"))]
    [found] = read_trial_pods(pods, [slim(train_job())])
    assert (found.job, found.job_uid) == ("t1", "")


def test_read_trial_pods_has_the_pod_of_a_trial_that_was_evicted_before_its_next_one():
    def pod(name, second, phase):
        labels = {"batch.kubernetes.io/job-name": "t1"}
        meta = {"name": name, "labels": labels, "creationTimestamp": f"2026-11-21T12:00:0{second}Z"}
        return {"metadata": meta, "status": {"phase": phase}}

    by_name = [pod("t1-b", 2, "Running"), pod("t1-c", 2, "Failed"), pod("t1-d", 1, "Failed")]
    assert [each.name for each in read_trial_pods(by_name, ())] == ["t1-d", "t1-c", "t1-b"]


def test_read_trial_pods_drops_pods_of_no_job_and_keeps_the_owner_of_others():
    service = {"kind": "Pod", "metadata": {"name": "tpe", "labels": {}}}
    [found] = read_trial_pods([service, slim(operators_pod("master", "0", {}))], [slim(pytorch_job())])
    assert (found.job, found.job_uid) == ("t1", "u1")


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), JobState.ACTIVE),
        (("Complete",), JobState.COMPLETE),
        (("Failed",), JobState.FAILED),
    ],
)
def test_read_job_of_a_train_job_reads_its_state(conditions, state):
    job = read_job(slim(train_job(*conditions)))
    assert (job.kind, job.name, job.uid, job.state, job.suspended) == ("TrainJob", "t1", "u1", state, False)


def test_read_job_of_a_train_job_computes_its_time_from_its_conditions():
    """Its status has no startTime or completionTime."""
    assert read_job(train_job("Complete")).seconds == 180
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-21T12:02:00Z"}
    queued = train_job("Complete")
    queued["status"]["conditions"].append(resumed)
    assert read_job(slim(queued)).seconds == 60


def test_read_job_of_a_suspended_train_job():
    assert read_job(slim(train_job("Suspended", suspend=True))).suspended


def test_read_workload_of_a_train_job_names_it():
    owner = {"kind": "TrainJob", "name": "t1", "uid": "u1"}
    template = {"metadata": {}, "spec": {"containers": [{"name": "node"}]}}
    spec = {"podSets": [{"name": "node", "count": 3, "template": template}]}
    found = read_workload(
        {"metadata": {"name": "trainjob-t1-1a2b3", "ownerReferences": [owner]}, "spec": spec}
    )
    assert found.job == "t1"


def test_creators_of_pods_of_a_train_job_are_all_objects_above_them():
    assert creators_of_pods(JOB, "t1") == (("Job", "t1"),)
    assert creators_of_pods(TRAIN_JOB, "t1") == (("TrainJob", "t1"), ("JobSet", "t1"), ("Job", "t1-node-0"))
