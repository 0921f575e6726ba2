"""TrainJobs from creation to end, as Kubeflow Trainer v2.3.0 and JobSet v0.12.0 reconcile them."""

import pytest

from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.node.container_inputs import variables
from tests.local.trainer.conftest import ANCESTOR, World, train_job, training_runtime

ALL = ("train-node-0-0", "train-node-0-1", "train-node-0-2")
INDEX = "batch.kubernetes.io/job-completion-index"


def start(world: World, **job: object) -> None:
    world.store.create(training_runtime(**job))
    world.store.create(train_job())


async def test_job_becomes_a_job_set_a_job_and_a_pod_for_each_node(world: World) -> None:
    start(world)
    await world.has(*ALL)
    job, jobset = world.of("Job"), world.of("JobSet")
    assert jobset["metadata"]["labels"] == {"team": "vision"}
    assert jobset["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert jobset["metadata"]["ownerReferences"][0]["uid"] == world.of()["metadata"]["uid"]
    assert job["metadata"]["ownerReferences"][0]["uid"] == jobset["metadata"]["uid"]
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 3)
    assert job["metadata"]["labels"][ANCESTOR] == "trainer"
    [pod, *_] = world.store.list("Pod")
    labels = pod["metadata"]["labels"]
    assert labels["app"] == "bot"
    assert ANCESTOR not in labels
    assert labels["jobset.sigs.k8s.io/jobset-name"] == "train"
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    assert labels[INDEX] == "0"
    assert pod["spec"]["subdomain"] == "train"
    [container] = pod["spec"]["containers"]
    assert (container["command"], container["args"]) == (["train"], ["--lr=1"])
    [service] = world.store.list("Service")
    assert service["metadata"]["name"] == "train"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": {"jobset.sigs.k8s.io/jobset-name": "train"},
        "publishNotReadyAddresses": True,
    }


