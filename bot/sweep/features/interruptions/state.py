"""What is remembered and observed about the trials that the cluster interrupted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from bot.core.feature_state import FeatureState


@dataclass(frozen=True, kw_only=True)
class InterruptionState(FeatureState):
    name: ClassVar[str] = "interruptions"
    of_one_attempt: ClassVar[bool] = True

    ran: tuple[str, ...] = ()  # live trials that have run
    interrupted: dict[str, datetime] = field(default_factory=dict)  # by trial, until it runs again
    disrupted: dict[str, str] = field(default_factory=dict)  # by UID of a Job that is replaced: its trial
    restarted: dict[str, str] = field(default_factory=dict)  # by UID of a Job of Katib's collector: its trial
    pull_errors: dict[str, str] = field(default_factory=dict)  # by live trial: the first one


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A trial was stopped by the cluster, and starts again."""

    trial: str
    why: str  # a clause about the trial, such as "its node was drained"
    queued: bool  # it waits in a queue of Kueue, not for a node
    job_uid: str = ""  # of its Job, if that must be replaced; "": the cluster starts the trial again


@dataclass(frozen=True, kw_only=True)
class InterruptionsSeen:
    interruptions: tuple[Interruption, ...] = ()  # one of each trial
    pull_errors: Mapping[str, str] = field(default_factory=dict)  # of waiting pods, by trial
