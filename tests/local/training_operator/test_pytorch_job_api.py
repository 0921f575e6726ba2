"""What the API server and the operator's webhook accept: by recordings of the one, and the other's code."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from local import training_operator
from local.kubernetes.apiserver.api import TOKEN, serve
from local.kubernetes.apiserver.store import Refused, Store
from tests.conformance.replay import alike, recording
from tests.local.training_operator.conftest import World, pytorch_job

Object = dict[str, Any]
PATH = "/apis/kubeflow.org/v1/namespaces/kaniko/pytorchjobs"
DENIED = 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request: '


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """With the CustomResourceDefinition and without the operator, as it was recorded."""
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kaniko"}})
    training_operator.install(store)
    server = await serve(store)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session:
        yield session
    await server.close()


@pytest.mark.parametrize("name", ["create", "422", "type", "unknown-pruned", "unknown-strict"])
async def test_api_server_answers_as_recorded(http: aiohttp.ClientSession, name: str) -> None:
    real = recording(f"16-pytorchjob-{name}")
    async with http.post(real["request"].split(" ")[1], json=real["request_body"]) as response:
        assert (response.status, alike(await response.json())) == (real["status"], alike(real["body"]))
        assert response.headers.get("Warning") == real["response_headers"].get("Warning")


async def test_discovery_has_both_versions_of_the_group(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis/kubeflow.org") as response:
        group = await response.json()
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    async with http.get("/apis/kubeflow.org/v1") as response:
        resources = (await response.json())["resources"]
    assert [each["name"] for each in resources] == ["pytorchjobs", "pytorchjobs/status"]


async def test_without_the_definition_there_are_no_pytorch_jobs() -> None:
    server = await serve(Store())
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session, session.get(PATH) as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")
    await server.close()


def job(name: str = "train", type_: str = "Worker", **replica: Any) -> Object:
    made = pytorch_job(name)
    made["spec"]["pytorchReplicaSpecs"][type_] |= replica
    return made


def containers(*given: Object) -> Object:
    return {"template": {"spec": {"containers": list(given)}}}


AT = "spec.pytorchReplicaSpecs[Worker].template.spec.containers"


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (job("0train"), 'metadata.name: Invalid value: "0train": should match: a DNS-1035 label must'),
        (job("t" * 64), "should match: must be no more than 63 characters"),
        (job(type_="Master", replicas=2), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
        (job(replicas=0), "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"),
        (
            job(**containers({"name": "main", "image": "x"})),
            f"{AT}: Required value: must have at least one container with name pytorch",
        ),
        (job(**containers({"name": "pytorch"})), f"{AT}[0].image: Required value: must be required"),
        (job(restartPolicy="OnFailure"), "the local operator restarts no replica"),
        (pytorch_job(managedBy="kueue.x-k8s.io/multikueue"), "the local operator has no managedBy"),
    ],
)
async def test_webhook_refuses_what_the_real_one_refuses(world: World, made: Object, error: str) -> None:
    with pytest.raises(Refused) as refused:
        world.store.create(made)
    assert refused.value.code == 403
    assert str(refused.value).startswith(DENIED)
    assert error in str(refused.value)


async def test_invalid_replicas_are_refused(world: World) -> None:
    made = pytorch_job()
    del made["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"]
    with pytest.raises(Refused, match="replicas: Forbidden: must be 1"):
        world.store.create(made)
    made = pytorch_job()
    made["spec"]["pytorchReplicaSpecs"]["Chief"] = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    with pytest.raises(Refused, match='"Chief": supported values: "Master", "Worker"'):
        world.store.create(made)
