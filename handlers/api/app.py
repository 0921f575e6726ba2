"""The API's paths, its errors as problem details (RFC 9457), how many calls a person can make at once, and
how long one waits for a worker.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID
from bot.core.stored_format import NewerFormatError
from bot.platform.storage.api_tokens import ApiTokens
from bot.sweep.launch.options import space_name
from bot.sweep.model.api_sweep import AnswerModel, shown
from bot.sweep.questions.store import UNKNOWN, About, Question, Questions
from bot.text.masking import Mask
from handlers.api import mcp, models
from handlers.api.callers import Caller, Callers
from handlers.api.calls import CALLS, PREFIX, Call, document
from handlers.api.events import Streams
from handlers.api.models import body_of, query_of, raw_body
from handlers.api.sweeps import (
    check_space,
    command,
    current,
    launch,
    listing,
    new_name,
    planned,
    record_of,
)
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed_reply
from handlers.http_server import Application

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 8  # of one person: each can take one of the process's connections to Redis from Slack's users
NEWER = "The sweep was last changed by a newer version of Sweepbot than this one. Try again after the update."
NO_CALL = f"The API has no such path. *Fix:* Check the URL; `GET {PREFIX}/openapi.json` describes all calls."
WORKER_TIMEOUT = 25.0  # seconds for a worker to answer; the clients of the API wait 30
FIRST_POLL, MAX_POLL = 0.1, 1.0  # seconds: hundreds of waiting callers must leave this process time for Slack
LATE = (
    f"No worker has answered within {WORKER_TIMEOUT:g} s: none is free, or the cluster or the git host "
    "doesn't answer. Try again in a minute."
)


class Api:
    """The calls of the table, each a method by its name."""

    def __init__(
        self,
        context: HandlerContext,
        callers: Callers,
        tokens: ApiTokens,
        questions: Questions,
        stop: asyncio.Event,
    ) -> None:
        self._context, self._callers, self._tokens = context, callers, tokens
        self._questions = questions
        self._running = Counter[str]()  # calls by user
        self._streams = Streams(context.store, context.mask, stop)
        self._app = self._made()
        self._agents = mcp.AgentDoor(self._app)

    @asynccontextmanager
    async def app(self) -> AsyncIterator[Application]:
        """Yield the ASGI application."""
        async with self._agents.open():
            yield self._app

    def _made(self) -> Starlette:
        described = JSONResponse(document())

        async def openapi(_request: Request) -> Response:
            return described

        errors = (HTTPException, UserError, RedisError, TimeoutError, NewerFormatError, Exception)
        routes = [Route(f"{PREFIX}/openapi.json", openapi), *map(self._route, CALLS)]
        routes.append(Route(mcp.PATH, self._answer_agent, methods=["POST"]))
        failed = partial(_failed, mask=self._context.mask)  # sentences quote what the caller sent
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(errors, failed))
        app.router.redirect_slashes = False  # behind an ingress it would redirect to plain HTTP
        return app

    async def _answer_agent(self, request: Request) -> Response:
        await self._callers.caller(request)
        return self._agents.response(await raw_body(request))

    def _route(self, call: Call) -> Route:
        endpoint = getattr(self, call.name)

        async def respond(request: Request) -> Response:
            caller = await self._callers.caller(request)
            with self._counted(caller.user):
                key = {"key": caller.request_id(request)} if call.is_keyed else {}
                body = await body_of(call.body, request) if call.body else None
                of_it = {"sweep_id": request.path_params["id"]} if call.has_sweep else {}
                asked = body or query_of(call.query, request.query_params)
                answer = await endpoint(caller, asked, **key, **of_it)
            if isinstance(answer, AnswerModel):
                answer = answer.model_dump_json()
            if isinstance(answer, Response):
                return answer
            return Response(answer, call.status, media_type="application/json")

        return Route(f"{PREFIX}{call.path}", respond, methods=[call.method])

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        if self._running[user] >= CALLS_AT_ONCE:
            detail = f"A person can have {CALLS_AT_ONCE} calls in progress. Wait for one of yours."
            raise HTTPException(429, detail, {"Retry-After": "1"})
        self._running[user] += 1
        try:
            yield
        finally:
            self._running -= Counter([user])

    async def launch(self, caller: Caller, body: models.CommandBody, key: str) -> AnswerModel:
        sweep = await launch(self._context, self._tokens, caller, body.command, key)
        return models.Queued(id=sweep.id, state=sweep.phase.name.lower())

    async def list(self, caller: Caller, query: models.ListQuery) -> AnswerModel:
        return await listing(self._context, query, caller.user)

    async def show(self, caller: Caller, query: models.ShowQuery, sweep_id: str) -> AnswerModel:
        sweep = await record_of(self._context, sweep_id)
        if query.wait:
            sweep = await self._streams.waited(sweep, caller, query.wait)
            sweep = await record_of(self._context, sweep.id) if new_name(sweep) else sweep
        return shown(sweep, self._context.mask)

    async def events(self, caller: Caller, _query: models.RequestModel, sweep_id: str) -> Response:
        return self._streams.open(await record_of(self._context, sweep_id), caller)

    async def results(self, caller: Caller, query: models.ResultsQuery, sweep_id: str) -> Response:
        found = await self._of_sweep(caller, About.RESULTS, sweep_id, query.format)
        return Response(found, media_type="text/csv" if query.format == "csv" else "application/json")

    async def logs(self, caller: Caller, query: models.LogsQuery, sweep_id: str) -> bytes:
        return await self._of_sweep(caller, About.LOGS, sweep_id, query.trial.lower())

    async def command(self, caller: Caller, body: models.CommandBody, key: str, sweep_id: str) -> AnswerModel:
        sweep = await record_of(self._context, sweep_id)
        await command(self._context, self._tokens, caller, body.command, sweep, key)
        return models.Accepted(id=sweep.id)

    async def plan(self, caller: Caller, body: models.CommandBody) -> bytes:
        return await answered(self._questions, planned(self._context, caller, body.command), caller)

    async def check_space(self, _caller: Caller, body: models.SpaceBody) -> AnswerModel:
        return await check_space(body.space, body.options, self._context.config, self._context.mask)

    async def compare(self, caller: Caller, query: models.ComparisonQuery) -> bytes:
        names = [*dict.fromkeys(each.strip() for each in query.sweeps.split(","))]
        if not 2 <= len(names) <= models.MAX_COMPARED or not all(map(SWEEP_ID.fullmatch, names)):
            raise UserError(f"sweeps= must be 2 to {models.MAX_COMPARED} names, with commas between.")
        question = Question(about=About.COMPARISON, subject=" ".join(names))
        return await answered(self._questions, question, caller)

    async def history(self, caller: Caller, query: models.HistoryQuery) -> bytes:
        question = Question(about=About.HISTORY, subject=space_name("space", query.space))
        return await answered(self._questions, question, caller)

    async def _of_sweep(self, caller: Caller, about: About, sweep_id: str, detail: str) -> bytes:
        """Return what a worker knows of a sweep, also if only its results remain. Raises HTTPException."""
        if not SWEEP_ID.fullmatch(sweep_id):
            raise HTTPException(404, UNKNOWN)
        async with asyncio.timeout(ACK_TIMEOUT):
            sweep = await current(self._context.store, sweep_id)
        question = Question(about=about, subject=sweep.id if sweep else sweep_id, detail=detail)
        return await answered(self._questions, question, caller)


async def answered(questions: Questions, question: Question, caller: Caller) -> bytes:
    """Wait for a worker's answer, or until the client is gone: this process has no access to git and the
    cluster.

    Raises HTTPException, RedisError, TimeoutError.
    """
    async with asyncio.timeout(ACK_TIMEOUT):
        found = await questions.answer(question.id)
        if found is None:
            await questions.ask(question)
    with suppress(TimeoutError):
        async with asyncio.timeout(WORKER_TIMEOUT):
            pause = FIRST_POLL
            while found is None and not await caller.is_gone():
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, MAX_POLL)
                found = await questions.answer(question.id)
    if found is None:
        raise HTTPException(503, LATE, {"Retry-After": "60"})
    if found.status != 200:
        headers = {"Retry-After": "60"} if found.status == 503 else None
        raise HTTPException(found.status, found.body.decode(), headers)
    return found.body


async def _failed(request: Request, error: Exception, mask: Mask) -> Response:
    match error:
        case HTTPException(status_code=404) if "endpoint" not in request.scope:
            return _problem(404, NO_CALL)
        case HTTPException(status_code=405):  # Starlette names the methods of one of the path's routes
            routes = [each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE]
            allowed = ", ".join(sorted({method for each in routes for method in each.methods or ()}))
            return _problem(
                405, f"{request.method} isn't for this path. Available: {allowed}.", {"Allow": allowed}
            )
        case HTTPException():
            return _problem(error.status_code, mask(error.detail), dict(error.headers or {}))
        case UserError():
            return _problem(422, mask(str(error)))
        case NewerFormatError():
            return _problem(503, NEWER, {"Retry-After": "60"})
        case RedisError() | TimeoutError():
            log.error("failed to answer a call of the API: %r", error)
            return _problem(503, unconfirmed_reply(error), {"Retry-After": "5"})
        case _:
            return _problem(500, "Sweepbot failed to answer this. Its log has the cause.")


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Respond and close the connection, because the rest of the body can still arrive."""
    about = models.Problem(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail)
    headers = {**(headers or {}), "Connection": "close"}
    return Response(about.model_dump_json(), status, headers, media_type="application/problem+json")
