"""Events of a sweep that users are notified of, and the state that its messages show."""

from dataclasses import dataclass, field
from enum import StrEnum


class EventKind(StrEnum):
    """What happened; each event is posted once."""

    REFUSED = "refused"  # ephemeral
    NOT_ALLOWED = "not_allowed"  # ephemeral
    CLUSTER_CHOSEN = "cluster_chosen"
    BUILD_STARTED = "build_started"
    BUILD_JOINED = "build_joined"
    BUILD_REUSED = "build_reused"
    IMAGE_READY = "image_ready"
    BUILD_WAITING = "build_waiting"
    START_WAITING = "start_waiting"  # for nodes, before the experiment is submitted
    BUILD_DONE = "build_done"
    BUILD_FAILED = "build_failed"
    SUBMIT_REFUSED = "submit_refused"
    SUBMITTED = "submitted"
    FIRST_TRIAL_RUNNING = "first_trial_running"
    HEALTH = "health"  # of the first trials: posted once, then edited
    FIRST_FAILED = "first_failed"  # a new post, because edits don't notify
    ALIKE = "alike"  # the number of trials that failed like a reported one
    TRIAL_FAILED = "trial_failed"
    BETTER = "better"
    TRIAL_KILLED = "trial_killed"
    TRIAL_RESTARTED = "trial_restarted"
    INTERRUPTED = "interrupted"  # by the cluster: preempted, or its node was drained or lost
    RUNS_AGAIN = "runs_again"
    QUEUE_CHANGED = "queue_changed"
    STOPPED_EARLY = "stopped_early"  # by Sweepbot; or in a dry run would have been
    NOT_JUDGED = "not_judged"  # no values for early stopping
    NO_LIVE_VALUES = "no_live_values"  # MLflow is unavailable
    SEARCH_LOST = "search_lost"  # by a restart of Katib's suggestion service
    GATE_OPENED = "gate_opened"
    HELD = "held"
    RETRIED = "retried"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMED = "resumed"
    DRAINING = "draining"
    EXTENDED = "extended"
    TROUBLE = "trouble"
    TROUBLE_OVER = "trouble_over"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    RESTORED = "restored"  # Redis lost its data
    STUCK = "stuck"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RESULTS = "results"  # the table of the best trials; stores the results first
    RESULT_FILES = "result_files"  # the picture, results.csv, and best.yaml


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished trial with a finite objective."""

    trial: str
    value: float
    parameters: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class LiveResult:
    """The last finite value of a running trial."""

    trial: str
    value: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: EventKind
    text: str = ""  # what only the event knows, such as a reason
    detail: str = ""  # evidence, such as the last lines of a log
    trial: str = ""
    pod: str = ""  # attach this pod's log as a file
    container: str = ""  # of that pod; "" is the build's
    result: Result | None = None
    seconds: float | None = None  # duration
    by: str = ""  # Slack user id of who requested it
    to_user: str = ""  # Slack user id for an ephemeral message
    response_url: str = ""
    in_thread: bool = False  # an ephemeral message in the sweep's thread
    more: int = 0  # number of earlier events of this kind that it replaces
    queued: bool = False  # interrupted: it waits in a queue of Kueue


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The counts and the best result in the parent message."""

    running: int = 0
    waiting: int = 0
    waits_for: str = ""  # nouns, such as "free GPUs"; "" if unknown
    finishing: int = 0  # the training has ended, and Katib doesn't count the trial yet
    succeeded: int = 0
    failed: int = 0
    killed: int = 0
    stopped_early: int = 0
    best: Result | None = None  # of a search
    live: LiveResult | None = None  # the best of the running trials
    minutes_left: int | None = None  # estimated, and rounded up
    seeds: dict[str, float | None] = field(default_factory=dict)  # results by seed; None: no result

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.killed + self.stopped_early


class HealthStatus(StrEnum):
    """The state of a first trial. Values are stored in records."""

    WAITING = "waiting"
    UNHEALTHY = "troubled"  # it can't start, or runs without effect
    FAILED = "failed"
    RECOVERED = "recovered"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The content of the message about a sweep's first trials."""

    status: HealthStatus
    key: str
    text: str
    fix: str = ""
    detail: str = ""
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    lasting: bool = False  # final: no later state replaces it
    more: int = 0  # other trials that failed the same way
