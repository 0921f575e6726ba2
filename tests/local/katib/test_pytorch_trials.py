"""Trials that are PyTorchJobs: Katib beside the Training Operator."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from local import training_operator
from local.kubernetes.controllers.jobs import Controllers
from tests.local.katib.conftest import World

Object = dict[str, Any]
ROLE = "training.kubeflow.org/job-role"


@pytest.fixture
async def cluster(world: World) -> AsyncIterator[World]:
    training_operator.install(world.store)
    parts = training_operator.TrainingOperator(world.store), Controllers(world.store)
    for part in parts:
        part.start()
    yield world
    for part in parts:
        await part.close()


def experiment(world: World, **template: Any) -> Object:
    """The recorded experiment, with a PyTorchJob of a master and one worker."""
    body = world.recorded_experiment(parallelTrialCount=1)
    job = body["spec"]["trialTemplate"].pop("trialSpec")
    pod = {
        "spec": {key: text for key, text in job["spec"]["template"]["spec"].items() if "estart" not in key}
    }
    pod["spec"]["containers"][0]["name"] = "pytorch"
    replica = {"replicas": 1, "restartPolicy": "Never", "template": pod}
    spec = {
        "runPolicy": {"cleanPodPolicy": "Running"},
        "pytorchReplicaSpecs": {"Master": replica, "Worker": replica},
    }
    run = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}
    for key in ("successCondition", "failureCondition"):
        body["spec"]["trialTemplate"].pop(key, None)
    body["spec"]["trialTemplate"] |= {"primaryContainerName": "pytorch", "trialSpec": run, **template}
    return body


async def started(world: World, **template: Any) -> tuple[str, dict[str, Object]]:
    """Return the first trial and its pods by replica."""
    world.store.create(experiment(world, **template))
    await world.settle()
    trial = world.trials()[0]
    pods = world.store.list("Pod", "kaniko")
    return trial, {pod["metadata"]["name"].removeprefix(f"{trial}-"): pod for pod in pods}


def becomes(world: World, pod: Object, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    world.store.patch("Pod", "kaniko", pod["metadata"]["name"], patch, subresource="status")


async def test_conditions_and_labels_are_defaulted(cluster: World) -> None:
    await started(cluster)
    template = cluster.store.list("Experiment")[0]["spec"]["trialTemplate"]
    assert template["successCondition"] == 'status.conditions.#(type=="Succeeded")#|#(status=="True")#'
    assert template["failureCondition"] == 'status.conditions.#(type=="Failed")#|#(status=="True")#'
    assert template["primaryPodLabels"] == {ROLE: "master"}


async def test_only_the_master_gets_the_collector(cluster: World) -> None:
    trial, pods = await started(cluster)
    assert sorted(pods) == ["master-0", "worker-0"]
    names = {name: [each["name"] for each in pod["spec"]["containers"]] for name, pod in pods.items()}
    assert names == {"master-0": ["pytorch", "metrics-collector"], "worker-0": ["pytorch"]}
    for pod in pods.values():
        assert pod["metadata"]["labels"]["katib.kubeflow.org/trial"] == trial
        assert "KATIB_TRIAL_NAME" in [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    shells = {name: pod["spec"]["containers"][0]["args"][0] for name, pod in pods.items()}
    assert {name: "echo completed" in shell for name, shell in shells.items()} == {
        "master-0": True,
        "worker-0": False,
    }


async def test_trial_succeeds_with_its_master(cluster: World) -> None:
    trial, pods = await started(cluster)
    for pod in pods.values():
        becomes(cluster, pod, "Running")
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    becomes(cluster, pods["master-0"], "Succeeded")
    await cluster.settle()
    assert cluster.conditions(trial, "Trial")[-1] == (
        "Succeeded",
        "True",
        "TrialSucceeded. Job reason: PyTorchJobSucceeded",
    )
    alive = [pod for pod in cluster.store.list("Pod") if pod["metadata"]["name"].startswith(trial)]
    assert [pod["metadata"]["name"] for pod in alive] == [f"{trial}-master-0"]


async def test_trial_fails_with_a_worker(cluster: World) -> None:
    trial, pods = await started(cluster)
    for pod in pods.values():
        becomes(cluster, pod, "Running")
    becomes(cluster, pods["worker-0"], "Failed")
    await cluster.settle()
    assert cluster.conditions(trial, "Trial")[-1][2] == "TrialFailed. Job reason: PyTorchJobFailed"


@pytest.mark.parametrize("retain", [True, False])
async def test_ended_trial_keeps_its_job_only_by_retain(cluster: World, *, retain: bool) -> None:
    trial, pods = await started(cluster, retain=retain)
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    becomes(cluster, pods["master-0"], "Succeeded")
    await cluster.settle()
    assert (cluster.store.get("PyTorchJob", "kaniko", trial) is not None) == retain


async def test_pods_without_the_primary_container_are_refused(cluster: World) -> None:
    trial, pods = await started(cluster, primaryContainerName="main")
    assert pods == {}
    refused = [text for _, reason, text in cluster.events(trial) if reason == "FailedCreatePod"]
    assert "Unable to find primary container main in mutated pod containers ['pytorch']" in refused[0]


async def test_job_that_the_operator_refuses_is_an_event_of_the_trial(cluster: World) -> None:
    body = experiment(cluster)
    master = body["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]["Master"]
    body["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]["Master"] = master | {
        "replicas": 2
    }
    cluster.store.create(body)
    await cluster.settle()
    (trial,) = cluster.trials()
    refused = [text for _, reason, text in cluster.events(trial) if reason == "ReconcileError"]
    assert "replicas: Forbidden: must be 1" in refused[0]


async def test_without_the_operator_no_trial_runs(world: World) -> None:
    world.store.create(experiment(world))
    await world.settle()
    (trial,) = world.trials()
    error = 'Failed to reconcile: no matches for kind "PyTorchJob" in version "kubeflow.org/v1"'
    assert ("Warning", "ReconcileError", error) in world.events(trial)
    assert [name for name, _, _ in world.conditions(trial, "Trial")] == ["Created"]


async def test_deleted_experiment_takes_jobs_and_pods_along(cluster: World) -> None:
    await started(cluster)
    cluster.store.delete("Experiment", "kaniko", "sweep")
    await cluster.settle()
    kinds = ("Trial", "PyTorchJob", "Pod", "Service")
    assert {kind: cluster.store.list(kind, "kaniko") for kind in kinds} == {kind: [] for kind in kinds}
