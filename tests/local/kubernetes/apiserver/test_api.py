"""Stories through the official client, as a bot lives them."""

import asyncio
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import client

from local.kubernetes.apiserver.api import ApiServer
from local.kubernetes.apiserver.store import Store

Object = dict[str, Any]
EXPERIMENTS = ("kubeflow.org", "v1beta1", "kaniko", "experiments")
JOBS = "/apis/batch/v1/namespaces/kaniko/jobs"
MERGE = {"_content_type": "application/merge-patch+json"}


def experiment(name: str, **labels: str) -> Object:
    meta = {"name": name, "namespace": "kaniko", "labels": labels}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": meta, "spec": {"a": 1}}


def job(name: str = "build") -> Object:
    containers = [{"name": "kaniko", "image": "x:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


def pod(*containers: str, node: str | None = "n1") -> Object:
    spec = {"containers": [{"name": name, "image": "x"} for name in containers], "restartPolicy": "Never"}
    bound = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "kaniko"},
        "spec": {**spec, **bound},
    }


async def test_objects_are_created_patched_and_deleted_and_take_a_status(api: client.ApiClient) -> None:
    batch = client.BatchV1Api(api)
    created = await batch.create_namespaced_job("kaniko", job())
    assert created.spec.backoff_limit == 6
    change = {"metadata": {"labels": {"a": "b"}}}
    patched = await batch.patch_namespaced_job("build", "kaniko", change, **MERGE)
    assert patched.metadata.labels["a"] == "b"
    options = client.V1DeleteOptions(
        propagation_policy="Background", preconditions=client.V1Preconditions(uid=created.metadata.uid)
    )
    await batch.delete_namespaced_job("build", "kaniko", body=options)
    with pytest.raises(client.ApiException) as gone:
        await batch.read_namespaced_job("build", "kaniko")
    assert gone.value.status == 404
    custom = client.CustomObjectsApi(api)
    await custom.create_namespaced_custom_object(*EXPERIMENTS, experiment("lr"))
    await custom.patch_namespaced_custom_object(*EXPERIMENTS, "lr", {"spec": {"a": None, "b": 2}}, **MERGE)
    status = {"status": {"trials": 1}, "spec": {"ignored": True}}
    after = await custom.patch_namespaced_custom_object_status(*EXPERIMENTS, "lr", status, **MERGE)
    assert (after["spec"], after["status"]) == ({"b": 2}, {"trials": 1})


async def test_list_pages_have_one_version(http: aiohttp.ClientSession, store: Store) -> None:
    for name in "abc":
        store.create(experiment(name))
    address = "/apis/kubeflow.org/v1beta1/namespaces/kaniko/experiments"
    async with http.get(f"{address}?limit=2") as response:
        first = await response.json()
    store.create(experiment("bb"))
    store.delete("Experiment", "kaniko", "c")
    async with http.get(f"{address}?limit=2&continue={first['metadata']['continue']}") as response:
        second = await response.json()
    assert [item["metadata"]["name"] for item in first["items"] + second["items"]] == ["a", "b", "c"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert second["metadata"] == {"continue": "", "resourceVersion": first["metadata"]["resourceVersion"]}
    async with http.get(f"{address}?limit=2&continue=7.forgotten") as response:
        assert (response.status, (await response.json())["reason"]) == (410, "Expired")


async def test_close_ends_watches(
    server: ApiServer, http: aiohttp.ClientSession, store: Store, wait_until: Any
) -> None:
    response = await http.get("/api/v1/pods?watch=1")
    await wait_until(lambda: store._queues, "the watch has started")
    await asyncio.wait_for(server.close(), 200)
    await wait_until(lambda: not store._queues, "no watch is open")
    response.close()


@pytest.mark.parametrize(
    ("containers", "query", "status", "text"),
    [
        (["main"], "", 200, "main's log, 0 lines"),
        (["main", "sidecar"], "?container=sidecar&tailLines=5", 200, "sidecar's log, 5 lines"),
        (
            ["main", "sidecar"],
            "",
            400,
            "a container name must be specified for pod p, choose one of: [main sidecar]",
        ),
        (["main"], "?limitBytes=4", 200, "main"),
        (["main"], "?container=nope", 400, "container nope is not valid for pod p"),
        (["main"], "?previous=true", 400, 'previous terminated container "main" in pod "p" not found'),
    ],
)
async def test_log_names_its_container(
    server: ApiServer,
    http: aiohttp.ClientSession,
    store: Store,
    containers: list[str],
    query: str,
    status: int,
    text: str,
) -> None:
    server.logs = lambda _namespace, _pod, container, lines, _since: f"{container}'s log, {lines or 0} lines"
    store.create(pod(*containers))
    async with http.get(f"/api/v1/namespaces/kaniko/pods/p/log{query}") as response:
        assert response.status == status
        message = await response.text() if status == 200 else (await response.json())["message"]
    assert message == text


@pytest.mark.parametrize(("node", "status"), [(None, 204), ("n1", 500)])
async def test_log_without_a_kubelet_is_an_error(
    http: aiohttp.ClientSession, store: Store, node: str | None, status: int
) -> None:
    store.create(pod("main", node=node))
    async with http.get("/api/v1/namespaces/kaniko/pods/p/log") as response:
        assert response.status == status


async def test_unsupported_request_is_rejected(http: aiohttp.ClientSession) -> None:
    for method, address, status in (
        ("PUT", f"{JOBS}/build", 405),
        ("DELETE", JOBS, 405),
        ("GET", "/apis/kueue.x-k8s.io/v1beta1/workloads", 404),
        ("POST", f"{JOBS}?dryRun=All", 400),
    ):
        async with http.request(method, address, json={}) as response:
            assert (address, response.status) == (address, status)


async def test_watch_of_an_unchanged_kind_has_no_bookmark(http: aiohttp.ClientSession, store: Store) -> None:
    query = f"watch=1&allowWatchBookmarks=1&timeoutSeconds=3&resourceVersion={store.version}"
    async with http.get(f"{JOBS}?{query}") as answer:
        assert await answer.text() == ""
