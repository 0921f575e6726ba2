"""Tokens and RBAC, answered as a real kube-apiserver 1.36 answered the same requests."""

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from local.kubernetes.apiserver.api import TOKEN, ApiServer
from local.kubernetes.apiserver.store import Store

RECORDINGS = Path(__file__).parents[3] / "recordings"
BOUND = ["08-create-role", "08-create-binding"]
WITH_THE_ROLE = [
    "08-403-cluster-list",
    "08-403-delete",
    "08-403-escalate",
    "08-403-other-ns",
    "08-403-patch-status",
    "08-403-pod-log",
    "08-403-unknown-resource",
    "08-ssar-allowed",
    "08-ssar-denied",
]
WITHOUT = [p.stem for p in sorted(RECORDINGS.glob("08-*.json")) if p.stem not in WITH_THE_ROLE]
TOKENS = {"<bot-token>": "bot", "<wrong>": "wrong", None: TOKEN}  # as recorded -> as sent
EACH_TIME_ANOTHER = ("managedFields", "uid", "creationTimestamp", "resourceVersion")


@pytest.fixture
async def http(server: ApiServer) -> Any:
    """Without a token of its own."""
    server.tokens["bot"] = "slackbot"
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def replayed(http: aiohttp.ClientSession, name: str) -> tuple[int, Any]:
    sent = json.loads((RECORDINGS / f"{name}.json").read_text())
    method, path = sent["request"].split(" ", 1)
    headers = {"Content-Type": sent["request_headers"].get("Content-Type", "")}
    recorded = re.sub("^Bearer ", "", sent["request_headers"].get("Authorization", "")) or None
    if recorded != "<None>":
        headers["Authorization"] = f"Bearer {TOKENS[recorded]}"
    data = json.dumps(sent["request_body"]) if sent["request_body"] else None
    async with http.request(method, path, data=data, headers=headers) as response:
        assert response.status == sent["status"]
        return steady(await response.json()), steady(sent["body"])


def steady(body: Any) -> Any:
    if isinstance(body, list):
        return [steady(item) for item in body]
    if isinstance(body, dict):
        return {key: steady(value) for key, value in body.items() if key not in EACH_TIME_ANOTHER}
    return body


@pytest.mark.parametrize("name", WITHOUT)
async def test_user_without_role_gets_the_recorded_errors(http: aiohttp.ClientSession, name: str) -> None:
    ours, real = await replayed(http, name)
    assert {key: real[key] for key in ours} == ours  # newer servers add to /version


@pytest.mark.parametrize("name", WITH_THE_ROLE)
async def test_user_with_role_gets_the_recorded_responses(http: aiohttp.ClientSession, name: str) -> None:
    for bound in BOUND:
        await replayed(http, bound)
    ours, real = await replayed(http, name)
    assert ours == real


ROLE = {
    "verbs": ["get"],
    "apiGroups": [""],
    "resources": ["pods", "namespaces"],
    "resourceNames": ["p", "kaniko"],
}
ACCOUNT = {"kind": "ServiceAccount", "namespace": "kaniko", "name": "bot"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/namespaces/kaniko/pods/p", 404),
        ("/api/v1/namespaces/kaniko", 200),
        ("/api/v1/namespaces/kaniko/pods/q", 403),
        ("/api/v1/namespaces/kaniko/pods", 403),
        ("/api/v1/namespaces/default/pods/p", 403),
        ("/api/v1/namespaces/default", 403),
    ],
)
async def test_service_account_can_do_what_its_role_grants(
    server: ApiServer, store: Store, http: aiohttp.ClientSession, path: str, status: int
) -> None:
    place = {"name": "bot", "namespace": "kaniko"}
    store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place})
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": place}
    store.create({**rbac, "kind": "Role", "rules": [ROLE]})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bot"}
    store.create({**rbac, "kind": "RoleBinding", "roleRef": ref, "subjects": [ACCOUNT]})
    server.tokens["account"] = "system:serviceaccount:kaniko:bot"
    async with http.get(path, headers={"Authorization": "Bearer account"}) as response:
        assert response.status == status
    store.delete("ServiceAccount", "kaniko", "bot")
    async with http.get(path, headers={"Authorization": "Bearer account"}) as response:
        assert response.status == 401


@pytest.mark.parametrize(("token", "status"), [("bot", 200), (None, 403)])
async def test_discovery_needs_a_token_and_no_role(
    http: aiohttp.ClientSession, token: str | None, status: int
) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for path in ("/apis", "/apis/batch", "/apis/batch/v1", "/api/v1"):
        async with http.get(path, headers=headers) as response:
            assert response.status == status


async def test_cluster_role_applies_to_all_namespaces(
    server: ApiServer, store: Store, http: aiohttp.ClientSession
) -> None:
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "bots"}}
    store.create(
        {**rbac, "kind": "ClusterRole", "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
    )
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bots"}
    subject = {"apiGroup": ref["apiGroup"], "kind": "User", "name": "slackbot"}
    store.create({**rbac, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [subject]})
    for path in ("/api/v1/nodes", "/apis/batch/v1/namespaces/kaniko/jobs"):
        async with http.get(path, headers={"Authorization": "Bearer bot"}) as response:
            assert response.status == 200
    assert {command.resource for command in server.granted} == {"nodes", "jobs"}
