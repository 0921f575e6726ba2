"""Read a call's query and body by the classes that declare them, or say what is wrong: an unknown option, a
value, a large or slow body.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.core.errors import UserError
from bot.text.wording import listed
from handlers.api.models import RequestModel
from handlers.http_server import BODY_TIMEOUT, read_body

M = TypeVar("M", bound=RequestModel)
MAX_BODY = 64 * 1024  # bytes


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
