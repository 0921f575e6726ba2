"""What a feature can add to a plain sweep: functions, each optional; `bot.sweep.feature_table` lists all."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, auto
from typing import Any, Self

from bot.core.commands import Action, Command
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.clients import Clients
from bot.platform.config.policy import Config
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.slack.message import Message
from bot.platform.storage.work_queue import Lease
from bot.sweep.clients import SweepClients
from bot.sweep.model.changes import Patch, RequiredChanges
from bot.sweep.model.observation import Observation, RawObjects
from k8s.engine import Experiment
from k8s.objects import Manifest

Observe = Callable[[SweepRecord, Observation, SweepClients], Awaitable[Observation]]
Decide = Callable[[SweepRecord, Observation, datetime], SweepRecord]
Examine = Callable[[SweepRecord, SweepPlan, RawObjects, Clients], Awaitable[tuple[Diagnosis, ...]]]
Denial = Callable[[SweepRecord, Command, Observation, Config, datetime], str]
ChangeDenial = Callable[[SweepRecord, SweepRecord, Command, Observation, Config], str]
Poster = Callable[[SweepRecord, Event, SweepClients], Awaitable[None]]
Job = Callable[[Lease, SweepClients], Awaitable[timedelta | None]]
Apply = Callable[[SweepRecord, Command, Observation, Config, datetime], SweepRecord]


class Moment(IntEnum):
    """When a step decides, in the order of a reconcile. Steps of one moment have the order of the table."""

    OPENING = auto()  # before the build
    START = auto()  # trials that have to wait can't have a problem
    PROBLEMS = auto()  # until the first trial runs, its waiting is reported
    FIRST_TRIAL = auto()  # one that failed is counted, too
    HOLD = auto()  # a held sweep has no more results
    RESULTS = auto()
    LIVE_VALUES = auto()  # they complete the counts
    STOPS = auto()  # of trials, by their values
    NEXT = auto()  # what starts or waits now; a stopped trial isn't interrupted


@dataclass(frozen=True, kw_only=True)
class Step:
    """One decision about a sweep in some phases."""

    at: Moment
    phases: frozenset[Phase] = frozenset(ACTIVE)
    decide: Decide


@dataclass(frozen=True, kw_only=True)
class CommandRule:
    """A command that changes a sweep.

    `denial` returns why the sweep's state doesn't allow it, "" if it does; permissions are checked before.
    """

    denial: Denial
    apply: Apply
    button: str = ""  # the action_id of the button that gives it; "": there is none
    asks_reason: bool = False  # whether that button opens a modal, which asks for one line
    when_ended: bool = False  # whether it is about an ended sweep, too
    counts_again: bool = False  # whether the sweep's GPUs count toward the limits again
    restarts: bool = False  # whether trials start again, after a pause or the end


@dataclass(frozen=True, kw_only=True)
class LiveMessage:
    """A reply in the thread that is posted once and then edited as the state changes."""

    build: Callable[[SweepRecord], Message | None]  # None: there is nothing to show
    ts: Callable[[SweepRecord], str | None]  # where it was posted; None: it isn't yet
    fingerprint: Callable[[SweepRecord], str]  # of what Slack shows; "": unknown
    shown: Callable[[SweepRecord, str, str], SweepRecord]  # remembers its ts and fingerprint
    is_loud: Callable[[SweepRecord], bool] = lambda _: False

    @classmethod
    def of(cls, state: type[Any], build: Callable[[SweepRecord], Message | None], **more: Any) -> Self:
        """Return one whose `ts` and `fingerprint` are those of a feature's state."""
        return cls(
            build=build,
            ts=lambda sweep: sweep.of(state).ts,
            fingerprint=lambda sweep: sweep.of(state).fingerprint,
            shown=lambda sweep, ts, fingerprint: sweep.change(state, ts=ts, fingerprint=fingerprint),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Feature:
    """Each function sees the whole record, and reads and changes the feature's own state in it."""

    name: str
    states: tuple[type[FeatureState], ...] = ()  # what it remembers
    # Of that, what may only be decided from a direct read of the API server.
    decisive: Callable[[SweepRecord], Any] = lambda _: None

    # When a request was accepted.
    planned: Callable[[SweepRecord, Config], SweepRecord] | None = None
    # Adds to an observation; calls other systems.
    observe: Observe | None = None
    # Diagnoses all trials, for admins; calls other systems.
    examine: Examine | None = None
    # What it decides in a reconcile.
    steps: tuple[Step, ...] = ()
    # Whether the sweep continues after its experiment completes.
    continues: Callable[[SweepRecord, Observation], bool] | None = None
    # From the records before and after a command that lets trials start again.
    restarted: Callable[[SweepRecord, SweepRecord], SweepRecord] | None = None
    # When all GPUs are free: the last thing that it decides.
    ended: Callable[[SweepRecord, Observation, Config], SweepRecord] | None = None
    # When to reconcile at the latest, from the records before and after; None: it doesn't matter.
    requeue: Callable[[SweepRecord, SweepRecord, datetime], timedelta | None] | None = None
    commands: Mapping[Action, CommandRule] = field(default_factory=dict)
    # Why the sweep can't be drained now; "" if it can.
    drain_denial: Callable[[SweepRecord], str] | None = None
    # Why trials can't start again after a pause or the end; "" if they can.
    restart_denial: Callable[[SweepRecord], str] | None = None
    # Why a command can't change the first record to the second one; "" if it can.
    change_denial: ChangeDenial | None = None

    # Changes the experiment before it is submitted.
    prepare: Callable[[SweepRecord, Manifest], Manifest] | None = None
    # What it requires of the cluster while trials can run.
    changes: Callable[[SweepRecord, SweepPlan, Observation, datetime], RequiredChanges] | None = None
    # The patch of the experiment. The first feature that returns one decides; the others wait.
    steer: Callable[[SweepRecord, SweepPlan, Experiment, Observation, datetime], Patch | None] | None = None
    # When the cluster rejects a patch for good: the record without what needed it; None: it needed none.
    rejected: Callable[[SweepRecord, Observation, str, datetime], SweepRecord | None] | None = None

    # By kind of event: what is done with it in place of a post in the thread; and by kind of work item, what
    # handles it. Both call other systems.
    posters: Mapping[str, Poster] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)

    # What the sweep used or saved, as a sentence without a period; "": nothing.
    saved: Callable[[SweepRecord], str] | None = None
    # In the parent message: the emoji and the name of a state, before the phase's own.
    headline: Callable[[SweepRecord], tuple[str, str] | None] | None = None
    # What follows that name, such as " by ada"; "": the record's reason.
    cause: Callable[[SweepRecord], str] | None = None
    # Lines below the name, about trials, and about running ones; and a sentence in the grey line.
    problem: Callable[[SweepRecord], list[str]] | None = None
    lines: Callable[[SweepRecord], list[str]] | None = None
    running: Callable[[SweepRecord], list[str]] | None = None
    footer: Callable[[SweepRecord], str] | None = None
    buttons: Callable[[SweepRecord], list[dict[str, Any]]] | None = None
    live_message: Mapping[str, LiveMessage] = field(default_factory=dict)  # by the event that posts it
