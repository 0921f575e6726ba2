"""What the API takes and answers: these classes check requests, and its schemas are made from them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bot.sweep.model.api_sweep import AnswerModel, State

MAX_LISTED, DEFAULT_LISTED = 200, 50  # sweeps in one answer
MAX_COMPARED = 6  # sweeps
MAX_WAIT = 30  # seconds; a connection without an answer is closed after 40


def _flag(text: Any) -> Any:
    return {"true": True, "false": False}.get(text, text) if isinstance(text, str) else text


Flag = Annotated[bool, BeforeValidator(_flag), Field(strict=True)]


class RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ListQuery(RequestModel):
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = DEFAULT_LISTED
    cursor: Annotated[str, Field(max_length=100)] = ""
    """`next` of the page before."""
    active: Flag = False
    """Only sweeps that haven't ended."""


class ShowQuery(RequestModel):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT)] = 0
    """Seconds to wait for its end, or until it needs a person: it is `held`, `paused`, or awaits approval."""


class ResultsQuery(RequestModel):
    format: Literal["json", "csv"] = "json"
    """`csv` has all columns of `results.csv`."""


class LogsQuery(RequestModel):
    trial: Annotated[str, Field(max_length=100)] = ""
    """Its name, or the end of that; without it, the most interesting one."""


class ComparisonQuery(RequestModel):
    sweeps: Annotated[str, Field(max_length=1000, examples=["lr-brave-otter,lr-calm-fox"])]
    """2 to 6 ended ones, with commas between."""


class HistoryQuery(RequestModel):
    space: Annotated[str, Field(max_length=100, examples=["lr"])]
    """Its name."""


class CommandBody(RequestModel):
    model_config = ConfigDict(
        strict=True, json_schema_extra={"examples": [{"command": "branch=main space=lr"}]}
    )
    command: str
    """What follows `/sweep` in Slack."""


class SpaceBody(RequestModel):
    model_config = ConfigDict(
        strict=True,
        json_schema_extra={"examples": [{"space": "command: python train.py", "options": "gpus=2"}]},
    )
    space: str
    """The text of the space file."""
    options: str = ""
    """Options of `/sweep` that the sweep would have."""


class Queued(AnswerModel):
    id: str
    state: State


class Accepted(AnswerModel):
    id: str
    accepted: Literal[True] = True


class ListedTrials(AnswerModel):
    total: int
    done: int
    running: int


class ListedSweep(AnswerModel):
    id: str
    state: State
    owner: str
    trials: ListedTrials
    best: float | None
    thread: str | None


class SweepPage(AnswerModel):
    sweeps: list[ListedSweep]
    """Yours and all running ones, the newest first."""
    next: str | None
    """The `cursor` of the next page; null if this is the last one."""


class SpaceCheck(AnswerModel):
    valid: bool
    errors: list[str]
    """One for each error, with its line."""
    notes: list[str]
    summary: str | None
    """The parameters, the number of combinations, and the maximum GPU-hours."""


class Problem(AnswerModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    """The sentence that Slack shows."""
