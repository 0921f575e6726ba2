"""Katib beside the Job controller and the garbage collector of the local cluster."""

from collections.abc import AsyncIterator

import pytest

from local.kubernetes.controllers.jobs import Controllers


@pytest.fixture
async def cluster(world) -> AsyncIterator[object]:
    controllers = Controllers(world.store)
    controllers.start()
    yield world
    await controllers.close()


def pods(world):
    return [pod for pod in world.store.list("Pod") if "deletionTimestamp" not in pod["metadata"]]


async def ended(world, pod, phase, code):
    """Report, as the kubelet does, a pod whose training has ended."""
    statuses = [
        {
            "name": one["name"],
            "state": {"terminated": {"exitCode": code, "reason": "Completed" if not code else "Error"}},
        }
        for one in pod["spec"]["containers"]
    ]
    patch = {"status": {"phase": phase, "containerStatuses": statuses}}
    await world.patch("Pod", pod["metadata"]["name"], patch, "status")


async def test_experiment_runs_from_first_to_last_pod(cluster):
    await cluster.experiment(maxTrialCount=3, parallelTrialCount=2)
    seen = set()
    while left := [pod for pod in pods(cluster) if pod["metadata"]["uid"] not in seen]:
        pod = left[0]
        seen.add(pod["metadata"]["uid"])
        cluster.katib.metrics.report(
            pod["metadata"]["labels"]["katib.kubeflow.org/trial"], cluster.losses("0.5")
        )
        await ended(cluster, pod, "Succeeded", 0)
    assert cluster.conditions()[-1] == ("Succeeded", "True", "ExperimentMaxTrialsReached")
    assert cluster.status()["trialsSucceeded"] == 3


async def test_pod_that_fails_fails_job_and_trial(cluster):
    await cluster.experiment(maxFailedTrialCount=1)
    (pod,) = pods(cluster)
    await ended(cluster, pod, "Failed", 1)
    assert (
        cluster.conditions(cluster.trials()[0], "Trial")[-1][2]
        == "TrialFailed. Job reason: BackoffLimitExceeded"
    )
    assert cluster.conditions()[-1] == ("Failed", "True", "ExperimentFailed")


async def test_delete_experiment_removes_trials_jobs_and_pods(cluster):
    await cluster.experiment(parallelTrialCount=2)
    assert len(pods(cluster)) == 2
    cluster.store.delete("Experiment", "kaniko", "sweep")
    await cluster.settle()
    kinds = ("Experiment", "Suggestion", "Trial", "Job", "Pod")
    assert {kind: cluster.store.list(kind) for kind in kinds} == {kind: [] for kind in kinds}


async def test_deleted_trial_is_recreated_with_a_new_job(cluster):
    await cluster.experiment(parallelTrialCount=2)
    trial = cluster.trials()[0]
    before = cluster.store.get("Job", "kaniko", trial)["metadata"]["uid"]
    cluster.store.delete("Trial", "kaniko", trial)
    await cluster.settle()
    job, owner = cluster.store.get("Job", "kaniko", trial), cluster.store.get("Trial", "kaniko", trial)
    assert job["metadata"]["uid"] != before
    assert job["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert len(pods(cluster)) == 2


async def test_pod_rejected_by_the_webhook_is_an_event_of_the_job(cluster):
    body = cluster.recorded_experiment()
    del body["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["command"]
    cluster.store.create(body)
    await cluster.settle()
    (trial,) = cluster.trials()
    refused = [message for type_, reason, message in cluster.events(trial) if reason == "FailedCreate"]
    assert refused[0].startswith('Error creating: admission webhook "mutator.pod.katib.kubeflow.org" denied')
