"""The fields of what workers answer to the HTTP API (results, logs, plans, comparisons, history), from which
its schemas are made.
"""

from datetime import datetime

from bot.sweep.model.api_sweep import AnswerModel


class Trial(AnswerModel):
    name: str
    state: str
    """Such as `done`, `failed`, or `active`."""
    value: float | None
    """Of the objective."""
    parameters: dict[str, str]
    started: datetime | None
    ended: datetime | None


class Trials(AnswerModel):
    trials: list[Trial]
    """The best first."""


class Log(AnswerModel):
    source: str
    """Whose log it is: a trial, or the build of an image."""
    cause: str | None
    """The line that a person would quote as the cause of a failure; null if there is none."""
    log: str
    """The last lines, up to 10,000. Of a trial with several nodes, of all its workers."""


class Fact(AnswerModel):
    name: str
    text: str


class Plan(AnswerModel):
    branch: str
    commit: str
    subject: str
    """The first line of the commit's message."""
    cluster: str
    trials: int
    """At most."""
    peak_gpus: int
    gpu_hours: float | None
    """At most; null without a time limit of a trial."""
    facts: list[Fact]
    """What the form's preview shows: what the sweep builds, runs, and costs."""
    example: str
    """The command line of a trial."""
    notes: list[str]


class ComparedSweep(AnswerModel):
    id: str
    metric: str
    goal: str
    """`minimize` or `maximize`."""
    value: float | None
    """Of the best trial."""
    parameters: dict[str, str]
    """Of the best trial."""
    trials: int
    branch: str
    commit: str


class Comparison(AnswerModel):
    sweeps: list[ComparedSweep]
    comparable: bool
    """Whether they have the same objective."""
    text: str
    """What `/sweep compare` answers: also the commits and the differences between the spaces."""


class PastSweep(AnswerModel):
    id: str
    value: float
    """Of the best trial."""
    metric: str
    goal: str
    owner: str
    commit: str
    subject: str
    trials: int
    ended: datetime


class History(AnswerModel):
    sweeps: list[PastSweep]
    """Ended ones with a result, the latest first, up to 200."""


def dumped(answer: AnswerModel) -> bytes:
    return answer.model_dump_json().encode()
