"""The same requests as to a real kube-apiserver 1.36, and the same answers."""

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from local.kubernetes.store import Store

RECORDINGS = Path(__file__).parents[2] / "recordings"

ON_AN_EMPTY_NAMESPACE = [
    "02-create-bad-ctype",
    "02-create-bad-json",
    "02-create-bad-label",
    "02-create-bad-name",
    "02-create-empty-body",
    "02-create-garbage-spec",
    "02-create-generateName",
    "02-create-missing-ns",
    "02-create-name-254",
    "02-create-no-kind",
    "02-create-no-name",
    "02-create-ns-mismatch",
    "02-create-strict-unknown-meta",
    "02-create-with-resourceversion-500",
    "02-create-with-status",
    "02-create-wrong-kind",
    "02-create-wrong-version",
    "02-delete-404",
    "02-delete-bad-policy",
    "02-list-bad-label",
    "02-list-field-unsupported",
    "02-list-missing-ns",
    "02-no-such-resource",
    "02-patch-404",
    "03-job-400-type",
    "03-job-422-label",
    "03-job-422-many",
    "03-job-422-name-64",
    "03-job-422-no-containers",
    "03-job-422-resources",
    "03-job-422-restart-always",
    "03-job-create",
    "03-job-delete-404",
    "03-job-emptybody-env-null",
    "03-job-env-number-400",
    "03-job-generateName",
    "03-job-get-404",
    "03-job-unknown-field-default",
    "03-job-unknown-field-ignore",
    "04-pod-log-404",
    "08-401-bad-token",
    "08-404-missing-ns-admin",
    "09-list-rv-future",
    "09-list-rv-invalid",
    "10-watch-rv-invalid",
]
ON_WHAT_IS_THERE = [
    "02-create-again-409",
    "02-create-while-terminating",
    "02-delete-background",
    "02-delete-precond-uid",
    "02-delete-terminating-again",
    "02-patch-json-malformed",
    "02-patch-json-test-fail",
    "02-patch-merge-stale-rv",
    "02-patch-plain-json-415",
    "02-patch-strategic-415",
    "02-remove-finalizer",
    "03-job-create-again-409",
    "07-job-create-while-terminating",
    "07-job-delete-background",
]


def recording(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return read


def alike(body: Any) -> Any:
    """An answer without what differs from one run to the next."""
    text = json.dumps(_without_managed_fields(body), sort_keys=True)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r'"resourceVersion": "\d+"', '"resourceVersion": "N"', text)
    text = re.sub(r'"generation": \d+', '"generation": 1', text)
    text = re.sub(r"-[a-z0-9]{5}\b", "-xxxxx", text)
    return json.loads(re.sub(r"current: \d+", "current: N", text))


def _without_managed_fields(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: _without_managed_fields(body[key]) for key in body if key != "managedFields"}
    return body


async def replay(http: aiohttp.ClientSession, sent: dict[str, Any]) -> tuple[int, Any, str | None]:
    """Status, body and the first Warning."""
    method, path = sent["request"].split(" ", 1)
    headers = {k: v for k, v in sent["request_headers"].items() if k in ("Content-Type", "Authorization")}
    body = sent["request_body"]
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    async with http.request(method, path, data=data, headers=headers) as response:
        text = await response.text()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(text) if is_json else text, response.headers.get("Warning")


async def compare(http: aiohttp.ClientSession, name: str) -> None:
    real = recording(name)
    status, body, warning = await replay(http, real)
    assert status == real["status"]
    assert alike(body) == alike(real["body"])
    if status != 400:  # wrong-version has a warning about a field nobody could know
        assert warning == real["response_headers"].get("Warning")


@pytest.mark.parametrize("name", ON_AN_EMPTY_NAMESPACE)
async def test_answers_as_the_real_one_on_an_empty_namespace(http: aiohttp.ClientSession, name: str) -> None:
    await compare(http, name)


@pytest.mark.parametrize("name", ON_WHAT_IS_THERE)
async def test_answers_as_the_real_one_on_what_is_there(
    http: aiohttp.ClientSession, store: Store, name: str
) -> None:
    for there in ("02-create-again-409", "03-job-create"):
        put(store, recording(there)["request_body"])
    for there in ("02-create-yaml", "02-delete-with-finalizer", "07-job-delete-foreground"):
        put(store, recording(there)["body"])
    store.delete("Experiment", "kaniko", "exp-apply")
    store.delete("Job", "kaniko", "build-fg", propagation="Foreground")
    await compare(http, name)


def put(store: Store, obj: dict[str, Any]) -> None:
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    spec = {key: value for key, value in obj["spec"].items() if key != "selector"}
    store.create({**obj, "metadata": {**meta, "namespace": "kaniko"}, "spec": spec})
