"""PyTorchJobs from creation to end, as kubeflow/trainer v1.9.3 reconciles them."""

import asyncio

import pytest

from local.kubernetes.node.container_inputs import variables
from local.training_operator import TrainingOperator, init_container
from local.training_operator.controller import Controller
from tests.local.training_operator.conftest import World, pytorch_job

ALL = ("train-master-0", "train-worker-0", "train-worker-1")
LABELS = {
    "training.kubeflow.org/job-name": "train",
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
}


async def test_job_creates_a_pod_and_a_service_for_each_replica(world: World) -> None:
    world.store.create(pytorch_job())
    await world.has(*ALL)
    master, _, second = world.store.list("Pod")
    own = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
    role = {"training.kubeflow.org/job-role": "master"}
    assert master["metadata"]["labels"] == {"app": "bot", **LABELS, **own, **role}
    assert second["metadata"]["labels"] == {
        "app": "bot",
        **LABELS,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    services = world.store.list("Service")
    assert [service["metadata"]["name"] for service in services] == list(ALL)
    assert services[0]["spec"]["selector"] == LABELS | own
    assert services[0]["spec"]["clusterIP"] == "None"
    assert services[0]["spec"]["ports"] == [{"name": "pytorchjob-port", "port": 23456}]
    assert ("SuccessfulCreatePod", "Created pod: train-master-0") in world.events()
    assert "ports" not in str(world.of()["spec"])  # the stored job keeps no defaults of the controller


async def test_replicas_get_the_rendezvous_as_variables(world: World) -> None:
    world.store.create(pytorch_job())
    await world.has(*ALL)
    pods = world.store.list("Pod")
    env = [{each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]} for pod in pods]
    assert env[0] == {
        "OWN": "1",
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "train-master-0",
        "PET_MASTER_ADDR": "train-master-0",
        "WORLD_SIZE": "24",
        "RANK": "0",
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "8",
        "PET_NNODES": "3",
    }
    assert [each["RANK"] for each in env] == ["0", "1", "2"]
    addresses = {variables(world.store, pod, pod["spec"]["containers"][0])["PET_MASTER_ADDR"] for pod in pods}
    assert [each.startswith("127.") for each in addresses] == [True]


async def test_workers_wait_until_the_masters_name_resolves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_container, "PAUSE", 0.01)
    monkeypatch.setattr(init_container, "MAX_TRIES", 10**6)
    world.store.create(pytorch_job(workers=1))
    await world.has(*ALL[:2])
    worker = world.store.get("Pod", "default", ALL[1]) or {}
    [init] = worker["spec"]["initContainers"]
    [(image, run)] = TrainingOperator(world.store).builtins.items()
    assert image in init["image"]
    lines: list[str] = []
    waiting = asyncio.create_task(run(worker, init, {}, lines.append, {}))
    await world.wait_until(lambda: lines, "it waits")
    assert "waiting for master" in lines[0]
    await world.runs("train-master-0")
    assert await waiting == 0


async def test_masters_success_ends_the_job_and_deletes_running_workers(world: World) -> None:
    world.store.create(pytorch_job(cleanPodPolicy="Running"))
    await world.runs(*ALL)
    await world.until("Running")
    world.becomes("train-master-0", "Succeeded")
    await world.until("Succeeded")
    await world.has("train-master-0")
    assert world.conditions() == [
        ("Created", "True", "PyTorchJobCreated"),
        ("Running", "False", "PyTorchJobRunning"),
        ("Succeeded", "True", "PyTorchJobSucceeded"),
    ]
    assert world.message("Succeeded") == "PyTorchJob train is successfully completed."
    assert world.names("Service") == ["train-master-0"]
    assert "completionTime" in world.of()["status"]


async def test_failed_worker_fails_the_job_and_its_pod_stays(world: World) -> None:
    world.store.create(pytorch_job(cleanPodPolicy="Running"))
    await world.runs(*ALL)
    world.becomes("train-worker-1", "Failed")
    await world.until("Failed")
    assert world.message("Failed") == "PyTorchJob train is failed because 1 Worker replica(s) failed."
    await world.has("train-worker-1")


async def test_without_clean_pod_policy_the_others_keep_running(world: World) -> None:
    world.store.create(pytorch_job())
    await world.runs(*ALL)
    world.becomes("train-worker-1", "Failed")
    await world.until("Failed")
    Controller(world.store).sync("default", "train")
    assert sorted(world.pods()) == sorted(ALL)


async def test_backoff_limit_of_0_deletes_the_failed_pod_too(world: World) -> None:
    world.store.create(pytorch_job(cleanPodPolicy="Running", backoffLimit=0))
    await world.runs(*ALL)
    world.becomes("train-worker-1", "Failed")
    await world.until("Failed")
    assert (
        world.message("Failed") == "Job train has failed because it has reached the specified backoff limit"
    )
    await world.has()


async def test_running_pod_that_is_deleted_fails_the_job(world: World) -> None:
    world.store.create(pytorch_job(cleanPodPolicy="Running"))
    await world.runs(*ALL)
    world.store.delete("Pod", "default", "train-worker-0")
    await world.until("Failed")


async def test_suspended_job_has_no_pods_until_it_is_resumed(world: World) -> None:
    world.store.create(pytorch_job(suspend=True))
    await world.until("Suspended")
    assert world.pods() == {}
    world.set_suspended(False)
    await world.runs(*ALL)
    await world.until("Running")
    world.set_suspended(True)
    await world.has()
    await world.until("Suspended")
    assert world.conditions() == [
        ("Created", "True", "PyTorchJobCreated"),
        ("Running", "False", "PyTorchJobSuspended"),
        ("Suspended", "True", "PyTorchJobSuspended"),
    ]
    assert world.names("Service") == []


async def test_deleted_job_takes_pods_and_services_along(world: World) -> None:
    world.store.create(pytorch_job())
    await world.has(*ALL)
    world.store.delete("PyTorchJob", "default", "train")
    await world.has()
    await world.wait_until(lambda: not world.names("Service"), "the Services are gone")


async def test_expired_job_is_deleted(world: World) -> None:
    world.store.create(pytorch_job(ttlSecondsAfterFinished=0))
    await world.runs(*ALL)
    world.becomes("train-master-0", "Succeeded")
    await world.wait_until(lambda: not world.of(), "the job is gone")


async def test_refused_pod_is_an_event_and_tried_again(world: World) -> None:
    store = world.store
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    store.create({**quota, "spec": {"hard": {"pods": "1"}}})
    store.create(pytorch_job(workers=1))
    await world.wait_until(lambda: "FailedCreatePod" in dict(world.events()), "the worker is refused")
    await world.has("train-master-0")
    store.delete("ResourceQuota", "default", "q")
    await world.has(*ALL[:2])


@pytest.mark.parametrize("phase", ["Pending", "Running"])
async def test_pods_of_a_finished_job_are_deleted_in_each_unended_phase(world: World, phase: str) -> None:
    world.store.create(pytorch_job(cleanPodPolicy="Running", workers=1))
    await world.has(*ALL[:2])
    world.becomes("train-worker-0", phase)
    world.becomes("train-master-0", "Succeeded")
    await world.has("train-master-0")
