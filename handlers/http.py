"""The doors that are HTTP, on one port: the probes' pages and, with SLACK_MODE=http, Slack's signed calls."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from slack_bolt.adapter.asgi.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.signature import SignatureVerifier

from bot.models import UserError
from bot.probes import Probes

SLACK = "/slack/events"  # commands, clicks and forms alike
LARGEST = 1024 * 1024  # bytes of a call; Slack's largest, a form, has 250 kB
FINISH = 3  # seconds for requests under way at the end: Slack waits no longer for an answer

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Http:
    """An ASGI application: the pages and, once there is one, `slack`."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self.slack: SlackCalls | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/healthz":
            await _page(send, *await self._probes.health())
        elif path == "/readyz":
            await _page(send, *self._probes.ready())
        elif path == SLACK and self.slack:
            await self.slack(scope, receive, send)
        else:
            await _answer(send, 404, b"there is nothing here")


class SlackCalls:
    """Commands and clicks: Bolt's, if Slack signed them with the app's secret in the last five minutes."""

    def __init__(self, app: AsyncApp, signing_secret: str) -> None:
        self._bolt = AsyncSlackRequestHandler(app, path=SLACK)
        self._verifier = SignatureVerifier(signing_secret)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            await _answer(send, 413, b"too large")
        elif not self._signed(scope, body):
            await _answer(send, 401, b"not signed by Slack, or too long ago")
        else:
            await self._bolt(scope, _once(body), send)

    def _signed(self, scope: Message, body: bytes) -> bool:
        """Bolt looks, too, but only after parsing the body, and fails over what is no text."""
        try:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            return self._verifier.is_valid_request(body, headers)
        except (ValueError, TypeError):
            return False


@asynccontextmanager
async def served(app: Http, host: str, port: int) -> AsyncIterator[int]:
    """While the body runs; yields the port. Afterwards requests under way are answered.

    Raises UserError when it can't listen there.
    """
    listener = _listener(host, port)
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=FINISH,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM ends the whole process in its own order, this server last."""
        yield


def _listener(host: str, port: int) -> socket.socket:
    try:
        if host == "::" and socket.has_dualstack_ipv6():
            return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("" if host == "::" else host, port))
    except OSError as error:
        raise UserError(f"HTTP_HOST, HTTP_PORT: can't listen on {host} {port}: {error.strerror}.") from None


async def _body(receive: Receive) -> bytes | None:
    """None when it is too large, or never came whole."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if message["type"] != "http.request" or len(body) > LARGEST:
            return None
        if not message.get("more_body"):
            return body


def _once(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _page(send: Send, well: bool, page: dict[str, Any]) -> None:
    await _answer(send, 200 if well else 503, json.dumps(page).encode(), b"application/json")


async def _answer(send: Send, status: int, body: bytes, kind: bytes = b"text/plain") -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
