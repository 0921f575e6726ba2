"""Clusters that are away, come back, or turn out to be others; each is a local API server."""

import asyncio
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s import sessions
from k8s.api import remote
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError
from k8s.api.remote import RemoteClient
from k8s.objects import Ref
from k8s.retry import Retry
from local.kubernetes.apiserver.api import ApiServer, serve
from local.kubernetes.apiserver.store import Store

NAMESPACE = Ref("Namespace", "", "default")


def kubeconfig(file: Path, url: str, **user: Any) -> str:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {"token": "local-admin"}}],
        "contexts": [{"name": "west", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "west",
    }
    file.write_text(yaml.safe_dump(config))
    return str(file)


class Home:
    """Remembers the first uid, as the main cluster's ConfigMap does."""

    def __init__(self) -> None:
        self.uid = ""

    async def known(self, uid: str) -> str:
        self.uid = self.uid or uid
        return self.uid


@pytest.fixture
def calls(monkeypatch):
    """The next call after a failed one is due at once; `calls.pause` keeps it from being made."""
    monkeypatch.setattr(remote, "RETRY", Retry(base=0.0))
    return monkeypatch


@pytest.fixture
async def west(server: ApiServer, tmp_path: Path):
    client = RemoteClient("west", kubeconfig(tmp_path / "west", server.url), "west", Home().known)
    yield client
    await client.close()


async def test_cluster_that_answers_is_read_and_seen(west):
    assert west.seen is None
    assert (await west.get(NAMESPACE))["metadata"]["name"] == "default"
    assert west.seen is not None
    assert await west.get(Ref("Namespace", "", "missing")) is None


async def test_cluster_that_is_killed_and_restored_is_used_again(west, server, store, calls):
    await west.get(NAMESPACE)
    port = int(server.url.rpartition(":")[2])
    await server.close()
    with pytest.raises(ClusterUnreachableError) as away:
        await west.get(NAMESPACE)
    assert (away.value.cluster, away.value.seen, away.value.fix) == ("west", west.seen, "")
    assert not await west.is_ready()
    again = await serve(store, port)
    assert await west.get(NAMESPACE)
    await again.close()


async def test_calls_to_a_dead_cluster_fail_without_trying(west, server, calls):
    await west.get(NAMESPACE)
    await server.close()
    calls.setattr(remote, "RETRY", Retry(base=3600.0))
    with pytest.raises(ClusterUnreachableError):
        await west.get(NAMESPACE)
    tried: list[str] = []
    calls.setattr(remote.KubernetesClient, "_send", lambda *_, **__: tried.append("call"))
    for _ in range(20):
        with pytest.raises(ClusterUnreachableError):
            await west.list("Pod", "sweeps")
    assert tried == []


async def test_kubeconfig_of_another_cluster_is_refused_until_it_points_back(server, tmp_path, calls):
    home, file = Home(), tmp_path / "west"
    client = RemoteClient("west", kubeconfig(file, server.url), "", home.known)
    await client.get(NAMESPACE)
    await client.close()
    other = await serve(Store())
    moved = RemoteClient("west", kubeconfig(file, other.url), "", home.known)
    with pytest.raises(ClusterUnreachableError, match="points to another cluster than before") as refused:
        await moved.get(NAMESPACE)
    assert "Point it to the former cluster" in refused.value.fix
    kubeconfig(file, server.url)
    assert await moved.get(NAMESPACE)
    await moved.close()
    await other.close()


async def test_rejected_token_is_replaced_from_the_file(server, tmp_path, calls):
    file = tmp_path / "west"
    client = RemoteClient("west", kubeconfig(file, server.url, token="old"), "", Home().known)
    with pytest.raises(ClusterUnreachableError, match="rejects the credentials") as refused:
        await client.get(NAMESPACE)
    assert refused.value.fix == "Put a valid token into its kubeconfig."
    kubeconfig(file, server.url)
    assert await client.get(NAMESPACE)
    await client.close()


async def test_token_of_an_exec_plugin_is_used(server, tmp_path):
    plugin = tmp_path / "plugin"
    answer = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        '"status": {"token": "local-admin"}}'
    )
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    client = RemoteClient("west", kubeconfig(tmp_path / "west", server.url, **user), "", Home().known)
    assert await client.get(NAMESPACE)
    await client.close()


