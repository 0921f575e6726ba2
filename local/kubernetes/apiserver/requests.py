"""Parse requests: path, body, and options, with the API server's errors for invalid ones."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from aiohttp import web

from local.kubernetes.apiserver.kinds import Cause, Kind, Object, Refused, bad_request, invalid, refusal
from local.kubernetes.apiserver.schema import Decoding

MERGE_PATCH = "application/merge-patch+json"
POLICIES = ("Foreground", "Background", "Orphan")
ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
    "them or set propagationPolicy=Orphan to suppress this warning"
)
WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


@dataclass(frozen=True)
class Target:
    """The target of a path. No namespace: all of them; no name: the collection."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str

    @property
    def place(self) -> tuple[str, str, str]:
        return self.kind.name, self.namespace or "", self.name


class Address(NamedTuple):
    """A path to objects, of known or unknown kind."""

    group: str
    version: str
    namespace: str | None
    plural: str
    name: str
    subresource: str


def address(path: str) -> Address | None:
    """Parse a path; None if it isn't one to objects, such as /version."""
    parts = path.strip("/").split("/")
    head, rest = (["", *parts[1:2]], parts[2:]) if parts[0] == "api" else (parts[1:3], parts[3:])
    if parts[0] not in ("api", "apis") or not rest:
        return None
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else None
    plural, name, subresource = [*(rest[2:] if namespace else rest), "", ""][:3]
    return Address(head[0], head[1], namespace, plural, name, subresource)


def visibility(path: str) -> tuple[str, str] | None:
    """Return namespace and LocalQueue of a path of Kueue's visibility API, as 0.14.8 serves it; else None."""
    at, served = address(path), ("visibility.kueue.x-k8s.io", "v1beta1", "localqueues", "pendingworkloads")
    if at is None or (at.group, at.version, at.plural, at.subresource) != served:
        return None
    return at.namespace or "", at.name


def target(path: str, kinds: Iterable[Kind]) -> Target:
    """Return the target. Raises Refused 404, in plain text, if it is unknown [01-list-cr-absent]."""
    at = address(path)
    for kind in kinds:
        if at and (kind.group, kind.version, kind.plural) == (at.group, at.version, at.plural):
            return Target(kind, at.namespace, at.name, at.subresource)
    raise Refused(404, "404 page not found\n")


async def new_object(target: Target, request: web.Request) -> tuple[Object, list[str]]:
    """Return the object to create, and warnings. Raises Refused 400, 415, or 422."""
    decoding = Decoding(target.kind)
    obj = decoding.read(await _body(target.kind, request))
    unknown = [f'unknown field "{path}"' for path in decoding.unknown]
    mode = request.query.get("fieldValidation", "Warn")
    if unknown and mode == "Strict":
        raise decoding.refused(f"strict decoding error: {', '.join(unknown)}")
    meta = obj.setdefault("metadata", {})
    if meta.get("namespace", target.namespace) != target.namespace:
        text = "the namespace of the provided object does not match the namespace sent on the request"
        raise bad_request(text)
    if target.namespace:
        meta["namespace"] = target.namespace
    return {**obj, "kind": target.kind.name}, [] if mode == "Ignore" else unknown


