"""An environment's record, an annotation of its StatefulSet. Frozen: a change returns the next record.

A service is an environment without a home and a login. Its record is an annotation of its Deployment.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from bot.core.stored_format import NewerFormatError, parse, strict_adapter
from bot.workspaces.services.snippet import Service
from k8s.environments import RECORD
from k8s.objects import OWNER_LABEL, TEAM_LABEL, Manifest, parse_time


class Wanted(StrEnum):
    """What was last requested; the reconciler makes it so."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class EnvironmentRecord:
    name: str
    owner: str  # Slack user id
    owner_name: str = ""
    team: str = ""
    channel: str  # of its message
    request_id: str  # Slack's id of the command that created it
    image: str  # a name in the configuration, like `size`; of a service, its image
    size: str = ""
    gpus: int  # of all replicas
    profile: str = ""  # of the configuration, for its machines; "": any
    home: str = ""
    home_size: str = ""  # of a new home
    service: Service | None = None  # None: it is a research environment
    wanted: Wanted = Wanted.RUNNING
    since: datetime  # of `wanted`
    by: str = ""  # who stopped or deleted it; "" is Sweepbot
    reason: str = ""  # why Sweepbot stopped it
    starts: int = 1  # each has its own login
    ready_at: datetime | None = None  # of this start
    node: str = ""
    took: dict[str, float] = field(default_factory=dict)  # seconds of this start, by stage
    keep_until: datetime | None = None  # no idle warning before
    warned_at: datetime | None = None  # Slack accepted the idle warning; None: it isn't idle
    idle_since: datetime | None = None
    measured: str = ""  # what the warning was about
    stop_at: datetime | None = None  # when it stops unless it is used or kept; None: never
    ts: str = ""  # of its message
    shown: str = ""  # fingerprint of its message

    @property
    def replicas(self) -> int:
        return self.service.replicas if self.service else 1

    @property
    def noun(self) -> str:
        """What it is called in texts."""
        return "service" if self.service else "environment"

    def start(self, now: datetime, **changes: Any) -> Self:
        fresh: dict[str, Any] = {"ready_at": None, "took": {}, "node": ""}
        fresh |= {"wanted": Wanted.RUNNING, "since": now, "by": "", "reason": "", "keep_until": None}
        fresh |= {"warned_at": None, "idle_since": None, "measured": "", "stop_at": None}
        return replace(self, starts=self.starts + 1, **fresh | changes)

    def stop(self, now: datetime, *, by: str = "", reason: str = "") -> Self:
        return replace(self, wanted=Wanted.STOPPED, since=now, by=by, reason=reason)

    def delete(self, now: datetime, *, by: str = "", reason: str = "") -> Self:
        return replace(self, wanted=Wanted.DELETED, since=now, by=by, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A record with the state of its StatefulSet, or of a service's Deployment."""

    record: EnvironmentRecord
    uid: str
    version: str  # resourceVersion
    replicas: int
    manifest: Manifest
    newer: bool = False  # its record is of a newer version, and `record` an outline: don't save it

    @property
    def is_ready(self) -> bool:
        """Whether all its pods are."""
        return bool(self.manifest.get("status", {}).get("readyReplicas", 0) >= self.record.replicas)

    def is_like(self, other: Self) -> bool:
        """Return whether both differ in nothing that Sweepbot writes."""
        mine, theirs = ((each.uid, each.record, each.manifest["spec"]) for each in (self, other))
        return mine == theirs


_RECORD = strict_adapter(EnvironmentRecord)


def dump(record: EnvironmentRecord) -> str:
    return _RECORD.dump_json(record, exclude_defaults=True).decode()


def read(found: Manifest) -> Environment | None:
    """Return the environment; None if it is being deleted, or has no valid record.

    Raises NewerFormatError for the record of a newer version: a save would drop what only that one knows.
    """
    meta = found["metadata"]
    if "deletionTimestamp" in meta:
        return None
    try:
        record = parse(_RECORD, (meta.get("annotations") or {}).get(RECORD, ""), meta["name"])
    except NewerFormatError:
        raise
    except ValueError:
        return None
    return _environment(found, record)


def read_or_outline(found: Manifest) -> Environment | None:
    """Return the environment as `read` does; of a newer version's, what its StatefulSet shows."""
    try:
        return read(found)
    except NewerFormatError:
        return replace(_environment(found, _outline(found)), newer=True)


def _environment(found: Manifest, record: EnvironmentRecord) -> Environment:
    return Environment(
        record=record,
        uid=found["metadata"]["uid"],
        version=found["metadata"]["resourceVersion"],
        replicas=found["spec"].get("replicas", 0),
        manifest=found,
    )


def _outline(found: Manifest) -> EnvironmentRecord:
    """Return what limits, lists, and checks of homes need."""
    meta, spec = found["metadata"], found["spec"]
    pod, labels = spec["template"]["spec"], meta.get("labels") or {}
    container = pod["containers"][0]
    limits = container["resources"].get("limits") or {}
    gpus = sum(int(number) for name, number in limits.items() if name != "memory")
    claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    service = None
    if found["kind"] == "Deployment":
        port, replicas = container["ports"][0]["containerPort"], spec.get("replicas", 0)
        service = Service(image=container["image"], port=port, replicas=replicas, gpus=gpus)
    return EnvironmentRecord(
        name=meta["name"].removeprefix("env-"),
        owner=labels.get(OWNER_LABEL, ""),
        team=labels.get(TEAM_LABEL, ""),
        channel="",
        request_id="",
        image=container["image"],
        gpus=gpus * service.replicas if service else gpus,
        home=claims[0]["claimName"].removeprefix("home-") if claims and not service else "",
        service=service,
        wanted=Wanted.RUNNING if spec.get("replicas") else Wanted.STOPPED,
        since=parse_time(meta["creationTimestamp"]) or datetime.now(UTC),
    )
