"""The words of this bot: what a sweep is, from request to record.

Everything is frozen; a change makes the next value (`record.to(...)`). `dump` and `load` are the one way into
Redis and into the durable ConfigMap.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import TypeAdapter

from bot.core.commands import AuditEntry
from bot.core.events import Event, Health, Progress
from bot.core.plan import SweepPlan
from bot.core.request import Requester, SweepRequest

SCHEMA = 1  # of a stored SweepRecord; a reader refuses what is newer than itself


class Phase(StrEnum):
    RECEIVED = "received"  # acknowledged; the repository is not yet looked at
    OPENING = "opening"  # planned; the thread is being opened, nothing else exists
    BUILDING = "building"
    PENDING = "proving"  # the experiment is submitted; no trial has been seen running yet
    RUNNING = "running"
    STOPPING = "stopping"  # what still holds GPUs is being ended; `ending` says which end it is
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # could not start; the person was told privately

    @property
    def final(self) -> bool:
        return self in {Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.REFUSED}


@dataclass(frozen=True)
class Quarantine:
    """What the queue gives no more turns."""

    since: datetime
    why: str


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """What we remember about one sweep."""

    id: str
    cluster: str = "main"
    namespace: str  # of this record; builds have that of their Jobs, trials that of their experiment
    request: SweepRequest
    requester: Requester
    request_id: str  # Slack's id of the command: a repeated delivery is the same sweep
    phase: Phase = Phase.RECEIVED
    created: datetime
    since: datetime  # when the present phase began
    plan: SweepPlan | None = None
    thread: str | None = None  # ts of the parent message
    image: str | None = None  # as nodes pull it, by digest
    build_began: datetime | None = None  # None: nothing had to be built so far
    build_uids: dict[str, str] = field(default_factory=dict)  # by Job; an older one's failure is not its own
    build_trouble: str = ""  # why a build has not started
    digests: dict[str, str] = field(default_factory=dict)  # by tag: parts that are done; "" where not needed
    submitted: bool = False  # the experiment has been seen in the cluster
    results_url: str | None = None  # MLflow
    progress: Progress = field(default_factory=Progress)
    sent_keys: tuple[str, ...] = ()  # keys of things said once: waiting reasons, failures of trials
    health: Health | None = None  # of the first trials; None: nothing was ever wrong
    health_ts: str | None = None  # of the one message about it
    health_shown: str = ""  # fingerprint of that message as Slack has it
    examined: tuple[str, ...] = ()  # trials whose failure was looked into
    ending: Phase | None = None
    reason: str = ""  # why it ended, for the parent
    quarantined: bool = False  # by the queue, which gives it no more turns
    cancelled_by: str | None = None  # Slack user id
    drained_by: str | None = None
    extending: bool = False  # until Katib has opened the experiment again
    to_kill: dict[str, str] = field(default_factory=dict)  # names of trials, and the users who want their end
    restarted: dict[str, str] = field(default_factory=dict)  # by uid of a deleted Job: its trial
    audit_log: tuple[AuditEntry, ...] = ()  # the newest
    # By cause: the first trial that failed of it, and how many more did.
    alike: dict[str, tuple[str, int]] = field(default_factory=dict)
    outbox: tuple[Event, ...] = ()
    shown: str = ""  # fingerprint of the parent message as Slack has it
    shown_at: datetime | None = None
    shown_phase: Phase | None = None
    kept: Phase | None = None  # the phase that the durable ConfigMap holds; None: it is not ours yet
    version: int = 0
    schema: int = SCHEMA

    def to(self, phase: Phase, now: datetime, *events: Event, **changes: Any) -> Self:
        return replace(self, phase=phase, since=now, outbox=self.outbox + events, **changes)

    def enqueue(self, *events: Event, **changes: Any) -> Self:
        return replace(self, outbox=self.outbox + events, **changes)


class Newer(ValueError):  # noqa: N818 - reads as a sentence where it is caught
    """A record of a newer Sweepbot, as an older one meets it beside it during an update."""


_RECORD: TypeAdapter[SweepRecord] = TypeAdapter(SweepRecord)


def dump(record: SweepRecord) -> str:
    return _RECORD.dump_json(record).decode()


def load(text: str | bytes) -> SweepRecord:
    """Raises ValueError for what is not a record, and Newer for a newer one."""
    record = _RECORD.validate_json(text)
    if record.schema > SCHEMA:
        raise Newer(f"sweep {record.id} was stored by a newer Sweepbot (schema {record.schema})")
    return record
