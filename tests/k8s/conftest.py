"""API servers for tests: replayed responses of a real one, and the local one."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from k8s.api.client import KubernetesClient
from local.kubernetes.apiserver.api import ApiServer, serve
from local.kubernetes.apiserver.store import Store

RECORDINGS = Path(__file__).parents[1] / "recordings"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    return lambda name: json.loads((RECORDINGS / f"{name}.json").read_text())


@pytest.fixture
def answering(recorded: Callable[[str], dict[str, Any]]) -> Callable[[str], web.Response]:
    """A recorded answer of a real server, to be given again."""

    def answer(name: str) -> web.Response:
        recording = recorded(name)
        body, kind = (
            recording["body"],
            recording["response_headers"].get("Content-Type", "text/plain").split(";")[0],
        )
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=recording["status"], text=text, content_type=kind)

    return answer


@pytest.fixture
async def connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str], Awaitable[KubernetesClient]]]:
    """`await connected(address)`: a client with a kubeconfig."""
    async with AsyncExitStack() as stack:

        async def connect(address: str) -> KubernetesClient:
            file = tmp_path / "kubeconfig"
            config = {
                "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
                "users": [{"name": "u", "user": {"token": "local-admin"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            file.write_text(yaml.safe_dump(config))
            monkeypatch.setenv("KUBECONFIG", str(file))
            cluster = await KubernetesClient.connect()
            stack.push_async_callback(cluster.close)
            return cluster

        yield connect


@pytest.fixture
def store() -> Store:
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    return store


@pytest.fixture
async def server(store: Store) -> AsyncIterator[ApiServer]:
    """The API server of the local world, without controllers."""
    server = await serve(store)
    yield server
    await server.close()


@pytest.fixture
async def local(
    server: ApiServer, connected: Callable[[str], Awaitable[KubernetesClient]]
) -> KubernetesClient:
    return await connected(server.url.removeprefix("http://"))
