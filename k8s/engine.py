"""The states of an experiment, of its trials, and of what proposes points, and why they ended, as values of
any engine; `k8s.katib.status` reads them from Katib.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from k8s.objects import Manifest


class ExperimentState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class End(StrEnum):
    """Why an experiment ended."""

    NONE = ""  # it hasn't
    ALL_TRIALS = "all trials ended"
    TARGET = "target reached"
    DRAINED = "drained"  # by Sweepbot
    PAUSED = "paused"  # by Sweepbot, which can reopen it
    TOO_MANY_FAILED = "too many trials failed"
    FAILED = "failed"  # without another reason, as if the suggestion service fails
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    state: ExperimentState
    end: End = End.NONE
    message: str = ""  # the engine's, about the end
    max_trials: int = 0  # in total, as far as it can start them now
    max_failed: int | None = None  # failed trials that end it; None: any number
    made: int = 0  # trials created so far
    best: str = ""  # the engine's own optimum, only to compare with; "": none yet
    uid: str = ""
    created: datetime | None = None
    request_id: str = ""  # of the request that created it
    raw: Manifest = field(default_factory=dict)  # only for the engine's adapter


class TrialState(StrEnum):
    LIVE = "live"  # created, queued, or running: only its pod shows which
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_METRICS = "no metrics"  # succeeded without the objective's metric; counted as failed
    KILLED = "killed"
    STOPPED_EARLY = "stopped early"  # by medianstop, whose metrics up to then count, or by Sweepbot
    NOT_STARTED = "not started"  # it never got a node before the sweep ended


@dataclass(frozen=True, kw_only=True)
class Trial:
    name: str
    state: TrialState
    parameters: dict[str, str]
    value: float | None  # of the objective, if finite
    not_finite: str = ""  # `NaN` or `infinite`: the objective's latest value
    more: dict[str, float] = field(default_factory=dict)  # of additional metrics, if finite
    message: str = ""  # the engine's, about a failure
    created: datetime | None = None
    started: datetime | None = None  # its Job was created
    ended: datetime | None = None
    killed: bool = False  # by Sweepbot's patch: its Job has to be deleted, too
    uid: str = ""
    raw: Manifest = field(default_factory=dict)  # only for the engine's adapter

    @property
    def failed(self) -> bool:
        """Whether the engine counts it as failed."""
        return self.state in {TrialState.FAILED, TrialState.NO_METRICS}


@dataclass(frozen=True, kw_only=True)
class SearchService:
    """What proposes an experiment's points."""

    ready: bool = False
    rejection: str | None = None  # why it rejected the space; None: it didn't
    message: str = ""  # about its start
