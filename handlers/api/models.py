"""What the API takes and answers: these classes check a call's query and body, or say what is wrong (an
unknown option, a value, a large or slow body), and its schemas are made from them.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.core.errors import UserError
from bot.sweep.model.api_sweep import AnswerModel, State
from bot.text.wording import listed
from handlers.http_server import BODY_TIMEOUT, read_body

MAX_BODY = 64 * 1024  # bytes
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


M = TypeVar("M", bound=RequestModel)


def query_of(model: type[M], options: Mapping[str, str]) -> M:
    """Return the options of a call. Raises UserError with a sentence about the first that is wrong."""
    try:
        return model.model_validate({**options})
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        name = str(found["loc"][0])
        if found["type"] == "extra_forbidden":
            known = listed(sorted(f"{each}=" for each in model.model_fields)) or "none"
            raise UserError(f"Unknown option: {name[:40]}=. Available: {known}.") from None
        if found["type"] == "missing":
            raise UserError(f"Missing {name}=.") from None
        raise UserError(f"{name}= {_rule(model.model_json_schema()['properties'][name])}.") from None


def _rule(schema: Mapping[str, Any]) -> str:
    """Return what a value must be, such as `must be a whole number from 1 to 200`."""
    if schema.get("type") == "integer":
        return f"must be a whole number from {schema['minimum']} to {schema['maximum']}"
    if schema.get("type") == "boolean":
        return "must be true or false"
    if "enum" in schema:
        return f"must be {listed(schema['enum'], 'or')}"
    return f"must be a text of up to {schema['maxLength']:,} characters"


async def body_of(model: type[M], request: Request) -> M:
    """Return the body. Raises HTTPException."""
    body = await raw_body(request)
    try:
        return model.model_validate_json(body)
    except ValidationError:
        example = json.dumps(model.model_json_schema()["examples"][0])
        raise HTTPException(422, f"The body must be JSON like {example}.") from None


async def raw_body(request: Request) -> bytes:
    """Return the body. Raises HTTPException if it is too large, or arrives too slowly."""
    length = request.headers.get("content-length", "")
    try:
        is_large = len(length) > 9 or int(length or 0) > MAX_BODY
        async with asyncio.timeout(BODY_TIMEOUT):
            body = None if is_large else await read_body(request.receive, MAX_BODY)  # type: ignore[arg-type]
    except TimeoutError:
        raise HTTPException(408, f"The body must arrive within {BODY_TIMEOUT:g} s.") from None
    if body is None:
        raise HTTPException(413, f"The body can have at most {MAX_BODY // 1024} KiB.")
    return body
