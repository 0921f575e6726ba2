"""A sweep's record, as stored in Redis and in its ConfigMap: its phases, steps, holds, events to post, and
audit entries.

Frozen: a change returns the next record (`record.to(...)`). `dump` and `load` are the only ways to storage.
The fields are those of a plain sweep. What a feature such as pausing remembers is a value of its own, which
the record stores without knowing it (`record.of(PauseState)`): a feature can be deleted with its folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, PlainSerializer
from pydantic_core import from_json, to_json

from bot.core.commands import AuditEntry
from bot.core.events import Event, Progress
from bot.core.feature_state import FeatureState, decoded, encoded
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.core.record_migrations import MIGRATIONS
from bot.core.request import Requester, SweepRequest
from bot.core.seeds import EarlierSeeds
from bot.core.stored_format import StoredFormat


@dataclass(frozen=True)
class LimitCheck:
    """Holds until another sweep of the group has been checked and saved (bot.platform.storage.sweeps)."""

    group: str  # the team or person whose sweeps count together
    last: str  # the sweep that was checked last, with its version; "": none for a day


State = TypeVar("State", bound=FeatureState)


def _text(value: Any) -> Any:
    return to_json(value).decode() if isinstance(value, Mapping) else value


# In memory a text, so that records can be compared; in storage the object.
_Json = Annotated[str, BeforeValidator(_text), PlainSerializer(from_json, return_type=dict[str, Any])]

APPROVAL = "approval"  # in `holds`: until it is known that the sweep fits its budgets, or someone approves it
RENAMED = "renamed to "  # and an ID: the reason of a refused sweep that continues under that one


class Phase(StrEnum):
    RECEIVED = "received"  # acknowledged; the repository isn't checked yet
    OPENING = "opening"  # planned; the thread is being opened
    BUILDING = "building"
    PENDING = "proving"  # the experiment is submitted; no trial has run yet
    RUNNING = "running"
    HELD = "held"  # the gated first trial failed; no GPUs are allocated
    PAUSED = "paused"  # no GPUs are allocated; Katib's experiment continues once a user resumes it
    STOPPING = "stopping"  # GPUs are being released; `ending` is the phase that follows
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # couldn't start

    @property
    def final(self) -> bool:
        return self in {Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.REFUSED}


ACTIVE = {Phase.PENDING, Phase.RUNNING}  # phases in which trials can start
MAX_AUDIT_ENTRIES = 50  # entries in a record; the log has all
TROUBLE = "trouble/"  # prefix of the keys of errors that prevent a sweep from being processed


@dataclass(frozen=True)
class Quarantine:
    """An item that the queue no longer runs."""

    since: datetime
    why: str


@dataclass(frozen=True, kw_only=True)
class Building:
    """The build of the sweep's image."""

    started: datetime | None = None  # None: no build so far
    uids: dict[str, str] = field(default_factory=dict)  # by Job; ignores failures of older Jobs
    trouble: str = ""  # why a build hasn't started
    digests: dict[str, str] = field(default_factory=dict)  # of finished parts by tag; "" where not needed


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The parent message as Slack has it."""

    fingerprint: str = ""
    at: datetime | None = None  # of the edit; earlier if the next one needn't wait
    phase: Phase | None = None


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A service that the sweep needs, and that can't be reached."""

    what: str = ""  # the registry or git server, and why
    since: datetime | None = None  # when a git host, registry, or right first lacked; None: none


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """The cluster of the trials doesn't answer."""

    since: datetime
    reason: str = ""  # what an admin must fix for it to answer


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """The state of one sweep."""

    id: str
    cluster: str = HOME_CLUSTER  # of its trials
    unreachable: Unreachable | None = None  # None: that cluster answers
    namespace: str  # of the ConfigMap; builds and trials can run in other namespaces
    request: SweepRequest
    requester: Requester
    request_id: str  # Slack's id of the command: a repeated delivery is the same sweep
    earlier_seeds: EarlierSeeds | None = None  # of the sweep whose failed seeds this one reruns
    phase: Phase = Phase.RECEIVED
    created: datetime
    since: datetime  # start of the phase
    plan: SweepPlan | None = None
    thread: str | None = None  # ts of the parent message
    permalink: str = ""  # URL of the parent message; "" if Slack gave none
    image: str | None = None  # as nodes pull it, by digest
    building: Building = field(default_factory=Building)
    outage: Outage = field(default_factory=Outage)
    submitted: bool = False  # whether the experiment was created
    attempt: int = 1  # number of the experiment: a sweep can continue in a new one
    results_url: str | None = None  # MLflow
    progress: Progress = field(default_factory=Progress)
    sent_keys: tuple[str, ...] = ()  # of events reported once: waiting reasons, failures of trials
    stopped_values: dict[str, float] = field(default_factory=dict)  # of stopped trials: Katib has none
    to_kill: dict[str, str] = field(default_factory=dict)  # by trial: the user who cancelled it
    first_only: bool = False  # only the first trial can run: the others wait for it
    holds: tuple[str, ...] = ()  # what keeps new trials from starting for now, such as "pause"
    parallel_now: int = 1  # trials at once, while `parallel=auto` follows free GPUs
    trials_now: int = 0  # that can have started by now, as its budget allows; 0: all
    steps: dict[str, str] = field(default_factory=dict)  # of its start, by name, as its message shows them
    failure: str = ""  # what is wrong with its first trials for good, and the fix
    cause: str = ""  # why the first of its trials failed, on one line
    draining: str = ""  # why no new trials start any more, such as "drained"
    extending: bool = False  # until Katib runs the experiment with the plan's counts
    ending: Phase | None = None
    deadline: datetime | None = None  # no new trials start after it
    reason: str = ""  # why the sweep ended or is held, for the parent message
    cancelled_by: str | None = None  # Slack user id
    quarantined: bool = False
    audit_log: tuple[AuditEntry, ...] = ()  # the latest entries
    outbox: tuple[Event, ...] = ()
    shown: Shown = field(default_factory=Shown)
    durable_phase: Phase | None = None  # the phase in the ConfigMap; None: no ConfigMap yet
    features: dict[str, _Json] = field(default_factory=dict)  # by name: what `of` returns, as JSON
    attempt_features: dict[str, _Json] = field(default_factory=dict)  # the same, of this attempt only
    version: int = 0
    schema: int = len(MIGRATIONS) + 1  # of its stored form; only bot.core.stored_format reads it

    @property
    def has_trouble(self) -> bool:
        """Whether its reconciles keep failing."""
        return any(key.startswith(TROUBLE) for key in self.sent_keys)

    def of(self, kind: type[State]) -> State:
        """Return what a feature remembers about this sweep; its defaults if nothing.

        Raises NewerFormatError if a newer version stored it with fields that this one doesn't know.
        """
        stored = self.attempt_features if kind.of_one_attempt else self.features
        return decoded(kind, stored.get(kind.name, ""))

    def put(self, *states: FeatureState, **changes: Any) -> Self:
        """Return the record with these states of features, and other fields changed."""
        lasting = {each.name: encoded(each) for each in states if not each.of_one_attempt}
        others = {each.name: encoded(each) for each in states if each.of_one_attempt}
        lasting = {name: text for name, text in (self.features | lasting).items() if text}
        others = {name: text for name, text in (self.attempt_features | others).items() if text}
        if not changes and (lasting, others) == (self.features, self.attempt_features):
            return self
        return replace(self, features=lasting, attempt_features=others, **changes)

    def change(self, kind: type[FeatureState], **fields: Any) -> Self:
        """Return the record with some fields of a feature's state changed."""
        return self.put(replace(self.of(kind), **fields))

    def hold(self, name: str) -> Self:
        """Return the record with a reason, by name, not to start new trials for now."""
        return self if name in self.holds else replace(self, holds=(*self.holds, name))

    def unhold(self, name: str) -> Self:
        return replace(self, holds=tuple(each for each in self.holds if each != name))

    def to(self, phase: Phase, now: datetime, *events: Event, **changes: Any) -> Self:
        return replace(self, phase=phase, since=now, outbox=self.outbox + events, **changes)

    def enqueue(self, *events: Event, **changes: Any) -> Self:
        return replace(self, outbox=self.outbox + events, **changes) if events or changes else self

    def with_entry(self, entry: AuditEntry) -> Self:
        return replace(self, audit_log=(*self.audit_log, entry)[-MAX_AUDIT_ENTRIES:])

    def step(self, **texts: str) -> Self:
        """Return the record with steps of its start as done, or as they are now."""
        return replace(self, steps=self.steps | texts)

    def fail(self, why: str, now: datetime, *events: Event) -> Self:
        """Return the record of a sweep that stops, and then has failed."""
        return self.to(Phase.STOPPING, now, *events, ending=Phase.FAILED, reason=why)

    def enqueue_once(self, key: str, event: Event) -> Self:
        """Enqueue the event unless one was enqueued with this key."""
        if key in self.sent_keys:
            return self
        return self.enqueue(event, sent_keys=(*self.sent_keys, key))


# A new field needs a default that means "not used"; any other change needs a migration.
FORMAT = StoredFormat(SweepRecord, "sweep", migrations=MIGRATIONS)


def dump(record: SweepRecord) -> str:
    return FORMAT.dump(record).decode()


def load(text: str | bytes) -> SweepRecord:
    """Parse a record. Raises ValueError for an invalid one, NewerFormatError for a newer one."""
    return FORMAT.load(text)
