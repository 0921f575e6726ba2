"""Describe the API by OpenAPI 3.1, from the table of calls and the classes that check requests."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bot import __version__
from handlers.api.calls import CALLS, PREFIX, Call
from handlers.api.models import Problem

Json = dict[str, Any]
JSON, PROBLEM = "application/json", "application/problem+json"
REF = "#/components/schemas/{model}"
KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "The same key with the same token is the same request for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"},
}
SWEEP: Json = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The sweep's full name.",
    "schema": {"type": "string", "examples": ["lr-brave-otter"]},
}


def document() -> Json:
    """Return the OpenAPI document."""
    paths: dict[str, Json] = {}
    for call in CALLS:
        paths.setdefault(f"{PREFIX}{call.path}", {})[call.method.lower()] = _operation(call)
    about = "Start, follow, and change sweeps, with the permissions that the person has in Slack."
    problem = {"description": "The error.", "content": {PROBLEM: {"schema": _ref(Problem)}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sweepbot", "version": __version__, "description": about},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": {"Problem": problem},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call) -> Json:
    found: Json = {
        "operationId": call.name,
        "summary": call.summary,
        "parameters": [*_parameters(call)],
        "responses": {
            str(call.status): {
                "description": HTTPStatus(call.status).phrase,
                "content": {JSON: {"schema": _ref(call.answer)}}
                | ({call.other: {"schema": {"type": "string"}}} if call.other else {}),
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if call.body:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(call.body)}}}
    return found


def _parameters(call: Call) -> Iterator[Json]:
    if call.has_sweep:
        yield SWEEP
    if call.is_keyed:
        yield KEY
    schema = call.query.model_json_schema()
    for name, each in schema.get("properties", {}).items():
        shown = {key: value for key, value in each.items() if key not in {"title", "description"}}
        meaning = {"description": each["description"]} if "description" in each else {}
        required = name in schema.get("required", ())
        yield {"name": name, "in": "query", "required": required, **meaning, "schema": shown}


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=model.__name__)}


def _schemas() -> Json:
    inputs = {call.body: None for call in CALLS if call.body}
    answers = {call.answer: None for call in CALLS} | {Problem: None}
    wanted: list[Any] = [(each, "validation") for each in inputs]
    wanted += [(each, "serialization") for each in answers]
    _, found = models_json_schema(wanted, ref_template=REF)
    schemas: Json = found["$defs"]
    return dict(sorted(schemas.items()))
