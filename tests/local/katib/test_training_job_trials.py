"""Trials that are PyTorchJobs or TrainJobs: Katib beside the Training Operator and Kubeflow Trainer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from local import trainer, training_operator
from local.kubernetes.controllers.jobs import Controllers
from tests.local.katib.conftest import World
from tests.local.trainer.conftest import training_runtime
from tests.local.training_jobs import started

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Kind:
    name: str
    version: str
    container: str
    success: str  # the condition by which Katib knows it
    primary: dict[str, str]  # labels of the pod that gets the collector
    pods: tuple[str, str]  # of a job of two
    creates: tuple[str, ...]  # kinds


PYTORCH_JOB = Kind(
    name="PyTorchJob",
    version="kubeflow.org/v1",
    container="pytorch",
    success="Succeeded",
    primary={"training.kubeflow.org/job-role": "master"},
    pods=("master-0", "worker-0"),
    creates=("Pod", "Service"),
)
TRAIN_JOB = Kind(
    name="TrainJob",
    version="trainer.kubeflow.org/v1alpha1",
    container="node",
    success="Complete",
    primary={"jobset.sigs.k8s.io/replicatedjob-name": "node", INDEX: "0"},
    pods=("0", "1"),
    creates=("JobSet", "Job", "Pod", "Service", "ConfigMap"),
)


@pytest.fixture(params=[PYTORCH_JOB, TRAIN_JOB], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def cluster(world: World) -> AsyncIterator[World]:
    store = world.store
    training_operator.install(store)
    trainer.install(store)
    parts = training_operator.TrainingOperator(store), trainer.Trainer(store), Controllers(store)
    async with started(*parts):
        yield world


def experiment(world: World, kind: Kind, **template: Any) -> Object:
    """The recorded experiment, with a job of two pods; its name is 39 characters at most."""
    body = world.recorded_experiment(parallelTrialCount=1)
    job = body["spec"]["trialTemplate"].pop("trialSpec")
    spec = (pytorch_spec if kind is PYTORCH_JOB else train_spec)(job["spec"]["template"]["spec"])
    run = {"apiVersion": kind.version, "kind": kind.name, "spec": spec}
    for key in ("successCondition", "failureCondition"):
        body["spec"]["trialTemplate"].pop(key, None)
    body["spec"]["trialTemplate"] |= {"primaryContainerName": kind.container, "trialSpec": run, **template}
    return body


def pytorch_spec(pod: Object) -> Object:
    [main] = pod["containers"]
    own = {key: value for key, value in pod.items() if key != "restartPolicy"}
    template = {"spec": own | {"containers": [main | {"name": "pytorch"}]}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    replicas = {"Master": replica, "Worker": replica}
    return {"runPolicy": {"cleanPodPolicy": "Running"}, "pytorchReplicaSpecs": replicas}


def train_spec(pod: Object) -> Object:
    [main] = pod["containers"]
    given = {key: main[key] for key in ("image", "command", "args", "env") if key in main}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "sweep"}
    return {"runtimeRef": reference, "trainer": {"numNodes": 2, **given}}


async def first_trial(world: World, kind: Kind, **template: Any) -> tuple[str, dict[str, Object]]:
    """Return the first trial and its pods: by role and number in a PyTorchJob, by index in a TrainJob."""
    world.store.create(training_runtime("sweep", "kaniko"))
    world.store.create(experiment(world, kind, **template))
    await world.settle()
    trial = world.trials()[0]
    pods = world.store.list("Pod", "kaniko")
    names = {pod["metadata"]["name"].removeprefix(f"{trial}-"): pod for pod in pods}
    return trial, {pod["metadata"]["labels"].get(INDEX, name): pod for name, pod in names.items()}


async def becomes(world: World, pod: Object, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    world.store.patch("Pod", "kaniko", pod["metadata"]["name"], patch, subresource="status")
    await world.settle()


def alive(world: World, trial: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in world.store.list("Pod")]
    return [name for name in names if name.startswith(trial)]


def refusals(world: World, reason: str = "ReconcileError") -> list[str]:
    [trial] = world.trials()
    return [text for _, found, text in world.events(trial) if found == reason]


async def test_conditions_and_labels_are_defaulted(cluster: World, kind: Kind) -> None:
    await first_trial(cluster, kind)
    template = cluster.store.list("Experiment")[0]["spec"]["trialTemplate"]
    success = f'status.conditions.#(type=="{kind.success}")#|#(status=="True")#'
    assert template["successCondition"] == success
    assert template["failureCondition"] == 'status.conditions.#(type=="Failed")#|#(status=="True")#'
    assert template["primaryPodLabels"] == kind.primary


async def test_only_the_first_pod_gets_the_collector(cluster: World, kind: Kind) -> None:
    trial, pods = await first_trial(cluster, kind)
    names = {name: [each["name"] for each in pod["spec"]["containers"]] for name, pod in pods.items()}
    first, second = kind.pods
    assert names == {first: [kind.container, "metrics-collector"], second: [kind.container]}
    for pod in pods.values():
        assert pod["metadata"]["labels"]["katib.kubeflow.org/trial"] == trial
        assert "KATIB_TRIAL_NAME" in [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    shells = {name: pod["spec"]["containers"][0]["args"][0] for name, pod in pods.items()}
    waits = {name: "echo completed" in shell for name, shell in shells.items()}
    assert waits == {first: True, second: False}


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_ended_trial_keeps_its_job_only_by_retain(
    cluster: World, kind: Kind, end: str, *, retain: bool
) -> None:
    trial, pods = await first_trial(cluster, kind, retain=retain)
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    first, second = kind.pods
    await becomes(cluster, pods[second], end)
    if end == "Succeeded":
        await becomes(cluster, pods[first], end)
    assert cluster.conditions(trial, "Trial")[-1][0] == end
    assert (cluster.store.get(kind.name, "kaniko", trial) is not None) == retain


async def test_without_the_operator_no_trial_runs(world: World, kind: Kind) -> None:
    world.store.create(experiment(world, kind))
    await world.settle()
    (trial,) = world.trials()
    error = f'Failed to reconcile: no matches for kind "{kind.name}" in version "{kind.version}"'
    assert ("Warning", "ReconcileError", error) in world.events(trial)
    assert [name for name, _, _ in world.conditions(trial, "Trial")] == ["Created"]


async def test_deleted_experiment_takes_everything_along(cluster: World, kind: Kind) -> None:
    await first_trial(cluster, kind)
    cluster.store.delete("Experiment", "kaniko", "sweep")
    await cluster.settle()
    kinds = ("Trial", kind.name, *kind.creates)
    assert {each: cluster.store.list(each, "kaniko") for each in kinds} == {each: [] for each in kinds}


async def test_pytorch_job_succeeds_with_its_master(cluster: World) -> None:
    trial, pods = await first_trial(cluster, PYTORCH_JOB)
    for pod in pods.values():
        await becomes(cluster, pod, "Running")
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    await becomes(cluster, pods["master-0"], "Succeeded")
    end = ("Succeeded", "True", "TrialSucceeded. Job reason: PyTorchJobSucceeded")
    assert cluster.conditions(trial, "Trial")[-1] == end
    assert alive(cluster, trial) == [f"{trial}-master-0"]


async def test_train_job_succeeds_once_all_nodes_have(cluster: World) -> None:
    trial, pods = await first_trial(cluster, TRAIN_JOB)
    cluster.katib.metrics.report(trial, cluster.losses("0.5"))
    await becomes(cluster, pods["0"], "Succeeded")
    assert cluster.conditions(trial, "Trial")[-1][0] == "Running"
    await becomes(cluster, pods["1"], "Succeeded")
    end = ("Succeeded", "True", "TrialSucceeded. Job reason: AllJobsCompleted")
    assert cluster.conditions(trial, "Trial")[-1] == end
    [metric] = cluster.status(trial, "Trial")["observation"]["metrics"]
    assert metric["latest"] == "0.5"


async def test_pytorch_job_fails_with_a_worker(cluster: World) -> None:
    trial, pods = await first_trial(cluster, PYTORCH_JOB)
    for pod in pods.values():
        await becomes(cluster, pod, "Running")
    await becomes(cluster, pods["worker-0"], "Failed")
    assert cluster.conditions(trial, "Trial")[-1][2] == "TrialFailed. Job reason: PyTorchJobFailed"


async def test_train_job_fails_with_a_node(cluster: World) -> None:
    trial, pods = await first_trial(cluster, TRAIN_JOB)
    await becomes(cluster, pods["1"], "Failed")
    assert cluster.conditions(trial, "Trial")[-1][2] == "TrialFailed. Job reason: FailedJobs"
    assert alive(cluster, trial) == [pods["1"]["metadata"]["name"]]


async def test_pods_without_the_primary_container_are_refused(cluster: World) -> None:
    _, pods = await first_trial(cluster, PYTORCH_JOB, primaryContainerName="main")
    assert pods == {}
    why = "Unable to find primary container main in mutated pod containers ['pytorch']"
    assert why in refusals(cluster, "FailedCreatePod")[0]


async def test_job_that_the_operator_refuses_is_an_event_of_the_trial(cluster: World) -> None:
    body = experiment(cluster, PYTORCH_JOB)
    replicas = body["spec"]["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
    replicas["Master"] = replicas["Master"] | {"replicas": 2}
    cluster.store.create(body)
    await cluster.settle()
    assert "replicas: Forbidden: must be 1" in refusals(cluster)[0]


async def test_job_that_the_trainer_refuses_is_an_event_of_the_trial(cluster: World, wait_until: Any) -> None:
    """The Trial is neither Running nor Failed, and gets its job whenever it is accepted."""
    cluster.store.create(experiment(cluster, TRAIN_JOB))
    await cluster.settle()
    (trial,) = cluster.trials()
    [why] = refusals(cluster)
    assert "specified trainingRuntime must be created before the TrainJob is created" in why
    assert [name for name, _, _ in cluster.conditions(trial, "Trial")] == ["Created"]
    cluster.store.create(training_runtime("sweep", "kaniko"))
    await wait_until(lambda: cluster.conditions(trial, "Trial")[-1][0] == "Running", "Katib repeats it")


async def test_job_whose_pods_would_have_too_long_names_runs_without_pods_forever(cluster: World) -> None:
    cluster.store.create(training_runtime("sweep", "kaniko"))
    body = experiment(cluster, TRAIN_JOB)
    body["metadata"]["name"] = "s" * 40
    cluster.store.create(body)
    await cluster.settle()
    [trial] = cluster.trials("s" * 40)
    assert cluster.conditions(trial, "Trial")[-1][0] == "Running"
    [(_, reason, message)] = cluster.events(trial)[-1:]
    assert reason == "TrainJobResourcesCreationFailed"
    assert "pod names generated for this JobSet will exceed 63 characters" in message
    assert cluster.store.list("Pod") == []
