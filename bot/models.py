"""The words of this bot: what a sweep is, from request to record.

Everything is frozen; a change makes the next value (`record.to(...)`). `dump` and `load` are the one way into
Redis and into the durable ConfigMap.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import TypeAdapter

from k8s.objects import Manifest, Ref, ref_of

SCHEMA = 1  # of a stored SweepRecord; a reader refuses what is newer than itself


class UserError(Exception):
    """Something the person can mend; the text is a sentence for them: what is wrong, where, what to do."""


ALGORITHMS = ("random", "grid", "tpe", "bayesianoptimization", "cmaes", "sobol", "multivariate-tpe")


class Notify(StrEnum):
    """Where the owner is told of a failed first trial and of the end; the thread tells everything anyway."""

    CHANNEL = "channel"  # by name, and for the whole channel to see
    DM = "dm"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """What was asked for. None: not said, so the space file or the configuration decides."""

    branch: str
    space: str
    gpus: int = 1  # per trial
    repo: str | None = None  # a name from the configuration, or an allowed URL
    image: str | None = None  # a ready one: nothing is built
    parallel: int | None = None
    trials: int | None = None
    name: str | None = None
    cmd: str | None = None
    notify: Notify = Notify.CHANNEL
    algorithm: str | None = None
    text: str | None = None  # of the space, when it was written in the form and is in no file
    commit: str | None = None  # the one that the form's preview showed; None: the branch as it is


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asked, and where to answer."""

    user: str  # Slack user id
    user_name: str
    channel: str  # Slack channel id
    response_url: str = ""  # for private answers; Slack keeps it 30 minutes and 5 uses


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One dimension of the search. `values` for categories, otherwise a range of numbers."""

    name: str
    values: tuple[str, ...] = ()
    min: float | int | None = None
    max: float | int | None = None
    step: float | int | None = None
    log: bool = False
    integer: bool = False


@dataclass(frozen=True, kw_only=True)
class Watch:
    """When GPUs that do nothing are worth a word. 0: never."""

    idle_minutes: float = 30  # without any work; again at twice and four times that
    first_use_minutes: float = 30  # since the start, of GPUs that never did anything; 45 where data is large
    low_percent: float = 15  # on average of two hours
    stuck_minutes: float = 30  # at work all the time, and without a line in the log


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """A space file that passed every check."""

    name: str
    command: str
    metric: str
    goal: Goal
    target: float | None = None
    algorithm: str = "random"
    settings: dict[str, str] = field(default_factory=dict)  # of the algorithm, as Katib takes them
    max_trials: int
    parallel: int
    max_failed: int
    hours: float | None = None  # that a trial may take on its node; None: as long as it likes
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: the cluster's default
    parameters: tuple[Parameter, ...]
    finish_running: bool = False  # when the target is reached: let running trials end by themselves
    image: str = ""  # a ready one, on which nothing is built
    watch: dict[str, float] = field(default_factory=dict)  # what differs from the configuration's Watch
    extendable: bool = False  # its suggestion service stays after the end, so more trials can follow


class Role(StrEnum):
    """What a built image is to a sweep; the words are said to people."""

    IMAGE = "image"
    HEAVY = "heavy packages"
    DEPENDENCIES = "dependencies"
    CODE = "code"


@dataclass(frozen=True, kw_only=True)
class Build:
    """One image that one Job makes, for every sweep that needs it."""

    role: Role
    repository: str  # as the bot asks the registry: path without host
    tag: str
    job: Manifest
    needs: str = ""  # the tag of another one, which has to be there first

    @property
    def ref(self) -> Ref:
        return ref_of(self.job)


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything the cluster will be asked for, decided before anything is done."""

    repo_url: str
    commit: str  # 40 hexadecimal digits
    subject: str  # the commit message's first line
    space: SearchSpace
    gpus: int
    image_repository: str  # as the bot asks the registry: path without host
    image_tag: str
    image_by_digest: str  # as nodes pull it, with a placeholder where the digest goes; a ready one without
    recipe: str  # what the image is made from, in words
    results_name: str  # of the MLflow experiment
    builds: tuple[Build, ...]  # several are composed; none: a ready image
    experiment: Manifest  # with image_by_digest until the digest is known

    def build(self, role: Role) -> Build | None:
        return next((build for build in self.builds if build.role is role), None)

    @property
    def experiment_ref(self) -> Ref:
        return ref_of(self.experiment)


class Phase(StrEnum):
    RECEIVED = "received"  # acknowledged; the repository is not yet looked at
    OPENING = "opening"  # planned; the thread is being opened, nothing else exists
    BUILDING = "building"
    PROVING = "proving"  # the experiment is submitted; no trial has been seen running yet
    RUNNING = "running"
    STOPPING = "stopping"  # what still holds GPUs is being ended; `ending` says which end it is
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # could not start; the person was told privately

    @property
    def final(self) -> bool:
        return self in {Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.REFUSED}


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


