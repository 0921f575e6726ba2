"""Trials that are TrainJobs: Katib beside Kubeflow Trainer."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from local import trainer
from local.kubernetes.controllers.jobs import Controllers
from tests.local.katib.conftest import World
from tests.local.trainer.conftest import training_runtime

Object = dict[str, Any]
NODE = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
async def cluster(world: World) -> AsyncIterator[World]:
    trainer.install(world.store)
    parts = trainer.Trainer(world.store), Controllers(world.store)
    for part in parts:
        part.start()
    yield world
    for part in parts:
        await part.close()


def experiment(world: World, **template: Any) -> Object:
    """The recorded experiment, with a TrainJob of two nodes; its name is 39 characters at most."""
    body = world.recorded_experiment(parallelTrialCount=1)
    job = body["spec"]["trialTemplate"].pop("trialSpec")
    [main] = job["spec"]["template"]["spec"]["containers"]
    given = {key: main[key] for key in ("image", "command", "args", "env") if key in main}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "sweep"}
    spec = {"runtimeRef": reference, "trainer": {"numNodes": 2, **given}}
    run = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    for key in ("successCondition", "failureCondition"):
        body["spec"]["trialTemplate"].pop(key, None)
    body["spec"]["trialTemplate"] |= {"primaryContainerName": "node", "trialSpec": run, **template}
    return body


async def started(world: World, **template: Any) -> tuple[str, dict[str, Object]]:
    """Return the first trial and its pods by index."""
    world.store.create(training_runtime("sweep", "kaniko"))
    world.store.create(experiment(world, **template))
    await world.settle()
    pods = world.store.list("Pod", "kaniko")
    return world.trials()[0], {pod["metadata"]["labels"][INDEX]: pod for pod in pods}


async def becomes(world: World, pod: Object, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    world.store.patch("Pod", "kaniko", pod["metadata"]["name"], patch, subresource="status")
    await world.settle()


async def test_conditions_and_labels_are_defaulted(cluster: World) -> None:
    await started(cluster)
    template = cluster.store.list("Experiment")[0]["spec"]["trialTemplate"]
    assert template["successCondition"] == 'status.conditions.#(type=="Complete")#|#(status=="True")#'
    assert template["failureCondition"] == 'status.conditions.#(type=="Failed")#|#(status=="True")#'
    assert template["primaryPodLabels"] == {NODE: "node", INDEX: "0"}


async def test_only_the_first_node_gets_the_collector(cluster: World) -> None:
    trial, pods = await started(cluster)
    names = {index: [each["name"] for each in pod["spec"]["containers"]] for index, pod in pods.items()}
    assert names == {"0": ["node", "metrics-collector"], "1": ["node"]}
    for pod in pods.values():
        assert pod["metadata"]["labels"]["katib.kubeflow.org/trial"] == trial
        assert "KATIB_TRIAL_NAME" in [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert "echo completed" in pods["0"]["spec"]["containers"][0]["args"][0]


async def test_trial_succeeds_once_all_nodes_have(cluster: World) -> None:
    trial, pods = await started(cluster)
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    await becomes(cluster, pods["0"], "Succeeded")
    assert cluster.conditions(trial, "Trial")[-1][0] == "Running"
    await becomes(cluster, pods["1"], "Succeeded")
    end = ("Succeeded", "True", "TrialSucceeded. Job reason: AllJobsCompleted")
    assert cluster.conditions(trial, "Trial")[-1] == end
    [metric] = cluster.status(trial, "Trial")["observation"]["metrics"]
    assert metric["latest"] == "0.5"


async def test_trial_fails_with_a_node(cluster: World) -> None:
    trial, pods = await started(cluster)
    await becomes(cluster, pods["1"], "Failed")
    assert cluster.conditions(trial, "Trial")[-1][2] == "TrialFailed. Job reason: FailedJobs"
    left = [pod for pod in cluster.store.list("Pod") if pod["metadata"]["name"].startswith(trial)]
    assert [pod["metadata"]["labels"][INDEX] for pod in left] == ["1"]


@pytest.mark.parametrize("retain", [True, False])
async def test_ended_trial_keeps_its_job_only_by_retain(cluster: World, *, retain: bool) -> None:
    trial, pods = await started(cluster, retain=retain)
    await becomes(cluster, pods["1"], "Failed")
    assert (cluster.store.get("TrainJob", "kaniko", trial) is not None) == retain


async def test_job_that_the_trainer_refuses_is_an_event_of_the_trial(cluster: World, wait_until: Any) -> None:
    """The Trial is neither Running nor Failed, and gets its job whenever it is accepted."""
    cluster.store.create(experiment(cluster))
    await cluster.settle()
    (trial,) = cluster.trials()
    [refused] = [text for _, reason, text in cluster.events(trial) if reason == "ReconcileError"]
    assert "specified trainingRuntime must be created before the TrainJob is created" in refused
    assert [name for name, _, _ in cluster.conditions(trial, "Trial")] == ["Created"]
    cluster.store.create(training_runtime("sweep", "kaniko"))
    await wait_until(lambda: cluster.conditions(trial, "Trial")[-1][0] == "Running", "Katib repeats it")


async def test_job_whose_pods_would_have_too_long_names_runs_without_pods_forever(cluster: World) -> None:
    cluster.store.create(training_runtime("sweep", "kaniko"))
    body = experiment(cluster)
    body["metadata"]["name"] = "s" * 40
    cluster.store.create(body)
    await cluster.settle()
    [trial] = cluster.trials("s" * 40)
    assert cluster.conditions(trial, "Trial")[-1][0] == "Running"
    [(_, reason, message)] = cluster.events(trial)[-1:]
    assert reason == "TrainJobResourcesCreationFailed"
    assert "pod names generated for this JobSet will exceed 63 characters" in message
    assert cluster.store.list("Pod") == []


async def test_without_the_trainer_no_trial_runs(world: World) -> None:
    world.store.create(experiment(world))
    await world.settle()
    (trial,) = world.trials()
    error = 'Failed to reconcile: no matches for kind "TrainJob" in version "trainer.kubeflow.org/v1alpha1"'
    assert ("Warning", "ReconcileError", error) in world.events(trial)


async def test_deleted_experiment_takes_everything_along(cluster: World) -> None:
    await started(cluster)
    cluster.store.delete("Experiment", "kaniko", "sweep")
    await cluster.settle()
    kinds = ("Trial", "TrainJob", "JobSet", "Job", "Pod", "Service", "ConfigMap")
    assert {kind: cluster.store.list(kind, "kaniko") for kind in kinds} == {kind: [] for kind in kinds}
