"""Plain Kubernetes objects, as the API returns them: Sweepbot's labels, valid names, merge patches,
conditions, and times; what was read from a cached one is kept.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar, cast

Manifest = dict[str, Any]
Read = TypeVar("Read")

MANAGED_BY = "app.kubernetes.io/managed-by"  # "sweepbot" on every object it creates; watches select it
SWEEP_LABEL = "sweepbot/sweep"  # on every object of a sweep
OWNER_LABEL = "sweepbot/owner"  # a Slack user id
TEAM_LABEL = "sweepbot/team"
BUILD_LABEL = "sweepbot/build"  # on build Jobs, which several sweeps can share
ENVIRONMENT_LABEL = "sweepbot/env"  # on the objects and pods of a research environment
SERVICE_LABEL = "sweepbot/service"  # as well, on those of a service
HOME_LABEL = "sweepbot/home"  # on the claims of homes, which survive their environments
# Of pods that end: Istio's proxy, as in namespaces of Kubeflow profiles, would outlive the rest (katib#1042).
WITHOUT_PROXY = {"sidecar.istio.io/inject": "false"}
# What Pod Security "restricted" requires of a container, whatever its user is.
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
GPU = "nvidia.com/gpu"  # the resource that trials request
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"  # and a DeviceClass: its name as a resource (KEP-5004)
OURS = f"{MANAGED_BY}=sweepbot"
CONDITION_FIELDS = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), True)  # read
MAX_FIELD_SIZE = 4096  # characters of one text, which is also the kubelet's limit of a termination message


class Cached:
    """Of a cache and shared by all readers: don't modify it.

    `readings`: what was read from it, by the function that read it, with its arguments.
    """

    @cached_property
    def readings(self) -> dict[Callable[..., Any], tuple[tuple[Any, ...], Any]]:
        return {}


class CachedObject(Cached, Manifest):
    pass


class CachedList(Cached, list[Manifest]):
    """When one of its objects changes, the cache's next list is another one."""


class ReadOnce(Cached, tuple[Read, ...]):
    """What was read from a list; `read_once` keeps what is computed from it as long as that is unchanged."""


def read_once(read: Callable[..., Read], obj: Manifest | Sequence[Any], *arguments: Any) -> Read:
    """Return `read(obj, *arguments)`; if it is of a cache and unchanged, what that returned the last time."""
    if not isinstance(obj, Cached):
        return read(obj, *arguments)
    known = obj.readings.get(read)
    if known is None or known[0] != arguments:
        known = obj.readings[read] = arguments, read(obj, *arguments)
    found: Read = known[1]
    return found


def read_each(read: Callable[..., Read], objs: Sequence[Manifest], *arguments: Any) -> tuple[Read, ...]:
    """Return `read_once` of each; of an unchanged list of a cache, all that this returned the last time."""
    return read_once(_read_each, objs, read, *arguments)


def _read_each(objs: Sequence[Manifest], read: Callable[..., Read], *arguments: Any) -> tuple[Read, ...]:
    if not isinstance(objs, CachedList):
        return ReadOnce([read_once(read, obj, *arguments) for obj in objs])
    # Of hundreds, all but one are mostly known: a call for each would take longer than the rest.
    return ReadOnce(
        [
            each[1]
            if (each := obj.readings.get(read)) and each[0] == arguments
            else read_once(read, obj, *arguments)
            for obj in cast("list[CachedObject]", objs)
        ]
    )


def picked(value: Any, shape: Any) -> Any:
    """Return a copy with the keys of `shape`; True is all below. Texts are cut at 4,096 characters."""
    if isinstance(value, list):
        return [picked(each, shape) for each in value]
    if isinstance(value, str):
        return value[:MAX_FIELD_SIZE]
    if not isinstance(value, dict):
        return value
    if shape is True:
        return {key: picked(each, True) for key, each in value.items()}
    return {key: picked(value[key], inner) for key, inner in shape.items() if key in value}


def name(*words: str, limit: int = 63) -> str:
    """Join words into a DNS label; a changed or truncated name ends with a short hash."""
    raw = "-".join(words)
    clean = re.sub(r"[^a-z0-9]+", "-", raw.lower()).strip("-")
    if clean == raw and len(clean) <= limit:
        return clean
    mark = hashlib.sha256(raw.encode()).hexdigest()[:8]
    return f"{clean[: limit - 9].rstrip('-')}-{mark}".lstrip("-")


def label_value(text: str) -> str:
    """Return a valid label value: up to 63 of [A-Za-z0-9._-], alphanumeric at both ends."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("._-")


@dataclass(frozen=True)
class Ref:
    """The address of one object."""

    kind: str
    namespace: str
    name: str


def ref_of(manifest: Manifest) -> Ref:
    return Ref(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def config_map(
    address: Ref, data: Mapping[str, str | None], labels: Mapping[str, str] = MappingProxyType({})
) -> Manifest:
    """Return a ConfigMap with Sweepbot's own data; as a patch, it removes the keys that are None."""
    meta: Manifest = {"name": address.name, "namespace": address.namespace}
    meta["labels"] = {MANAGED_BY: "sweepbot", **labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


def replacing(old: Manifest, new: Manifest) -> Manifest:
    """Return the JSON merge patch (RFC 7386) that makes `old` equal to `new`: what `new` lacks is null."""
    changed = {
        key: replacing(old[key], value)
        if isinstance(value, dict) and isinstance(old.get(key), dict)
        else value
        for key, value in new.items()
    }
    return changed | dict.fromkeys(old.keys() - new.keys())


def conditions(obj: Manifest | None) -> dict[str, Manifest]:
    """Return the conditions by type; their order and history differ by kind."""
    return {each["type"]: each for each in ((obj or {}).get("status") or {}).get("conditions") or ()}


def condition(obj: Manifest | None, kind: str, status: str = "True") -> Manifest:
    """Return the condition of this type if it has this status, else {}."""
    found = conditions(obj).get(kind, {})
    return found if found.get("status") == status else {}


def true_conditions(obj: Manifest) -> dict[str, Manifest]:
    return {kind: each for kind, each in conditions(obj).items() if each.get("status") == "True"}


def parse_time(text: str | None) -> datetime | None:
    """Parse a Kubernetes time (RFC 3339)."""
    return datetime.fromisoformat(text) if text else None


def timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


FINAL = {"Complete", "Failed", "Succeeded"}


def still_live(obj: Manifest) -> bool:
    """Return whether a pod or a Job hasn't ended."""
    return obj.get("status", {}).get("phase") not in FINAL and not FINAL & true_conditions(obj).keys()
