"""The part of a sweep's record about its queue. Pure."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """What users changed about the queue of a sweep's waiting trials, and which trials were interrupted."""

    labels: dict[str, str] = field(default_factory=dict)  # of waiting trials' Jobs, if not as planned
    priority: str = ""  # low, normal, or high; "": as planned
    value: int = 0  # of that priority's class
    lifted: tuple[str, ...] = ()  # UIDs of the Jobs that ran at the change and have that value
    held_by: str = ""  # Slack user id of who keeps waiting trials out of the queue
    parked: tuple[str, ...] = ()  # UIDs of the Jobs whose Workloads Sweepbot made inactive
    ran: tuple[str, ...] = ()  # live trials that have run
    interrupted: dict[str, datetime] = field(default_factory=dict)  # by trial, until it runs again
    disrupted: dict[str, str] = field(default_factory=dict)  # by UID of a Job that is replaced: its trial


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A trial was stopped by the cluster, and starts again."""

    trial: str
    why: str  # a clause about the trial, such as "its node was drained"
    queued: bool  # it waits in a queue of Kueue, not for a node
    job_uid: str = ""  # of its Job, if that must be replaced; "": the cluster starts the trial again
