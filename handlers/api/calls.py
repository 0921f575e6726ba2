"""The table of the API's calls: from it come the routes, the checks of requests, and the OpenAPI document."""

from dataclasses import KW_ONLY, dataclass

from pydantic import BaseModel

from bot.sweep.model.api_sweep import Sweep
from bot.sweep.questions.models import Comparison, History, Log, Plan, Trials
from handlers.api import models

PREFIX = "/api/v1"


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
