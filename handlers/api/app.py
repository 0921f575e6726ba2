"""The API's paths, who can call them, and errors as problem details (RFC 9457)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus

from redis.exceptions import RedisError
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.core.errors import UserError
from bot.core.stored_format import NewerFormatError
from bot.platform.config.permissions import Visitor, entry_denial
from bot.platform.storage.api_tokens import ApiTokens, TokenOwner
from bot.sweep.results.requested import RequestedResults
from handlers.api.events import Streams
from handlers.api.results import ResultsReader
from handlers.api.sweeps import command, launch, listing, record_of, shown
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed_reply
from handlers.http_server import Application
from handlers.middleware import Guests

log = logging.getLogger(__name__)

CALLS_PER_MINUTE = 60  # of one token; an event stream is one call
CALLS_AT_ONCE = 8  # of one person: each can take one of the process's connections to Redis from Slack's users
UNAUTHORIZED = (
    "A valid token is required, as `Authorization: Bearer swb_...`. Get one with `/sweep token` in Slack."
)
NEWER = "The sweep was last changed by a newer version of Sweepbot than this one. Try again after the update."


@dataclass(frozen=True, kw_only=True)
class Caller:
    owner: TokenOwner
    token: str  # its hash

    def request_id(self, request: Request) -> str:
        """Return an id of this request, the same for each repetition. Raises HTTPException."""
        key = request.headers.get("idempotency-key", "")
        if not (0 < len(key) <= 200 and key.isascii() and key.isprintable()):
            detail = "Idempotency-Key must be a header of 1 to 200 printable ASCII characters."
            raise HTTPException(422, detail)
        about = f"{self.token} {request.url.path} {key}"
        return f"api/{sha256(about.encode()).hexdigest()[:32]}"


Endpoint = Callable[[Request, Caller], Awaitable[Response]]


class Api:
    """The endpoints. `home`: the app's own workspace."""

    def __init__(
        self,
        context: HandlerContext,
        tokens: ApiTokens,
        web: AsyncWebClient,
        home: Visitor,
        requested: RequestedResults,
        stop: asyncio.Event,
    ) -> None:
        self._context, self._tokens, self._web, self._home = context, tokens, web, home
        self._guests, self._results = Guests(), ResultsReader(context.store, requested)
        self._running = Counter[str]()  # calls by user
        self._streams = Streams(context.store, tokens, stop)

    def app(self) -> Application:
        """Return the ASGI application."""
        routes = [
            self._route("POST", "/sweeps", self._launch),
            self._route("GET", "/sweeps", self._list),
            self._route("GET", "/sweeps/{id}", self._show),
            self._route("GET", "/sweeps/{id}/events", self._events),
            self._route("GET", "/sweeps/{id}/results", self._read_results),
            self._route("POST", "/sweeps/{id}/commands", self._command),
        ]
        handlers = {
            HTTPException: _refused,
            UserError: _unreadable,
            RedisError: _unavailable,
            TimeoutError: _unavailable,
            NewerFormatError: _newer,
            Exception: _failed,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]
        app.router.redirect_slashes = False  # behind an ingress it would redirect to plain HTTP
        return app

    def _route(self, method: str, path: str, endpoint: Endpoint) -> Route:
        async def call(request: Request) -> Response:
            caller = await self._caller(request)
            user = caller.owner.user
            if self._running[user] >= CALLS_AT_ONCE:
                detail = f"A person can have {CALLS_AT_ONCE} calls in progress. Wait for one of yours."
                raise HTTPException(429, detail, {"Retry-After": "1"})
            self._running[user] += 1
            try:
                return await endpoint(request, caller)
            finally:
                self._running -= Counter([user])

        return Route(f"/api/v1{path}", call, methods=[method])

    async def _caller(self, request: Request) -> Caller:
        """Return whose token it is, before anything else is read. Raises HTTPException."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        async with asyncio.timeout(ACK_TIMEOUT):
            call = await self._tokens.call(token.strip()) if scheme.lower() == "bearer" else None
        if call is None:
            raise HTTPException(401, UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        if call.count > CALLS_PER_MINUTE:
            detail = (
                f"A token can make {CALLS_PER_MINUTE} calls a minute. Try again in {call.seconds_left} s."
            )
            raise HTTPException(429, detail, {"Retry-After": str(call.seconds_left)})
        owner = call.owner
        who = Visitor(user=owner.user, team=owner.team, enterprise=owner.enterprise)
        who = await self._guests.look_up(self._web, who, from_slack=False)
        if refusal := entry_denial(who, self._home, self._context.config):
            raise HTTPException(403, refusal)
        return Caller(owner=owner, token=call.token)

    async def _launch(self, request: Request, caller: Caller) -> Response:
        sweep = await launch(self._context, request, caller.owner, caller.request_id(request))
        return JSONResponse({"id": sweep.id, "state": sweep.phase.name.lower()}, 202)

    async def _list(self, request: Request, caller: Caller) -> Response:
        return JSONResponse(await listing(self._context, request.query_params, caller.owner.user))

    async def _show(self, request: Request, _caller: Caller) -> Response:
        return JSONResponse(shown(await record_of(self._context, request)))

    async def _events(self, request: Request, caller: Caller) -> Response:
        return self._streams.open(await record_of(self._context, request), caller.token)

    async def _read_results(self, request: Request, _caller: Caller) -> Response:
        return await self._results.respond(request.path_params["id"], request.query_params)

    async def _command(self, request: Request, caller: Caller) -> Response:
        sweep = await record_of(self._context, request)
        await command(self._context, request, sweep, caller.owner, caller.request_id(request))
        return JSONResponse({"id": sweep.id, "accepted": True}, 202)


async def _refused(_request: Request, error: HTTPException) -> Response:
    return _problem(error.status_code, error.detail, dict(error.headers or {}))


async def _unreadable(_request: Request, error: UserError) -> Response:
    return _problem(422, str(error))


async def _unavailable(_request: Request, error: Exception) -> Response:
    log.error("failed to answer a call of the API: %r", error)
    return _problem(503, unconfirmed_reply(error), {"Retry-After": "5"})


async def _newer(_request: Request, _error: NewerFormatError) -> Response:
    return _problem(503, NEWER, {"Retry-After": "60"})


async def _failed(_request: Request, _error: Exception) -> Response:
    return _problem(500, "Sweepbot failed to answer this. Its log has the cause.")


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Respond and close the connection, because the rest of the body can still arrive."""
    about = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    headers = {**(headers or {}), "Connection": "close"}
    return JSONResponse(about, status, headers, media_type="application/problem+json")
