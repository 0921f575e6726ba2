"""What the API server and the webhooks of Kubeflow Trainer accept, by its definitions and code."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from local.kubernetes.apiserver.api import TOKEN, serve
from local.kubernetes.apiserver.store import Refused, Store
from tests.local.trainer.conftest import World, train_job, training_runtime

Object = dict[str, Any]
GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
DENIED = 'admission webhook "validator.{}.trainer.kubeflow.org" denied the request: '


@pytest.fixture
async def http(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    server = await serve(world.store)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session:
        yield session
    await server.close()


async def test_objects_get_the_defaults_of_their_schemas(http: aiohttp.ClientSession) -> None:
    at = f"{GROUP}/namespaces/default"
    async with http.post(f"{at}/trainingruntimes", json=training_runtime()) as response:
        [replicated] = (await response.json())["spec"]["template"]["spec"]["replicatedJobs"]
    assert (replicated["groupName"], replicated["replicas"]) == ("default", 1)
    async with http.post(f"{at}/trainjobs", json=train_job(unknown=1)) as response:
        assert (response.status, response.headers["Warning"]) == (
            201,
            '299 - "unknown field \\"spec.unknown\\""',
        )
        spec = (await response.json())["spec"]
    assert spec["suspend"] is False
    assert spec["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert "unknown" not in spec


async def test_discovery_has_the_groups(http: aiohttp.ClientSession) -> None:
    async with http.get(GROUP) as response:
        resources = (await response.json())["resources"]
    names = [each["name"] for each in resources]
    assert names == ["trainjobs", "trainjobs/status", "trainingruntimes"]
    async with http.get("/apis/jobset.x-k8s.io/v1alpha2") as response:
        assert response.status == 200


async def test_without_the_definitions_there_are_no_train_jobs() -> None:
    server = await serve(Store())
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as session,
        session.get(f"{GROUP}/namespaces/default/trainjobs") as response,
    ):
        assert (response.status, await response.text()) == (404, "404 page not found\n")
    await server.close()


def trained(**fields: Any) -> Object:
    made = train_job()
    made["spec"]["trainer"] |= fields
    return made


def without_reference() -> Object:
    made = train_job()
    del made["spec"]["runtimeRef"]
    return made


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (train_job("0train"), '<nil>: Invalid value: "object": metadata.name must match RFC 1035 DNS label'),
        (train_job("t" * 64), "metadata.name must be no more than 63 characters"),
        (
            trained(numNodes=-1),
            "numNodes: Invalid value: -1: spec.trainer.numNodes in body should be greater than or equal to 0",
        ),
        (trained(numNodes="3"), 'spec.trainer.numNodes in body must be of type integer: "string"'),
        (
            trained(numProcPerNode=0),
            'spec.trainer.numProcPerNode: Invalid value: "integer": numProcPerNode must be greater than',
        ),
        (train_job(managedBy="me"), 'spec.managedBy: Invalid value: "string": ManagedBy must be'),
        (without_reference(), "spec.runtimeRef: Required value"),
        (train_job(runtimeRef={"kind": "TrainingRuntime"}), "spec.runtimeRef.name: Required value"),
        (trained(env=[{"value": "1"}]), "spec.trainer.env[0].name: Required value"),
    ],
)
async def test_schema_refuses_what_the_real_one_refuses(world: World, made: Object, error: str) -> None:
    world.store.create(training_runtime())
    with pytest.raises(Refused) as refused:
        world.store.create(made)
    assert refused.value.code == 422
    assert error in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"trainer": {"numNodes": 2}},
        {"trainer": {"args": ["--lr=2"]}},
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        {"runtimeRef": {"name": "other"}},
    ],
)
async def test_spec_is_immutable_but_for_its_suspension(world: World, change: Object) -> None:
    for name in ("torch", "other"):
        world.store.create(training_runtime(name))
    world.store.create(train_job(suspend=True))
    with pytest.raises(Refused) as refused:
        world.store.patch("TrainJob", "default", "train", {"spec": change})
    assert refused.value.code in (403, 422)
    [field] = change
    assert f"spec.{field}" in str(refused.value)


def reference(**fields: str) -> Object:
    return train_job(runtimeRef={"name": "x", **fields})


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (
            reference(kind="TrainingRuntime"),
            'TrainingRuntime.trainer.kubeflow.org "x" not found: specified trainingRuntime must be created',
        ),
        (reference(), "specified clusterTrainingRuntime must be created before the TrainJob is created"),
        (reference(kind="Other"), "unsupported runtime: Other.trainer.kubeflow.org"),
        (
            trained(env=[{"name": "PET_NNODES", "value": "1"}]),
            "must not have reserved envs, invalid envs configured: [PET_NNODES]",
        ),
        (train_job(activeDeadlineSeconds=60), "the local Trainer has no activeDeadlineSeconds"),
        (train_job(initializer={"model": {}}), "the local Trainer has no initializer"),
        (train_job(runtimePatches=[{"manager": "a/b"}]), "the local Trainer applies no patches"),
        (trained(numNodes=0), "the local Trainer runs at least 1 node"),
    ],
)
async def test_webhook_refuses_a_job(world: World, made: Object, error: str) -> None:
    world.store.create(training_runtime())
    with pytest.raises(Refused) as refused:
        world.store.create(made)
    assert refused.value.code == 403
    assert str(refused.value).startswith(DENIED.format("trainjob"))
    assert error in str(refused.value)


def runtime(job: Object | None = None, template: Object | None = None, **spec: Any) -> Object:
    made = training_runtime()
    inside = made["spec"]["template"]["spec"]
    inside["replicatedJobs"][0] |= job or {}
    inside |= template or {}
    made["spec"] |= spec
    return made


def main(name: str) -> Object:
    made = training_runtime()["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    made["spec"]["template"]["spec"]["containers"][0]["name"] = name
    return {"template": made}


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (runtime({"replicas": 2}), "replicatedJobs[0].replicas: Invalid value: 2: always must be 1"),
        (runtime(main("main")), "must contain the required container for the ancestor: trainer"),
        (runtime(mlPolicy={"mpi": {}}), "the local Trainer needs an empty spec.mlPolicy.torch"),
        (runtime(template={"failurePolicy": {"maxRestarts": 3}}), "the local JobSet has no failurePolicy"),
        (runtime({"name": "worker"}), "the local Trainer needs one Job, node, labeled"),
        (runtime(podGroupPolicy={"coscheduling": {}}), "the local Trainer has no podGroupPolicy"),
    ],
)
async def test_webhook_refuses_a_runtime(world: World, made: Object, error: str) -> None:
    with pytest.raises(Refused) as refused:
        world.store.create(made)
    assert refused.value.code == 403
    assert str(refused.value).startswith(DENIED.format("trainingruntime"))
    assert error in str(refused.value)


async def test_runtime_with_two_policies_is_refused(world: World) -> None:
    with pytest.raises(Refused, match="Only one of the policy can be configured"):
        world.store.create(runtime(mlPolicy={"torch": {}, "mpi": {}}))