class Mood(StrEnum):
    """Of a first trial."""

    WAITING = "waiting"
    TROUBLED = "troubled"  # it can't run as it is, or runs in vain
    FAILED = "failed"
    RECOVERED = "recovered"


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the one message about the health of a sweep's first trials says now."""

    mood: Mood
    key: str
    text: str
    mend: str = ""
    detail: str = ""
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    lasting: bool = False  # a fact, which no later state takes back
    more: int = 0  # other trials that failed the same way


class Act(StrEnum):
    """What people may want of a sweep; the words are said to them."""

    CANCEL = "cancel"
    DRAIN = "drain"  # start no more trials, let the running ones end
    KILL = "end a trial of"
    EXTEND = "extend"
    LAUNCH = "launch"
    RERUN = "rerun"  # the same request as another sweep
    STATUS = "look at"
    LOGS = "read the logs of"
    RESULTS = "see the results of"
    TRIALS = "see the trials of"
    KEEP = "keep the idle GPUs of"  # heard where GPUs are watched
    MEASURES = "see the GPU use of"  # as above
    RELEASE = "release"  # from quarantine; heard by the queue
    EXAMINE = "examine"  # not a sweep but the whole installation

    @property
    def leaves_alone(self) -> bool:
        """It stays as it is, so everybody may; a rerun is another sweep, whose turn asks who may launch."""
        return self in {Act.RERUN, Act.STATUS, Act.LOGS, Act.RESULTS, Act.TRIALS}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A click or a word on a living sweep, waiting for its next turn."""

    act: Act
    user: str
    user_name: str
    response_url: str = ""
    trial: str = ""  # kill: the trial's name, or its end; several with blanks where GPUs are watched
    trials: int = 0  # extend: how many there shall be in all
    changes: str = ""  # rerun: what shall differ, as typed
    delivery: str = ""  # rerun, and kill where GPUs are watched: Slack's id of the wish
    channel: str = ""  # rerun: where its thread shall be; empty: where the sweep's is
    in_thread: bool = False  # asked in the sweep's thread, where it is answered
    clicked: str = ""  # channel and ts of the message whose button it was, outside of threads
    view: str = ""  # trials: the modal that shows them
    notice: str = ""  # keep, measures, kill: which warning it is about
    hours: int = 0  # keep


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What somebody did to a sweep, or was refused."""

    at: datetime
    user: str
    act: Act
    name: str = ""  # of the user
    about: str = ""  # a trial, a number of trials
    refused: str = ""  # why; empty: it was done


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
    asker: Asker
    delivery: str  # Slack's id of the command: a repeated delivery is the same sweep
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
    progress: Progress = Progress()
    told: tuple[str, ...] = ()  # keys of things said once: waiting reasons, failures of trials
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
    history: tuple[Deed, ...] = ()  # the newest
    # By cause: the first trial that failed of it, and how many more did.
    alike: dict[str, tuple[str, int]] = field(default_factory=dict)
    unsaid: tuple[Event, ...] = ()
    shown: str = ""  # fingerprint of the parent message as Slack has it
    shown_at: datetime | None = None
    shown_phase: Phase | None = None
    kept: Phase | None = None  # the phase that the durable ConfigMap holds; None: it is not ours yet
    version: int = 0
    schema: int = SCHEMA

    def to(self, phase: Phase, now: datetime, *events: Event, **changes: Any) -> Self:
        return replace(self, phase=phase, since=now, unsaid=self.unsaid + events, **changes)

    def says(self, *events: Event, **changes: Any) -> Self:
        return replace(self, unsaid=self.unsaid + events, **changes)


class Newer(ValueError):  # noqa: N818 - reads as a sentence where it is caught
    """A record of a newer Sweepbot, as an older one meets it beside it during an update."""


_RECORD: TypeAdapter[SweepRecord] = TypeAdapter(SweepRecord)
_ASK: TypeAdapter[Ask] = TypeAdapter(Ask)


def dump(record: SweepRecord) -> str:
    return _RECORD.dump_json(record).decode()


def load(text: str | bytes) -> SweepRecord:
    """Raises ValueError for what is not a record, and Newer for a newer one."""
    record = _RECORD.validate_json(text)
    if record.schema > SCHEMA:
        raise Newer(f"sweep {record.id} was stored by a newer Sweepbot (schema {record.schema})")
    return record


def dump_ask(ask: Ask) -> str:
    """The same text for the same ask, also when Ask has got more fields since: so it is found again."""
    return _ASK.dump_json(ask, exclude_defaults=True).decode()


def load_ask(text: str | bytes) -> Ask:
    return _ASK.validate_json(text)
