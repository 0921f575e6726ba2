"""Recorded requests to a real kube-apiserver 1.36, sent again, and the answer beside the recorded one."""

import json
import re
from typing import Any

from tests.conformance.namespace import HOLD, Answer, Place
from tests.recordings.__init__ import FOLDER

NOT_SENT = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp")


def recording(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return read


async def replay(place: Place, name: str) -> Answer:
    """The answer, with the namespace called as it was then."""
    real = recording(name)
    method, path = real["request"].split(" ", 1)
    path = path.replace("/namespaces/kaniko/", f"/namespaces/{place.namespace}/").replace("?dryRun=All", "?")
    headers = {k: v for k, v in real["request_headers"].items() if k in ("Content-Type", "Authorization")}
    answer = await place.http.send(method, path, here(place, real["request_body"]), **headers)
    return Answer(answer.status, renamed(answer.body, place.namespace), answer.warning)


def here(place: Place, body: Any) -> Any:
    """The same object, of this place's namespace if it was of the recorded one."""
    if isinstance(body, dict) and body.get("metadata", {}).get("namespace") == "kaniko":
        return {**body, "metadata": {**body["metadata"], "namespace": place.namespace}}
    return body


def renamed(body: Any, namespace: str) -> Any:
    return json.loads(json.dumps(body).replace(namespace, "kaniko"))


async def compare(place: Place, name: str) -> None:
    answer, real = await replay(place, name), recording(name)
    assert answer.status == real["status"]
    assert alike(answer.body) == alike(real["body"])
    if answer.status != 400:  # wrong-version has a warning about an unknown field
        assert answer.warning == real["response_headers"].get("Warning")


def alike(body: Any) -> Any:
    """An answer without what differs from one run to the next."""
    text = json.dumps(_without(body, "managedFields", "resourceVersion"), sort_keys=True)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r'"generation": \d+', '"generation": 1', text)
    text = re.sub(r"-[a-z0-9]{5}\b", "-xxxxx", text)
    return json.loads(re.sub(r"current: \d+", "current: N", text))


def _without(body: Any, *keys: str) -> Any:
    if isinstance(body, dict):
        return {key: _without(body[key], *keys) for key in body if key not in keys}
    return body


async def put(place: Place, obj: dict[str, Any], *, deleted: bool = False) -> None:
    """Have a recorded object there; `deleted`: marked, and held by a finalizer."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in NOT_SENT}
    held = {"finalizers": [HOLD]} if deleted else {}
    made = await place.cluster.create(
        {**obj, "metadata": {**meta, **held, "namespace": place.namespace}, "spec": obj["spec"]}
    )
    if deleted:
        assert await place.cluster.delete(place.ref(made["kind"], made["metadata"]["name"]))
