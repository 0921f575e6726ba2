"""The table of the API's calls: from it come the routes, the checks of requests, and the OpenAPI document."""

from dataclasses import dataclass

from pydantic import BaseModel

from bot.sweep.model.api_sweep import Sweep
from bot.sweep.questions.models import Comparison, History, Log, Plan, Trials
from handlers.api import models

PREFIX = "/api/v1"


@dataclass(frozen=True, kw_only=True)
class Call:
    name: str  # of the method of Api, and of the operation
    method: str
    path: str
    summary: str
    answer: type[BaseModel]
    other: str = ""  # another content type of the answer
    status: int = 200
    query: type[models.RequestModel] = models.RequestModel
    body: type[models.RequestModel] | None = None
    is_keyed: bool = False  # needs an Idempotency-Key

    @property
    def has_sweep(self) -> bool:
        return "{id}" in self.path


CALLS = (
    Call(
        name="launch",
        method="POST",
        path="/sweeps",
        summary="Start a sweep. It is stored when this is answered.",
        answer=models.Queued,
        status=202,
        body=models.CommandBody,
        is_keyed=True,
    ),
    Call(
        name="list",
        method="GET",
        path="/sweeps",
        summary="List your sweeps and all running ones.",
        answer=models.SweepPage,
        query=models.ListQuery,
    ),
    Call(
        name="show",
        method="GET",
        path="/sweeps/{id}",
        summary="Show a sweep, or wait for its end.",
        answer=Sweep,
        query=models.ShowQuery,
    ),
    Call(
        name="events",
        method="GET",
        path="/sweeps/{id}/events",
        summary="Follow a sweep by server-sent events: at once, and at each change until its end.",
        answer=Sweep,
        other="text/event-stream",
    ),
    Call(
        name="results",
        method="GET",
        path="/sweeps/{id}/results",
        summary="Return a sweep's trials.",
        answer=Trials,
        other="text/csv",
        query=models.ResultsQuery,
    ),
    Call(
        name="logs",
        method="GET",
        path="/sweeps/{id}/logs",
        summary="Return the log of a trial, or before the trials, of the build.",
        answer=Log,
        query=models.LogsQuery,
    ),
    Call(
        name="command",
        method="POST",
        path="/sweeps/{id}/commands",
        summary="Send a command that changes a sweep, such as cancel. Its effect appears in the sweep.",
        answer=models.Accepted,
        status=202,
        body=models.CommandBody,
        is_keyed=True,
    ),
    Call(
        name="plan",
        method="POST",
        path="/plans",
        summary="Return what a sweep would build, run, and cost, without starting it.",
        answer=Plan,
        body=models.CommandBody,
    ),
    Call(
        name="check_space",
        method="POST",
        path="/spaces/check",
        summary="Check the text of a space file.",
        answer=models.SpaceCheck,
        body=models.SpaceBody,
    ),
    Call(
        name="compare",
        method="GET",
        path="/comparison",
        summary="Compare ended sweeps.",
        answer=Comparison,
        query=models.ComparisonQuery,
    ),
    Call(
        name="history",
        method="GET",
        path="/history",
        summary="Return a space's ended sweeps, with their best values.",
        answer=History,
        query=models.HistoryQuery,
    ),
)
