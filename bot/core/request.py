"""A request for a sweep, with a field for each option, such as where the owner is notified, and its
requester: a person, or a team's CI account.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Notify(StrEnum):
    """Where the owner is notified of a failed first trial and of the end; the thread has all events."""

    CHANNEL = "channel"  # a mention in the channel
    DM = "dm"
    NONE = "none"


SEEDS = "seeds"  # stands for the space of a sweep over seeds


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """The best trial of a search, whose parameters a sweep over seeds repeats."""

    sweep: str
    trial: str
    value: float
    strategy: dict[str, str] = field(default_factory=dict)  # of the search: min, max, or latest, by metric
    volumes: tuple[str, ...] = ()  # of the search's space, as are the following
    env: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    output_flag: str = ""
    seed: str = ""  # of that trial; "": the search set none


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The search for the commit that broke a trial, of which a sweep is one step."""

    sweep: str  # whose trial failed
    channel: str  # where to answer
    thread: str
    url: str  # of the repository
    good: str  # the latest commit known to work
    bad: str  # the earliest one known to fail
    path: str = ""  # of the file in which it failed; "": unknown
    row: int = 0  # of that file
    parameters: dict[str, str] = field(default_factory=dict)  # of the trial
    commits: int = 0  # between the first two, and the failing one
    trials: int = 0  # that have ended
    skipped: tuple[str, ...] = ()  # commits that don't build
    lost: int = 0  # runs of the step's commit that the cluster stopped


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """Options of a sweep. None: not set, so the space file or the configuration decides."""

    branch: str  # or several to compare, with commas between
    space: str
    gpus: int = 1  # per node of a trial
    nodes: int | None = None  # per trial
    profile: str | None = None  # a name from the configuration; None: the default
    cluster: str | None = None  # a name from the configuration; None: Sweepbot chooses one
    repo: str | None = None  # a name from the configuration, or an allowed URL
    image: str | None = None  # prebuilt; nothing is built
    parallel: int | None = None
    auto: bool = False  # `parallel` is the maximum: Sweepbot follows free GPUs
    trials: int | None = None
    name: str | None = None
    cmd: str | None = None
    notify: Notify = Notify.CHANNEL
    algorithm: str | None = None
    from_: str | None = None  # auto, none, or the sweep whose best points the search tries first
    where: str | None = None  # bounds of parameters, such as batch_size<512
    gate: bool | None = None
    max_hours: float | None = None
    budget: str | None = None  # as typed: GPU-hours, or money with its currency
    queue: str | None = None  # Kueue's LocalQueue
    priority: str | None = None  # low, normal, or high
    seeds: str | None = None  # such as 0-4: run `cmd` once with each, without a space
    metric: str | None = None  # of the objective
    goal: str | None = None  # minimize or maximize
    metrics: str | None = None  # source of the metrics, or the absolute path of a file
    flags: str | None = None  # how parameters are passed
    text: str | None = None  # of a space written in the form
    commit: str | None = None  # shown in the form's preview, or promoted; None: each branch's latest
    promotes: Promotion | None = None
    bisects: Bisection | None = None

    @property
    def branches(self) -> tuple[str, ...]:
        return tuple(self.branch.split(","))


TEAM = "team-"  # begins no ID of Slack, which are capitals


def team_account(team: str) -> str:
    """Return the user in whose name CI jobs of a team act."""
    return TEAM + team


def is_team(user: str) -> bool:
    """Return whether it is such an account, to which Slack can't send anything."""
    return user.startswith(TEAM)


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who started it, and where to answer."""

    user: str  # Slack user id, or a `team_account`
    user_name: str
    channel: str  # Slack channel id
    response_url: str = ""  # for private answers; valid for 30 minutes and 5 uses
    via: str = ""  # as in Command
    account: str = ""  # of the token with a budget that it was sent with; "": with none
    account_budget: str = ""  # of a month, as `AMOUNT` reads it
