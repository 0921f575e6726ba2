"""What is known about one sweep: its record, its queue item, its objects, and the last errors. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.record import Phase, SweepRecord
from bot.health.diagnosis import Diagnosis
from bot.storage.last_errors import LastError
from bot.storage.queue_state import ItemState
from k8s.objects import Manifest, parse_time, true_conditions
from k8s.trial_kinds import is_suspended

PODS = {"Pod", "Suggestion pod"}
CURRENT = timedelta(minutes=15)  # a failed retry is repeated every 5 minutes at most


@dataclass(frozen=True, kw_only=True)
class ObjectFacts:
    """One object of the sweep in the cluster."""

    kind: str  # in Kubernetes, or "Suggestion pod"
    namespace: str
    name: str
    state: str
    created: datetime | None = None
    deleted: datetime | None = None  # when its deletion began
    finalizers: tuple[str, ...] = ()
    waiting: str = ""  # of a suggestion service: why its container doesn't run


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A service that doesn't work now."""

    service: str
    text: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class SweepFacts:
    sweep: str
    now: datetime
    record: SweepRecord | None = None  # in Redis
    unreadable: str = ""  # why the record in Redis can't be read
    stored: SweepRecord | None = None  # in the ConfigMap
    item: ItemState
    has_worker: bool
    errors: tuple[LastError, ...] = ()  # the latest first
    cluster_error: str = ""  # why the cluster can't be read
    cluster_refuses: bool = False  # it answered with an error
    objects: tuple[ObjectFacts, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def known(self) -> SweepRecord | None:
        """The record, or else its copy in the cluster."""
        return self.record or self.stored

    @property
    def missing(self) -> bool:
        """Whether nothing has this name: no record in Redis or the cluster, and no item of the queue."""
        unread = self.unreadable or self.cluster_error
        return not (self.known or unread) and self.item.state == "absent"

    @property
    def phase(self) -> Phase | None:
        return self.known.phase if self.known else None

    @property
    def overdue(self) -> timedelta:
        """How long the item has been due without a worker that took it."""
        late = self.item.state in {"ready", "delayed"} and self.item.due
        return max(self.now - late, timedelta(0)) if late else timedelta(0)

    def error(self, *services: str) -> LastError | None:
        """Return the latest error of these services, if it is recent."""
        found = (each for each in self.errors if each.service in services)
        return next((each for each in found if self.now - each.at <= CURRENT), None)

    def fault(self, service: str) -> Fault | None:
        return next((each for each in self.faults if each.service == service), None)


def object_facts(obj: Manifest, kind: str) -> ObjectFacts:
    meta = obj["metadata"]
    return ObjectFacts(
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        state=_state(obj, kind),
        created=parse_time(meta.get("creationTimestamp")),
        deleted=parse_time(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        waiting=_not_running(obj) if kind in PODS else "",
    )


def _state(obj: Manifest, kind: str) -> str:
    status = obj.get("status") or {}
    if kind in PODS:
        return ": ".join(filter(None, (status.get("phase", "unknown"), _not_running(obj))))
    if is_suspended(obj):
        return "suspended"
    if kind == "Job":
        counts = (f"{status[key]} {key}" for key in ("active", "succeeded", "failed") if status.get(key))
        return ", ".join(counts) or "no pod"
    conditions = true_conditions(obj)
    latest = max(conditions.values(), key=lambda c: c.get("lastTransitionTime") or "", default=None)
    return str(latest["type"]) if latest else "new"


def _not_running(pod: Manifest) -> str:
    """Return the reason and message of the first container that waits, or was killed."""
    status = pod.get("status") or {}
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(group) or ():
            state, last = each.get("state") or {}, each.get("lastState") or {}
            if waits := state.get("waiting"):
                killed = (last.get("terminated") or {}).get("reason", "")
                parts = (waits.get("reason", ""), killed, waits.get("message", ""))
                return ": ".join(filter(None, parts))
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message", ""))
    return ""