async def _body(kind: Kind, request: web.Request) -> Object:
    if request.content_type != "application/json":
        raise _unknown_format("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
    text = await request.text()
    try:
        obj: Object = json.loads(text)
    except ValueError as error:
        why = "couldn't get version/kind; json parse error: unexpected end of JSON input"
        raise _unrecognized(kind, text, why) from error
    if "kind" not in obj and kind.is_custom:
        raise _unrecognized(kind, text, f"Object 'Kind' is missing in '{text}'")
    given, version = obj.get("kind", kind.name), obj.get("apiVersion", kind.api_version)
    if version != kind.api_version:
        why = f"does not match the expected API version ({kind.api_version})"
        raise bad_request(f"the API version in the data ({version}) {why}")
    if given != kind.name:
        raise _other_kind(kind, given, obj)
    return obj


def _unknown_format(*accepted: str) -> Refused:
    why = f"accepted media types include: {', '.join(accepted)}"
    return refusal(415, f"the body of the request was in an unknown format - {why}", "UnsupportedMediaType")


def _unrecognized(kind: Kind, text: str, why: str) -> Refused:
    shown = f"{text[:30]} ..." if len(text) > 30 else text or "<empty>"
    return bad_request(f"the object provided is unrecognized (must be of type {kind.name}): {why} ({shown})")


def _other_kind(kind: Kind, given: str, obj: Object) -> Refused:
    if not kind.is_custom:
        to = f"{kind.group or 'core'}.{kind.name}"
        return Decoding(kind).refused(f"converting (v1.{given}) to ({to}): unknown conversion")
    details = kind.details(obj.get("metadata", {}).get("name", ""), given)
    return invalid(f"{given}.{kind.group}", details, [Cause.value("kind", given, f"must be {kind.name}")])


async def patch(request: web.Request) -> Object:
    """Return a JSON merge patch (RFC 7386), the only supported type. Raises Refused 400 or 415."""
    if request.content_type != MERGE_PATCH:
        raise _unknown_format("application/json-patch+json", MERGE_PATCH, "application/apply-patch+yaml")
    return _parsed(await request.text())


async def deletion(kind: Kind, request: web.Request) -> tuple[Object, list[str]]:
    """Return arguments for `Store.delete`, and warnings. Raises Refused 400 or 422."""
    options = {**_parsed(await request.text() or "{}"), **request.query}
    policy, grace = options.get("propagationPolicy"), options.get("gracePeriodSeconds")
    if policy not in (None, *POLICIES):
        raise _bad_policy(policy)
    keeps_pods = policy is None and kind.name == "Job"
    options = {
        "propagation": policy or ("Orphan" if keeps_pods else "Background"),
        "grace": None if grace is None else int(grace),
        "uid": options.get("preconditions", {}).get("uid"),
    }
    return options, [ORPHANS] if keeps_pods else []


def _parsed(text: str) -> Object:
    try:
        parsed: Object = json.loads(text)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return parsed


def _bad_policy(policy: str) -> Refused:
    known = ", ".join(f'"{name}"' for name in (*POLICIES, "nil"))
    text = f'Unsupported value: "{policy}": supported values: {known}'
    details = {"group": "meta.k8s.io", "kind": "DeleteOptions"}
    cause = Cause("propagationPolicy", text, "FieldValueNotSupported")
    return invalid("DeleteOptions.meta.k8s.io", details, [cause])


def container_of(pod: Object, query: Mapping[str, str]) -> str:
    """Return the container whose log is requested. Raises Refused 400 if it is ambiguous."""
    name, names = pod["metadata"]["name"], [container["name"] for container in pod["spec"]["containers"]]
    inits = [container["name"] for container in pod["spec"].get("initContainers", [])]
    requested: str = query.get("container") or (names[0] if len(names) == 1 else "")
    if not requested:
        choice = f"choose one of: [{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {name}, {choice}")
    if requested not in (*names, *inits):
        raise bad_request(f"container {requested} is not valid for pod {name}")
    return requested


def since(query: Mapping[str, str]) -> datetime | None:
    """Return the query's sinceTime. Raises Refused 400 unless it is an RFC 3339 time with a zone."""
    if not (text := query.get("sinceTime")):
        return None
    try:
        if (at := datetime.fromisoformat(text)).tzinfo:
            return at
    except ValueError:
        pass
    raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}"')


def with_times(pod: Object, container: str, text: str) -> str:
    """Return a log with a time before each line. Files here have none: lines follow each other by 1 µs."""
    every = pod.get("status", {})
    states = {
        status["name"]: status["state"]
        for group in ("initContainerStatuses", "containerStatuses")
        for status in every.get(group, [])
    }
    state = states.get(container, {})
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    first = datetime.fromisoformat(started) if started else datetime.now(UTC)
    lines = text.splitlines(keepends=True)
    return "".join(
        f"{first + timedelta(microseconds=number):%Y-%m-%dT%H:%M:%S.%fZ} {line}"
        for number, line in enumerate(lines)
    )


def check_has_log(pod: Object, container: str, query: Mapping[str, str]) -> None:
    """Raise Refused 400 for a previous log: containers never restart here."""
    named = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    if query.get("previous") == "true":
        raise bad_request(f"previous terminated {named} not found")
    every = pod.get("status", {})
    for status in (*every.get("initContainerStatuses", []), *every.get("containerStatuses", [])):
        if status["name"] == container and "waiting" in status["state"]:
            reason = status["state"]["waiting"].get("reason", "")
            raise bad_request(f"{named} is waiting to start: {WAITING.get(reason, reason)}")
