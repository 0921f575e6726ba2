"""Plain Kubernetes objects, as the API returns them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

Manifest = dict[str, Any]

MANAGED_BY = "app.kubernetes.io/managed-by"  # "sweepbot" on every object it creates; watches select it
SWEEP_LABEL = "sweepbot/sweep"  # on every object of a sweep
OWNER_LABEL = "sweepbot/owner"  # a Slack user id
TEAM_LABEL = "sweepbot/team"
BUILD_LABEL = "sweepbot/build"  # on build Jobs, which several sweeps can share
ENVIRONMENT_LABEL = "sweepbot/env"  # on the objects and pods of a research environment
SERVICE_LABEL = "sweepbot/service"  # as well, on those of a service
HOME_LABEL = "sweepbot/home"  # on the claims of homes, which survive their environments
GPU = "nvidia.com/gpu"  # the resource that trials request
OURS = f"{MANAGED_BY}=sweepbot"


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


def true_conditions(obj: Manifest) -> dict[str, Manifest]:
    """Return the conditions with status True, by type; their order and history differ by kind."""
    conditions = obj.get("status", {}).get("conditions") or []
    return {c["type"]: c for c in conditions if c.get("status") == "True"}


def parse_time(text: str | None) -> datetime | None:
    """Parse a Kubernetes time (RFC 3339)."""
    return datetime.fromisoformat(text) if text else None


def timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


FINAL = {"Complete", "Failed", "Succeeded", "Killed", "EarlyStopped", "MetricsUnavailable"}


def still_live(obj: Manifest) -> bool:
    """Return whether a pod, Job, trial, or experiment hasn't ended."""
    return obj.get("status", {}).get("phase") not in FINAL and not FINAL & true_conditions(obj).keys()
