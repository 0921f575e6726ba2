"""Serve HTTP on one port: the probes, /metrics, and with SLACK_MODE=http, Slack's requests, whose signature,
age, and size are checked.
"""

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from time import time
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.exceptions import RedisError
from slack_bolt.adapter.asgi.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.signature import SignatureVerifier

from bot.core.errors import UserError
from bot.core.metrics import REGISTRY
from bot.platform.runtime.probes import Probes
from handlers.http_connection import Connection, Queues

log = logging.getLogger(__name__)

REFRESH_TIMEOUT = 3.0  # seconds; Prometheus waits 10 by default
SLACK_PATH = "/slack/events"  # for commands, clicks, and forms
MAX_BODY = 512 * 1024  # bytes of a request; Slack's largest, a form, has 250 kB
BODY_TIMEOUT = 5.0  # seconds from a request's headers to its end
SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
UNSIGNED = b"not signed by Slack, or too long ago"
MAX_SIGNATURE_AGE = 5 * 60  # seconds, as Slack recommends
ACCEPTED_AT_ONCE = 32  # connections in one turn of the event loop, whatever else waits
MAX_BACKLOG = 4096  # connections that the kernel keeps until then; also Linux's default maximum
SOCKET_BUFFER = (
    32 * 1024
)  # bytes, of which the kernel allocates twice as many, for each direction of a connection
SHUTDOWN_TIMEOUT = 3  # seconds for requests in progress at shutdown; Slack waits no longer

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Http:
    """An ASGI application: the probes' pages and metrics, and `slack` once it is set.

    `refresh` updates the metrics that are read from Redis, at each request of Prometheus.
    """

    def __init__(self, probes: Probes, refresh: Callable[[], Awaitable[None]]) -> None:
        self._probes, self._refresh = probes, refresh
        self._scrape: asyncio.Task[bytes] | None = None
        self.slack: SlackCalls | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/healthz":
            await _page(send, *await self._probes.health())
        elif path == "/readyz":
            await _page(send, *self._probes.ready())
        elif path == "/metrics":
            await _respond(send, 200, await self._metrics(), CONTENT_TYPE_LATEST.encode())
        elif path == SLACK_PATH and self.slack:
            await self.slack(scope, receive, send)
        else:
            await _respond(send, 404, b"not found")

    async def _metrics(self) -> bytes:
        """Return all metrics. Requests at the same time share one answer: anyone in the cluster can ask."""
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.create_task(self._refreshed())
        return await asyncio.shield(self._scrape)

    async def _refreshed(self) -> bytes:
        """Without Redis, return the metrics of this process, with sweepbot_redis_up 0."""
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT):
                await self._refresh()
        except (RedisError, TimeoutError) as error:
            log.debug("metrics of the queue and the sweeps are old: %s", error)
        return generate_latest(REGISTRY)


class SlackCalls:
    """Pass requests to Bolt that Slack signed with the app's secret within the last five minutes."""

    def __init__(self, app: AsyncApp, signing_secret: str) -> None:
        self._bolt = AsyncSlackRequestHandler(app, path=SLACK_PATH)
        self._verifier = SignatureVerifier(signing_secret)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Reject a request by its headers, before its body is read, if it can't be from Slack."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not _can_be_slack(headers):
            await _reject(send, 401, UNSIGNED)
        elif len(length := headers.get("content-length", "")) > 9 or int(length or 0) > MAX_BODY:
            await _reject(send, 413, b"too large")
        elif isinstance(body := await self._signed_body(headers, receive), bytes):
            await self._bolt(scope, _replay(body), send)
        else:
            await _reject(send, *body)

    async def _signed_body(self, headers: dict[str, str], receive: Receive) -> bytes | tuple[int, bytes]:
        """Return the body, or why it is rejected. Bolt checks signatures only after it parsed the body."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                body = await read_body(receive, MAX_BODY)
            if body is None:
                return 413, b"too large"
            return body if self._verifier.is_valid_request(body, headers) else (401, UNSIGNED)
        except TimeoutError:
            return 408, b"too slow"
        except UnicodeDecodeError:
            return 401, UNSIGNED


def _can_be_slack(headers: dict[str, str]) -> bool:
    """Return whether the signature's form and time can be Slack's."""
    signature, at = headers.get("x-slack-signature", ""), headers.get("x-slack-request-timestamp", "")
    recent = re.fullmatch(r"[0-9]{1,12}", at) and abs(time() - int(at)) <= MAX_SIGNATURE_AGE
    return bool(recent and SIGNATURE.fullmatch(signature))


@asynccontextmanager
async def served(app: Application, host: str, port: int, setting: str = "HTTP_PORT") -> AsyncIterator[int]:
    """Serve while the body runs; yield the port. Requests in progress at the end are still answered.

    `setting`: of the port. Raises UserError if the address isn't available.
    """
    listener = _listen(host, port, setting)
    server = _Server(
        uvicorn.Config(
            app,
            http=partial(Connection, Queues()),  # type: ignore[arg-type]  # called only
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # uvicorn warns of each bad request, and anyone can send thousands per second
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.end()
        await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """Renew the date of responses once a second; uvicorn's loop looks ten times a second for its end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the kernel keep more connections than asyncio accepts at once; it has one number for both."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(MAX_BACKLOG)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to bot.app, which stops this server last."""
        yield


def _listen(host: str, port: int, setting: str) -> socket.socket:
    try:
        if host == "::" and socket.has_dualstack_ipv6():
            listener = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            listener = socket.create_server(("" if host == "::" else host, port))
    except OSError as error:
        raise UserError(f"HTTP_HOST, {setting}: can't listen on {host} {port}: {error.strerror}.") from None
    # Accepted connections inherit these options. uvicorn sends headers and body separately: without it, the
    # body waits 40 ms for the client's delayed acknowledgment.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        listener.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
    return listener


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body; None if it is larger than `most` bytes, or incomplete."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > most:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _page(send: Send, well: bool, page: dict[str, Any]) -> None:
    await _respond(send, 200 if well else 503, json.dumps(page).encode(), b"application/json")


async def _reject(send: Send, status: int, body: bytes) -> None:
    """Respond and close the connection, because the rest of the body can still arrive."""
    await _respond(send, status, body, close=True)


async def _respond(
    send: Send, status: int, body: bytes, kind: bytes = b"text/plain", *, close: bool = False
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
