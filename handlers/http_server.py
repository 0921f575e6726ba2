"""The doors that are HTTP, on one port: the probes' pages and, with SLACK_MODE=http, Slack's signed calls."""

import asyncio
import json
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import time
from typing import Any

import uvicorn
from slack_bolt.adapter.asgi.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.signature import SignatureVerifier
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.core.errors import UserError
from bot.runtime.probes import Probes

SLACK = "/slack/events"  # commands, clicks and forms alike
MAX_BODY = 512 * 1024  # bytes of a call; Slack's largest, a form, has 250 kB
# What strangers can leave unfinished. Slack's calls come whole within milliseconds: the oldest makes room.
MAX_BODIES = 64
MAX_CONNECTIONS = 500
BODY_TIMEOUT = 5.0  # seconds from a call's headers to its end
HEADERS_TIMEOUT = 10.0  # seconds from a connection's beginning, or its last answer, to a call's headers
SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
MAX_SIGNATURE_AGE = 5 * 60  # seconds, of Slack's own advice
SHUTDOWN_TIMEOUT = 3  # seconds for requests under way at the end: Slack waits no longer for an answer

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
        self._reading: deque[asyncio.Timeout] = deque()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """What can't be Slack's by its headers is refused before its body is read."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not _plausible(headers):
            await _refuse(send, 401, b"not signed by Slack, or too long ago")
        elif len(length := headers.get("content-length", "")) > 9 or int(length or 0) > MAX_BODY:
            await _refuse(send, 413, b"too large")
        else:
            await self._plausible(scope, headers, receive, send)

    async def _plausible(self, scope: Message, headers: dict[str, str], receive: Receive, send: Send) -> None:
        try:
            body = await self._read(receive)
        except TimeoutError:
            await _refuse(send, 408, b"too slow")
        else:
            if body is None:
                await _refuse(send, 413, b"too large")
            elif not self._signed(headers, body):
                await _refuse(send, 401, b"not signed by Slack, or too long ago")
            else:
                await self._bolt(scope, _once(body), send)

    def _signed(self, headers: dict[str, str], body: bytes) -> bool:
        """Bolt looks, too, but only after parsing the body."""
        try:
            return self._verifier.is_valid_request(body, headers)
        except UnicodeDecodeError:
            return False

    async def _read(self, receive: Receive) -> bytes | None:
        """None when it is too large, or never came whole. Raises TimeoutError, also to make room."""
        async with asyncio.timeout(BODY_TIMEOUT) as limit:
            self._reading.append(limit)
            if len(self._reading) > MAX_BODIES and not self._reading[0].expired():
                self._reading[0].reschedule(0)
            try:
                return await _body(receive)
            finally:
                self._reading.remove(limit)


def _plausible(headers: dict[str, str]) -> bool:
    """Whether Slack may have sent these, by their form and time."""
    signature, at = headers.get("x-slack-signature", ""), headers.get("x-slack-request-timestamp", "")
    recent = re.fullmatch(r"[0-9]{1,12}", at) and abs(time() - int(at)) <= MAX_SIGNATURE_AGE
    return bool(recent and SIGNATURE.fullmatch(signature))


@asynccontextmanager
async def served(app: Http, host: str, port: int) -> AsyncIterator[int]:
    """While the body runs; yields the port. BackgroundTasks requests under way are answered.

    Raises UserError when it can't listen there.
    """
    listener = _listener(host, port)
    server = _Server(
        uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


class _Connection(H11Protocol):
    """uvicorn waits for a call's headers without end, on as many connections as there are."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        waiting = [each for each in self.connections if isinstance(each, _Connection) and each.waits]
        if len(self.connections) > MAX_CONNECTIONS and waiting:
            min(waiting, key=lambda each: each.until.when()).transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.until.cancel()
        self._wait()

    @property
    def waits(self) -> bool:
        """For the headers of a call."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.until = self.loop.call_later(HEADERS_TIMEOUT, self._give_up)

    def _give_up(self) -> None:
        if self.waits:
            self.transport.abort()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM ends the whole process in its own order, this server last."""
        yield


def _listener(host: str, port: int) -> socket.socket:
    try:
        if host == "::" and socket.has_dualstack_ipv6():
            listener = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            listener = socket.create_server(("" if host == "::" else host, port))
    except OSError as error:
        raise UserError(f"HTTP_HOST, HTTP_PORT: can't listen on {host} {port}: {error.strerror}.") from None
    # Accepted connections inherit it. uvicorn sends headers and body separately: without it, the body waits
    # for the client's delayed acknowledgment, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _body(receive: Receive) -> bytes | None:
    """None when it is too large, or never came whole."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > MAX_BODY:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _once(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _page(send: Send, well: bool, page: dict[str, Any]) -> None:
    await _answer(send, 200 if well else 503, json.dumps(page).encode(), b"application/json")


async def _refuse(send: Send, status: int, body: bytes) -> None:
    """And close the connection, for the rest of the body may still come."""
    await _answer(send, status, body, close=True)


async def _answer(
    send: Send, status: int, body: bytes, kind: bytes = b"text/plain", *, close: bool = False
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
