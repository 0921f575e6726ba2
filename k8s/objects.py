"""Plain Kubernetes objects, as the API sends them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Manifest = dict[str, Any]

MANAGED_BY = "app.kubernetes.io/managed-by"  # "sweepbot" on everything made here: what the watches select
SWEEP_LABEL = "sweepbot/sweep"  # on everything made for one sweep
OWNER_LABEL = "sweepbot/owner"  # a Slack user id
TEAM_LABEL = "sweepbot/team"
BUILD_LABEL = "sweepbot/build"  # on build Jobs, which several sweeps may share
GPU = "nvidia.com/gpu"  # the resource that trials ask for
OURS = f"{MANAGED_BY}=sweepbot"


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


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time (RFC 3339, seconds, Z) as a datetime."""
    return datetime.fromisoformat(text) if text else None


def timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


ENDS = {"Complete", "Failed", "Succeeded", "Killed", "EarlyStopped", "MetricsUnavailable"}


def still_live(obj: Manifest) -> bool:
    """Whether a pod, Job, trial or experiment has not come to its end."""
    return obj.get("status", {}).get("phase") not in ENDS and not ENDS & true_conditions(obj).keys()
