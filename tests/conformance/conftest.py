"""One suite for any API server: the local one, or the one that CONFORMANCE_KUBECONFIG leads to.

Each test has a namespace `sweepbot-conformance-<random>` of its own, which is deleted after it.
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from local.katib import Katib
from local.kubernetes.apiserver.api import serve
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers
from tests.conformance.namespace import HOLD, Http, Place

ELSEWHERE = os.environ.get("CONFORMANCE_KUBECONFIG")
ADMITTED = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
STRANGER = "sweepbot-conformance-stranger"
KEPT_FOR_WATCHERS = 50  # changes; a real server forgets old ones, too
LACKS = {
    "custom": "it has no Katib kinds, or a Katib that checks what these requests send",
    "katib": "it has no Katib",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(what): 'custom', Katib's kinds without webhooks, or 'katib', all of it"
    )
    config.addinivalue_line("markers", "unlabelled: in a namespace without the label that Katib wants")
    config.addinivalue_line("markers", "differs(what): the local server does not; see DIFFERENCES.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make a listed difference that no longer exists a failure."""
    for item in items:
        if (mark := item.get_closest_marker("differs")) and not ELSEWHERE:
            item.add_marker(pytest.mark.xfail(reason=f"DIFFERENCES.md: {mark.args[0]}", strict=True))


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> str:
    mark = request.node.get_closest_marker("needs")
    return mark.args[0] if mark else ""


@pytest.fixture
async def kubeconfig(needs: str, tmp_path: Path) -> AsyncIterator[Path]:
    if ELSEWHERE:
        yield Path(ELSEWHERE)
        return
    async with AsyncExitStack() as stack:
        store = Store(history=KEPT_FOR_WATCHERS)
        katib = Katib(store) if needs == "katib" else None
        server = await serve(store)
        server.tokens["stranger"] = STRANGER
        stack.push_async_callback(server.close)
        for part in filter(None, (Controllers(store, backoff=0), katib)):
            part.start()
            stack.push_async_callback(part.close)
        server.kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"


@pytest.fixture
async def cluster(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesClient]:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    cluster = await KubernetesClient.connect()
    yield cluster
    await cluster.close()


@pytest.fixture
async def place(
    cluster: KubernetesClient, needs: str, request: pytest.FixtureRequest
) -> AsyncIterator[Place]:
    http = Http(cluster)
    place = Place(f"sweepbot-conformance-{secrets.token_hex(4)}", cluster, http)
    labels = {} if request.node.get_closest_marker("unlabelled") else ADMITTED
    meta = {"name": place.namespace, "labels": labels}
    try:
        made = await http.send("POST", "/api/v1/namespaces", {"metadata": meta})
        assert made.status == 201, made.body
        if needs and ELSEWHERE and await _katib_of(place) != needs:
            pytest.skip(LACKS[needs])
        yield place
    finally:
        await _let_go(place)
        if ELSEWHERE:  # the local server itself goes
            await http.send("DELETE", f"/api/v1/namespaces/{place.namespace}")
        await http.close()


async def _katib_of(place: Place) -> str:
    """What of Katib a server has: "", "custom" or "katib"."""
    nonsense = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "x"},
        "spec": {"a": 1},
    }
    answer = await place.http.send("POST", place.path("Experiment") + "?dryRun=All", nonsense)
    return {404: "", 201: "custom"}.get(answer.status, "katib")


async def _let_go(place: Place) -> None:
    """Take away what would keep the namespace."""
    for kind in ("ConfigMap", "Job", "Experiment"):
        try:
            there = await place.cluster.list(kind, place.namespace)
        except ApiError:
            continue
        for obj in there:
            if HOLD in obj["metadata"].get("finalizers", ()):
                await place.cluster.merge(
                    place.ref(kind, obj["metadata"]["name"]), {"metadata": {"finalizers": None}}
                )


@pytest.fixture
async def stranger(kubeconfig: Path, cluster: KubernetesClient) -> AsyncIterator[KubernetesClient]:
    """A client of a user without permissions."""
    client = await KubernetesClient.connect()
    if ELSEWHERE:
        client._client.set_default_header("Impersonate-User", STRANGER)
    else:
        client._client.configuration.api_key["BearerToken"] = "Bearer stranger"
    yield client
    await client.close()
