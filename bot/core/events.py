"""What is worth telling people about a sweep, and the state that its messages show."""

from dataclasses import dataclass, field
from enum import StrEnum


class EventKind(StrEnum):
    """A thing worth telling people, once."""

    REFUSED = "refused"  # privately
    NOT_ALLOWED = "not_allowed"  # privately
    BUILD_STARTED = "build_started"
    BUILD_JOINED = "build_joined"
    BUILD_REUSED = "build_reused"
    IMAGE_READY = "image_ready"
    BUILD_WAITING = "build_waiting"
    BUILD_DONE = "build_done"
    BUILD_FAILED = "build_failed"
    SUBMIT_REFUSED = "submit_refused"
    SUBMITTED = "submitted"
    FIRST_TRIAL_RUNNING = "first_trial_running"
    HEALTH = "health"  # of the first trials: posted once, then edited
    FIRST_FAILED = "first_failed"  # when that message, being edited, would call nobody
    ALIKE = "alike"  # how many more trials failed as one did that was told
    TRIAL_FAILED = "trial_failed"
    BETTER = "better"
    TRIAL_KILLED = "trial_killed"
    TRIAL_RESTARTED = "trial_restarted"
    DRAINING = "draining"
    EXTENDED = "extended"
    TROUBLE = "trouble"
    TROUBLE_OVER = "trouble_over"
    QUARANTINED = "quarantined"  # its turns came to no end
    RELEASED = "released"
    RESTORED = "restored"  # Redis lost its data
    STUCK = "stuck"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished trial with a finite objective."""

    trial: str
    value: float
    parameters: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: EventKind
    text: str = ""  # the part only the moment knows: a reason, a log tail
    detail: str = ""
    trial: str = ""
    pod: str = ""  # whose whole log goes with it, as a file
    container: str = ""  # of that pod; empty: the one that builds
    result: Result | None = None
    seconds: float | None = None  # how long it took
    by: str = ""  # Slack user id of who wanted it
    to_user: str = ""  # privately, to this Slack user id
    response_url: str = ""
    in_thread: bool = False  # privately, but where the sweep's thread is
    more: int = 0  # earlier ones of its kind that it stands for


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the parent message shows of the experiment."""

    running: int = 0
    waiting: int = 0
    succeeded: int = 0
    failed: int = 0
    killed: int = 0
    best: Result | None = None

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.killed


class HealthStatus(StrEnum):
    """Of a first trial."""

    WAITING = "waiting"
    UNHEALTHY = "troubled"  # it can't run as it is, or runs in vain
    FAILED = "failed"
    RECOVERED = "recovered"


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the one message about the health of a sweep's first trials says now."""

    status: HealthStatus
    key: str
    text: str
    fix: str = ""
    detail: str = ""
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    lasting: bool = False  # a fact, which no later state takes back
    more: int = 0  # other trials that failed the same way