async def test_nodes_get_the_rendezvous_as_variables(world: World) -> None:
    start(world)
    await world.has(*ALL)
    pods = world.store.list("Pod")
    env = [variables(world.store, pod, pod["spec"]["containers"][0]) for pod in pods]
    [address] = {each.pop("PET_MASTER_ADDR") for each in env}
    assert address.startswith("127.")
    assert env[0] == {
        "OWN": "1",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_PORT": "29500",
        "JOB_COMPLETION_INDEX": "0",
    }
    assert [each["PET_NODE_RANK"] for each in env] == ["0", "1", "2"]
    given = pods[0]["spec"]["containers"][0]["env"]
    assert {"name": "PET_MASTER_ADDR", "value": "train-node-0-0.train"} in given


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        ({}, "1"),
        ({"requests": {"cpu": "2500m"}}, "3"),
        ({"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}, "auto"),
    ],
)
async def test_processes_follow_the_resources(world: World, resources: object, processes: str) -> None:
    runtime = training_runtime()
    [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    world.store.create(runtime)
    world.store.create(train_job(nodes=1))
    await world.has(ALL[0])
    env = world.store.list("Pod")[0]["spec"]["containers"][0]["env"]
    assert {"name": "PET_NPROC_PER_NODE", "value": processes} in env


async def test_without_a_trainer_there_are_no_variables_of_torch(world: World) -> None:
    world.store.create(training_runtime())
    made = train_job()
    del made["spec"]["trainer"]
    world.store.create(made)
    await world.has(ALL[0])
    [pod] = world.store.list("Pod")
    assert "PET_NNODES" not in [each["name"] for each in pod["spec"]["containers"][0]["env"]]


async def test_job_is_complete_once_every_pod_has_succeeded(world: World) -> None:
    start(world)
    await world.runs(*ALL)
    await world.wait_until(lambda: world.of().get("status"), "it has a status")
    ready = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    await world.wait_until(lambda: world.of()["status"] == {"jobsStatus": [ready]}, "it is ready")
    for name in ALL:
        world.becomes(name, "Succeeded")
    await world.until("Complete")
    assert world.conditions() == [("Complete", "True", "AllJobsCompleted")]
    assert world.message("Complete") == "jobset completed successfully"
    assert world.of("JobSet")["status"]["terminalState"] == "Completed"
    await world.has(*ALL)


async def test_success_policy_of_the_job_ends_the_others(world: World) -> None:
    start(world, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    await world.runs(*ALL)
    world.becomes(ALL[0], "Succeeded")
    await world.has(ALL[0])
    world.stops()
    await world.until("Complete")


async def test_failed_pod_fails_the_job_and_frees_the_others(world: World) -> None:
    start(world)
    await world.runs(*ALL)
    world.becomes(ALL[1], "Failed")
    await world.has(ALL[1])
    world.stops()
    await world.until("Failed")
    assert world.conditions() == [("Failed", "True", "FailedJobs")]
    assert (
        world.message("Failed")
        == "jobset failed due to one or more job failures (first failed job: train-node-0)"
    )
    assert world.conditions("JobSet") == world.conditions()
    assert world.names("Job") == ["train-node-0"]
    assert world.pods() == {ALL[1]: "Failed"}


async def test_suspended_job_has_no_pods_until_it_is_resumed(world: World) -> None:
    world.store.create(training_runtime())
    world.store.create(train_job(suspend=True))
    await world.until("Suspended")
    await world.wait_until(lambda: world.of("Job"), "it has a Job")
    assert world.of("Job")["spec"]["suspend"]
    assert world.pods() == {}
    world.set_suspended(False)
    await world.runs(*ALL)
    assert world.conditions() == [("Suspended", "False", "Resumed")]
    world.set_suspended(True)
    await world.has()
    world.stops()
    await world.until("Suspended")
    await world.wait_until(
        lambda: world.conditions("JobSet") == [("Suspended", "True", "SuspendedJobs")], "suspended below"
    )
    world.set_suspended(False)
    await world.runs(*ALL)
    assert world.message("Suspended") == "TrainJob is resumed"


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_deleted_job_takes_everything_along(world: World, propagation: str) -> None:
    start(world)
    await world.runs(*ALL)
    world.store.delete("TrainJob", "default", "train", propagation=propagation)
    await world.has()
    world.stops()
    kinds = ("TrainJob", "JobSet", "Job", "Pod", "Service", "ConfigMap")
    await world.wait_until(lambda: not any(map(world.names, kinds)), "all is gone")
    assert world.names("TrainingRuntime") == ["torch"]


async def test_changed_runtime_changes_no_job_that_has_begun(world: World) -> None:
    world.store.create(training_runtime())
    world.store.create(train_job(suspend=True))
    await world.until("Suspended")
    assert world.names("ConfigMap") == ["train-runtime-snapshot"]
    world.store.delete("JobSet", "default", "train")
    world.store.delete("TrainingRuntime", "default", "torch")
    await world.wait_until(lambda: world.of("JobSet"), "it has a new JobSet")


async def test_job_without_its_runtime_can_not_be_changed(world: World) -> None:
    start(world)
    await world.runs(*ALL)
    world.store.delete("TrainingRuntime", "default", "torch")
    with pytest.raises(Refused, match="must be created before the TrainJob is created"):
        world.set_suspended(True)


async def test_foreground_deletion_without_the_runtime_does_not_end(world: World) -> None:
    """The garbage collector's removal of its finalizer is an update, which the webhook refuses."""
    start(world)
    await world.runs(*ALL)
    world.store.delete("TrainingRuntime", "default", "torch")
    world.store.delete("TrainJob", "default", "train", propagation="Foreground")
    await world.has()
    world.stops()
    await world.wait_until(lambda: not world.names("JobSet"), "its JobSet is gone")
    assert world.of()["metadata"]["finalizers"] == ["foregroundDeletion"]
    with pytest.raises(Refused, match="specified trainingRuntime must be created before"):
        world.store.patch("TrainJob", "default", "train", {"metadata": {"finalizers": None}})


async def test_too_long_name_leaves_the_job_without_a_condition(world: World) -> None:
    name = "t" * 49
    world.store.create(training_runtime())
    world.store.create(train_job(name))
    await world.wait_until(world.events, "an event says why")
    reason, message = world.events()[0]
    assert reason == "TrainJobResourcesCreationFailed"
    assert message == (
        'TrainJob resources reconciliation failed: admission webhook "vjobset.kb.io" denied the request: '
        f'JobSet.jobset.x-k8s.io "{name}" is invalid: spec.replicatedJobs[0].name: Invalid value: '
        f'"{name}-node-0": JobSet name is too long, pod names generated for this JobSet will exceed '
        "63 characters"
    )
    job = world.store.get("TrainJob", "default", name) or {}
    assert "status" not in job
    assert world.names("JobSet") == []
    world.store.create(train_job("t" * 48))
    await world.has(*(f"{'t' * 48}-node-0-{index}" for index in range(3)))


async def test_ended_job_set_is_deleted_after_its_time(world: World) -> None:
    runtime = training_runtime()
    runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
    world.store.create(runtime)
    world.store.create(train_job(nodes=1))
    await world.runs(ALL[0])
    world.becomes(ALL[0], "Succeeded")
    await world.until("Complete")
    await world.wait_until(lambda: not any(map(world.names, ("JobSet", "Job", "Pod"))), "its pods are gone")
    assert world.conditions() == [("Complete", "True", "AllJobsCompleted")]
