"""The table of the API's calls: from it, and the classes that check requests, come the routes, the checks,
and the OpenAPI 3.1 document.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bot import __version__
from bot.sweep.model.api_sweep import Sweep
from bot.sweep.questions.models import Comparison, History, Log, Plan, Trials
from handlers.api import models

PREFIX = "/api/v1"
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


@dataclass(frozen=True)
class Call:
    name: str  # of the method of Api, and of the operation
    path: str
    summary: str
    _: KW_ONLY
    answer: type[BaseModel]
    other: str = ""  # another content type of the answer
    query: type[models.RequestModel] = models.RequestModel
    body: type[models.RequestModel] | None = None
    is_keyed: bool = False  # changes a sweep later: needs an Idempotency-Key

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"

    @property
    def status(self) -> int:
        return 202 if self.is_keyed else 200

    @property
    def has_sweep(self) -> bool:
        return "{id}" in self.path


CALLS = (
    Call(
        "launch",
        "/sweeps",
        "Start a sweep. It is stored when this is answered.",
        answer=models.Queued,
        body=models.CommandBody,
        is_keyed=True,
    ),
    Call(
        "list",
        "/sweeps",
        "List your sweeps and all running ones.",
        answer=models.SweepPage,
        query=models.ListQuery,
    ),
    Call("show", "/sweeps/{id}", "Show a sweep, or wait for its end.", answer=Sweep, query=models.ShowQuery),
    Call(
        "events",
        "/sweeps/{id}/events",
        "Follow a sweep by server-sent events: at once, and at each change until its end.",
        answer=Sweep,
        other="text/event-stream",
    ),
    Call(
        "results",
        "/sweeps/{id}/results",
        "Return a sweep's trials.",
        answer=Trials,
        other="text/csv",
        query=models.ResultsQuery,
    ),
    Call(
        "logs",
        "/sweeps/{id}/logs",
        "Return the log of a trial, or before the trials, of the build.",
        answer=Log,
        query=models.LogsQuery,
    ),
    Call(
        "command",
        "/sweeps/{id}/commands",
        "Send a command that changes a sweep, such as cancel. Its effect appears in the sweep.",
        answer=models.Accepted,
        body=models.CommandBody,
        is_keyed=True,
    ),
    Call(
        "plan",
        "/plans",
        "Return what a sweep would build, run, and cost, without starting it.",
        answer=Plan,
        body=models.CommandBody,
    ),
    Call(
        "check_space",
        "/spaces/check",
        "Check the text of a space file.",
        answer=models.SpaceCheck,
        body=models.SpaceBody,
    ),
    Call("compare", "/comparison", "Compare ended sweeps.", answer=Comparison, query=models.ComparisonQuery),
    Call(
        "history",
        "/history",
        "Return a space's ended sweeps, with their best values.",
        answer=History,
        query=models.HistoryQuery,
    ),
)


def document() -> Json:
    """Return the OpenAPI document."""
    paths: dict[str, Json] = {}
    for call in CALLS:
        paths.setdefault(f"{PREFIX}{call.path}", {})[call.method.lower()] = _operation(call)
    about = "Start, follow, and change sweeps, with the permissions that the person has in Slack."
    problem = {"description": "The error.", "content": {PROBLEM: {"schema": _ref(models.Problem)}}}
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
    answers = {call.answer: None for call in CALLS} | {models.Problem: None}
    wanted: list[Any] = [(each, "validation") for each in inputs]
    wanted += [(each, "serialization") for each in answers]
    _, found = models_json_schema(wanted, ref_template=REF)
    schemas: Json = found["$defs"]
    return dict(sorted(schemas.items()))
