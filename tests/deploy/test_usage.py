"""The rights of deploy/usage let the bot see what GPUs do: exporters answer through the API server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis

from bot.measure.gpus.models import BUSY, NodeUse
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources.dcgm_source import Sampler
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.rbac import FOR_GPU_USE
from local import cluster_fixtures
from local.kubernetes.apiserver.api import ApiServer, serve
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.kubelet import Kubelet
from tests.scenarios.device_cluster import resource_slice

RIGHTS = Path(__file__).parents[2] / "deploy" / "usage" / "rights.yaml"
WORKER = "system:serviceaccount:sweepbot:sweepbot-work"
STEP = 30
NOW = datetime.now(UTC)


def deployed() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(RIGHTS.read_text()))


def rules() -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in (rule for obj in deployed() for rule in obj.get("rules", [])):
        for resource in rule["resources"]:
            found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def pod(namespace: str, name: str, program: str, gpus: int) -> dict[str, Any]:
    main = {"name": "main", "image": "python:3.11-slim", "command": ["python", "-c", program]}
    main["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    meta = {"namespace": namespace, "name": name, "labels": {"sweepbot/owner": "U1A1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    store, nodes = Store(), {"gpu-1": 4}
    for name in ("sweepbot", "sweeps"):
        store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = {"name": "sweepbot-work", "namespace": "sweepbot"}
    store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    cluster_fixtures.install(store, nodes)
    daemons = dict.fromkeys(("k8s-device-plugin", "dcgm-exporter"), cluster_fixtures.daemon)
    kubelet = Kubelet(store, nodes, "127.0.0.1:1", daemons, tmp_path / "pods")
    kubelet.start()
    server = await serve(store)
    server.metrics = kubelet.metrics
    server.tokens["worker"] = WORKER
    server.kubeconfig(tmp_path / "kubeconfig", "worker")
    store.create(pod("sweeps", "busy", "while True: pass", 1))
    store.create(pod("default", "idle", "import time; time.sleep(600)", 2))
    yield server
    await kubelet.close()
    await server.close()


@pytest.fixture
async def cluster(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesClient]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    cluster = await KubernetesClient.connect()
    yield cluster
    await cluster.close()


def test_doctor_checks_exactly_the_usage_role() -> None:
    assert {key: set(verbs) for key, verbs in FOR_GPU_USE.items()} == rules()


async def test_gpu_utilization_is_measured_with_all_permissions_of_the_role(
    server: ApiServer, cluster: KubernetesClient, redis: Redis, wait_until: Any
) -> None:
    for obj in (*deployed(), resource_slice("elsewhere", 1)):
        server.store.create(obj)
    claims = pod("default", "claims", "pass", 0)
    claims["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "missing"}]
    server.store.create(claims)
    sampler = Sampler(cluster, lambda: ["sweeps"], OwnerStore(redis, tuple))
    shares: dict[str, list[float | None]] = {}

    async def seen() -> bool:
        sample = await sampler.sample(NOW, STEP)
        shares.update({pod.use.pod: [gpu.peak for gpu in pod.use.gpus] for pod in sample.pods})
        return shares.get("busy", [0])[:1] > [0.2] and len(shares["idle"]) == 2

    await wait_until(seen, "the busy GPU is measured")
    await wait_until(lambda: looked_idle(sampler), "the idle ones are seen idle")
    sample = await sampler.sample(NOW, STEP)
    assert sample.nodes == (NodeUse(node="gpu-1", model="Local GPU", physical=4, allocatable=4, allocated=3),)
    assert {pod.use.owner for pod in sample.pods} == {"U1A1"}
    listed = {(command.group, command.resource, command.verb) for command in server.granted}
    assert listed == granted() - {("", "pods", "watch")}


def granted() -> set[tuple[str, str, str]]:
    return {(*resource, verb) for resource, verbs in rules().items() for verb in verbs}


async def test_watched_pods_are_not_listed_for_samples(
    server: ApiServer, cluster: KubernetesClient, redis: Redis, wait_until: Any
) -> None:
    for obj in deployed():
        server.store.create(obj)
    sampler = Sampler(cluster, lambda: ["sweeps"], OwnerStore(redis, tuple))
    watching = asyncio.create_task(sampler.watch())
    await wait_until(lambda: sampler._watched.complete, "the pods are watched")

    async def holders() -> set[str]:
        return {pod for _, pod in await sampler.holders()}

    async def both() -> bool:
        return await holders() == {"busy", "idle"}

    await wait_until(both, "both pods have their node")
    server.granted.clear()
    sample = await sampler.sample(NOW, STEP)
    assert {pod.use.pod for pod in sample.pods} == {"busy", "idle"}
    assert ("", "pods", "list") not in {
        (command.group, command.resource, command.verb) for command in server.granted
    }
    server.store.delete("Pod", "sweeps", "busy", grace=0)

    async def one() -> bool:
        return await holders() == {"idle"}

    await wait_until(one, "the deletion is seen")
    watching.cancel()
    await asyncio.wait([watching])
    assert not sampler._watched.complete, "a new leader starts with a list"
    assert await holders() == {"idle"}


async def test_pods_are_listed_without_the_permission_to_watch(
    server: ApiServer, cluster: KubernetesClient, redis: Redis, wait_until: Any
) -> None:
    for obj in deployed():
        for rule in obj.get("rules", []):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "watch"]
        server.store.create(obj)
    sampler = Sampler(cluster, lambda: ["sweeps"], OwnerStore(redis, tuple))
    watching = asyncio.create_task(sampler.watch())

    async def holders() -> bool:
        return len(await sampler.holders()) == 2

    await wait_until(holders, "both pods have their node")
    watching.cancel()
    await asyncio.wait([watching])


async def looked_idle(sampler: Sampler) -> bool:
    sample = await sampler.sample(NOW, STEP)
    [idle] = [pod.use for pod in sample.pods if pod.use.pod == "idle"]
    return all((gpu.peak or 0) < BUSY for gpu in idle.gpus)


async def test_gpu_utilization_without_the_proxy_permission_is_unknown(
    server: ApiServer, cluster: KubernetesClient, redis: Redis, wait_until: Any
) -> None:
    for obj in deployed():
        if not obj["kind"].startswith("Role"):
            server.store.create(obj)
    sampler = Sampler(cluster, lambda: ["sweeps"], OwnerStore(redis, tuple))

    async def holders() -> bool:
        return len(await sampler.holders()) == 2

    await wait_until(holders, "both pods have their node")
    sample = await sampler.sample(NOW, STEP)
    assert [(pod.use.pod, pod.use.allocated, pod.use.gpus) for pod in sample.pods] == [
        ("idle", 2, ()),
        ("busy", 1, ()),
    ]


async def test_pod_without_a_server_is_no_exporter(server: ApiServer, cluster: KubernetesClient) -> None:
    server.tokens["worker"] = "system:admin"
    with pytest.raises(ApiError) as error:
        await cluster.proxy("sweeps", "busy", 9400, "metrics")
    assert (error.value.status, error.value.reason) == (503, "ServiceUnavailable")
    with pytest.raises(ApiError) as error:
        await cluster.proxy("sweeps", "nobody", 9400, "metrics")
    assert error.value.absent