async def test_exec_plugin_that_failed_at_first_is_run_again_with_backoff(
    server, tmp_path, monkeypatch, wait_until
):
    monkeypatch.setattr(sessions, "RETRY", Retry(base=0.0))
    plugin, works = tmp_path / "plugin", tmp_path / "works"
    answer = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        '"status": {"token": "local-admin"}}'
    )
    plugin.write_text(f"#!/bin/sh\ntest -e {works} && echo '{answer}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    home = KubernetesClient(await sessions.by_kubeconfig(kubeconfig(tmp_path / "home", server.url, **user)))
    with pytest.raises(ApiError) as refused:
        await home.get(NAMESPACE)
    assert refused.value.status in {401, 403}
    works.touch()

    async def answers():
        with suppress(ApiError):
            return await home.get(NAMESPACE)

    await wait_until(answers, "the plugin is run again")
    await home.close()


async def test_exec_plugin_that_hangs_is_stopped_and_run_again(monkeypatch, wait_until):
    class Loader:
        _user, runs = {"exec": {}}, 0

        async def load_from_exec_plugin(self):
            self.runs += 1
            if self.runs == 1:
                await asyncio.Event().wait()
            self.token = "Bearer new"
            return True

    class Configuration:
        def __init__(self):
            self.api_key = {}

    monkeypatch.setattr(sessions, "RETRY", Retry(base=0.0))
    monkeypatch.setattr(sessions, "PLUGIN_TIMEOUT", 0.01)
    loader, configuration = Loader(), Configuration()
    renewal = asyncio.create_task(sessions._renew(loader, configuration))
    await wait_until(lambda: configuration.api_key, "the token is renewed")
    renewal.cancel()
    assert (loader.runs, configuration.api_key) == (2, {"BearerToken": "Bearer new"})


async def test_unused_session_is_closed_once_no_call_needs_it(west, monkeypatch):
    await west.get(NAMESPACE)
    session = west._session
    closing = asyncio.create_task(west.close_when_idle())
    await asyncio.sleep(0)
    assert await west.get(NAMESPACE)
    assert west._session is session, "a user of before can still make calls"
    monkeypatch.setattr(remote, "IDLE", 0.0)
    west._used_at = 0.0
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert west._session is None


async def test_closed_client_opens_no_session_for_a_late_call(west, monkeypatch):
    monkeypatch.setattr(remote, "IDLE", 0.0)
    await west.get(NAMESPACE)
    await west.close_when_idle()
    for _ in range(2):
        with pytest.raises(ClusterUnreachableError, match="entry in `clusters:` was changed or removed"):
            await west.get(NAMESPACE)
    assert not await west.is_ready()
    assert (west._session, west._former) == (None, None)


async def test_client_closed_while_its_session_opens_closes_that_one_too(west, monkeypatch):
    opened, opening, by_kubeconfig = [], asyncio.Event(), remote.by_kubeconfig

    async def slowly(*of: str) -> Any:
        opening.set()
        await asyncio.sleep(0)
        opened.append(await by_kubeconfig(*of))
        return opened[0]

    monkeypatch.setattr(remote, "by_kubeconfig", slowly)
    late = asyncio.create_task(west.get(NAMESPACE))
    await opening.wait()
    await west.close()
    with pytest.raises(ClusterUnreachableError):
        await late
    assert (west._session, west._former) == (None, None)
    assert opened[0].rest_client.pool_manager is None or opened[0].rest_client.pool_manager.closed


@pytest.mark.parametrize("text", [None, "{", "token: [s3cret", "{}"])
async def test_unusable_kubeconfig_is_named_without_its_content(tmp_path, text):
    file = tmp_path / "west"
    if text is not None:
        file.write_text(text)
    client = RemoteClient("west", str(file), "", Home().known)
    with pytest.raises(ClusterUnreachableError, match=r"kubeconfig .* can't be used") as refused:
        await client.get(NAMESPACE)
    assert "s3cret" not in str(refused.value)
    assert refused.value.fix == "Check the file."


async def test_missing_right_to_read_the_identity_names_the_fix(west, calls):
    async def forbidden(*_: Any, **__: Any) -> Any:
        raise ApiError(403, "Forbidden", "namespaces is forbidden")

    calls.setattr(remote.KubernetesClient, "_send", forbidden)
    with pytest.raises(ClusterUnreachableError) as refused:
        await west.get(NAMESPACE)
    assert refused.value.fix == "Grant `get` of the namespace kube-system."


async def test_calls_at_the_same_time_open_one_session(west):
    await asyncio.gather(*(west.get(NAMESPACE) for _ in range(10)))
    assert west.seen is not None
