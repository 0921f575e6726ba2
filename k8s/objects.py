"""Plain Kubernetes objects, as the API sends them."""

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

SWEEP_LABEL = "sweepbot/sweep"  # on everything made for one sweep
BUILD_LABEL = "sweepbot/build"  # on build Jobs, which several sweeps may share


@dataclass(frozen=True)
class Ref:
    """The address of one object."""

    kind: str
    namespace: str
    name: str


def ref_of(manifest: Manifest) -> Ref:
    return Ref(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def true_conditions(obj: Manifest) -> dict[str, Manifest]:
    """The conditions that hold, by type. Order and history differ by kind; what is True does not lie."""
    conditions = obj.get("status", {}).get("conditions") or []
    return {c["type"]: c for c in conditions if c.get("status") == "True"}
