"""A sweep's record, as stored in Redis and in its ConfigMap.

Frozen: a change returns the next record (`record.to(...)`). `dump` and `load` are the only way to storage.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from bot.core.commands import AuditEntry
from bot.core.events import Event, Health, Progress
from bot.core.pace import Pace
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.core.queueing import QueueState
from bot.core.request import Requester, SweepRequest
from bot.core.seeds import EarlierSeeds
from bot.core.stopping import EarlyStop, Rungs
from bot.core.stored_format import StoredFormat
from k8s.kueue import QUEUE_LABEL


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


@dataclass(frozen=True)
class Quarantine:
    """An item that the queue no longer runs."""

    since: datetime
    why: str


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """The state of one sweep."""

    id: str
    cluster: str = HOME_CLUSTER  # of its trials
    unseen_since: datetime | None = None  # when that cluster last answered; None: it answers
    unseen_reason: str = ""  # what an admin must fix for it to answer
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
    build_started_at: datetime | None = None  # None: no build so far
    build_uids: dict[str, str] = field(default_factory=dict)  # by Job; ignores failures of older Jobs
    build_trouble: str = ""  # why a build hasn't started
    unavailable: str = ""  # the registry or git server that can't be reached, and why
    start_wait: str = ""  # why the experiment isn't submitted yet
    digests: dict[str, str] = field(default_factory=dict)  # of finished parts by tag; "" where not needed
    submitted: bool = False  # whether the experiment was created
    results_url: str | None = None  # MLflow
    progress: Progress = field(default_factory=Progress)
    sent_keys: tuple[str, ...] = ()  # of events reported once: waiting reasons, failures of trials
    health: Health | None = None  # of the first trials; None: no problem so far
    health_ts: str | None = None  # of the message about it
    health_shown: str = ""  # fingerprint of that message in Slack
    examined: tuple[str, ...] = ()  # trials whose failure was diagnosed
    ending: Phase | None = None
    reason: str = ""  # why the sweep ended, for the parent message
    quarantined: bool = False
    cancelled_by: str | None = None  # Slack user id
    drained_by: str | None = None
    extending: bool = False  # until Katib runs the experiment with the plan's counts
    more_trials: int = 0  # finished: how many the button can add
    not_extendable: str = ""  # finished: why it adds none
    gated: bool = False  # Katib can only run the first trial
    hold: str = ""  # held: the diagnosis, and what wasn't started
    attempt: int = 1  # number of the experiment: a held sweep continues in a new one
    paused_at: datetime | None = None  # time of the command; None: not paused
    paused_by: str = ""  # Slack user id
    pause_now: bool = False  # stop running trials instead of letting them finish
    paused_in: Phase | None = None  # paused: the phase to continue in
    resuming: bool = False  # until Katib runs the experiment again
    deadline: datetime | None = None  # no new trials start after it
    out_of_time: bool = False  # the deadline has passed
    to_kill: dict[str, str] = field(default_factory=dict)  # by trial: the user who cancelled it
    pace: Pace = field(default_factory=Pace)  # of `parallel=auto`
    queueing: QueueState = field(default_factory=QueueState)
    rungs: Rungs = field(default_factory=dict)  # of early stopping by Sweepbot
    ending_early: dict[str, EarlyStop] = field(default_factory=dict)  # by trial: being stopped
    ended_early: dict[str, EarlyStop] = field(default_factory=dict)  # stopped, or in a dry run would be
    saved_gpu_hours: float = 0.0  # by early stopping; estimated
    restarted: dict[str, str] = field(default_factory=dict)  # by uid of a deleted Job: its trial
    audit_log: tuple[AuditEntry, ...] = ()  # the latest entries
    alike: dict[str, tuple[str, int]] = field(default_factory=dict)  # by cause: first trial, number of others
    outbox: tuple[Event, ...] = ()
    shown: str = ""  # fingerprint of the parent message in Slack
    shown_at: datetime | None = None
    shown_phase: Phase | None = None
    durable_phase: Phase | None = None  # the phase in the ConfigMap; None: no ConfigMap yet
    version: int = 0
    schema: int = 1  # of its stored form; only bot.core.stored_format sets and reads it

    @property
    def draining(self) -> bool:
        """Whether no new trials start."""
        return bool(self.drained_by) or self.out_of_time

    @property
    def queue_and_priority(self) -> tuple[str, str]:
        """The queue and the priority that new trials get: as planned, or as changed by a user."""
        queue, priority = (self.plan.queue, self.plan.priority) if self.plan else ("", "")
        return self.queueing.labels.get(QUEUE_LABEL) or queue, self.queueing.priority or priority

    def to(self, phase: Phase, now: datetime, *events: Event, **changes: Any) -> Self:
        return replace(self, phase=phase, since=now, outbox=self.outbox + events, **changes)

    def enqueue(self, *events: Event, **changes: Any) -> Self:
        return replace(self, outbox=self.outbox + events, **changes)


# A new field needs a default that means "not used"; any other change needs a migration here.
FORMAT = StoredFormat(SweepRecord, "sweep", migrations=())


def dump(record: SweepRecord) -> str:
    return FORMAT.dump(record).decode()


def load(text: str | bytes) -> SweepRecord:
    """Parse a record. Raises ValueError for an invalid one, NewerFormatError for a newer one."""
    return FORMAT.load(text)
