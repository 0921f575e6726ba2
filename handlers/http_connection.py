"""Limit what strangers can do with HTTP connections: everyone who reaches the port can open them.

Slack's requests arrive complete within milliseconds, one after the other. An ASGI application sees a request
only once its headers are complete, and no setting of uvicorn, Hypercorn, or Gunicorn closes an older
connection for a newer one: at their limits, those who opened theirs first keep all others out.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 500  # beyond it, the one that waits longest for a request's headers is closed
MAX_BODIES = 64  # incomplete ones; beyond it, the one that waits longest for its end is closed
MAX_HEADERS = 64 * 1024  # bytes of headers, or of trailers; checked after each read of up to 256 KiB
MAX_HEADER_LINES = 200  # of a request: a byte each would cost a callback each
MAX_CHUNKS = 128  # of a chunked body; Slack sends none, but a proxy can, in buffers of 4 KiB or more
MAX_PIECES = 1_000  # of a body in reads of one TCP segment each; MAX_BODY has 978 of the smallest ones
HEADERS_TIMEOUT = 10.0  # seconds from the start of a connection, or its last response, to a request's headers
MIN_READ = 2**16  # bytes of a response that a client takes in that time; else it is closed
RESPONSE_TIMEOUT = 30.0  # seconds after that until a response must have started, and must be read


class _TooManyError(Exception):
    """The request has too many parts, or came before the response to the last one was sent and read."""


class Connection(HttpToolsProtocol):
    """Limit connections, the parts of a request, and its time; uvicorn limits none.

    Pipelined requests close the connection: no client needs them, and the parser would go through thousands
    in one read, while nothing else runs.
    """

    def __init__(self, queues: "Queues", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._queues = queues
        self._unparsed = 0  # bytes since the last headers, or the last piece of a body
        self._chunks = self._pieces = 0  # of the request's body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            _close_oldest(self._queues.headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self.until.cancel()
        self._leave_queues()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > MAX_HEADERS:
            self.abort()
        elif not self.is_waiting and self.cycle.more_body and not self.transport.is_closing():
            self._queues.bodies[self] = None  # keeps its place
            if len(self._queues.bodies) > MAX_BODIES:
                _close_oldest(self._queues.bodies)

    def on_message_begin(self) -> None:
        _check(self.is_waiting and not self.flow.write_paused)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        _check(len(self.headers) < MAX_HEADER_LINES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = self._chunks = self._pieces = 0
        self._leave_queues()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._queues.bodies.pop(self, None)
        super().on_message_complete()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        _check(self._chunks <= MAX_CHUNKS)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._pieces += 1
        _check(self._pieces <= MAX_PIECES)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Respond only where no other response can be on its way."""
        if self.is_waiting and not self.flow.write_paused:
            super().send_400_response(msg)
        else:
            self.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.until.cancel()
        self._wait()

    @property
    def is_waiting(self) -> bool:
        """Return whether the connection waits for the headers of a request."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._leave_queues()
        self._queues.headers[self] = None
        self._unsent = self.transport.get_write_buffer_size()
        self.until = self.loop.call_later(HEADERS_TIMEOUT, self._give_up)

    def _give_up(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if self.is_waiting and unsent and self._unsent - unsent >= MIN_READ:
            self._unsent = unsent
            self.until = self.loop.call_later(HEADERS_TIMEOUT, self._give_up)
        elif self.is_waiting:
            self.abort()
        else:
            self.until = self.loop.call_later(RESPONSE_TIMEOUT, self._end_response)

    def _end_response(self) -> None:
        """Close, unless it is a stream of events whose client reads them."""
        if self.is_waiting or self.flow.write_paused or not self.cycle.response_started:
            self.abort()
        else:
            self.until = self.loop.call_later(RESPONSE_TIMEOUT, self._end_response)

    def _leave_queues(self) -> None:
        self._queues.headers.pop(self, None)
        self._queues.bodies.pop(self, None)

    def abort(self) -> None:
        """Close at once, and free at once what was read."""
        self._leave_queues()
        self.transport.abort()
        if self.cycle:
            self.cycle.body = bytearray()


@dataclass(frozen=True)
class Queues:
    """The open connections of a server that wait for the rest of headers, and of a body, the oldest first."""

    headers: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    bodies: OrderedDict[Connection, None] = field(default_factory=OrderedDict)


def _close_oldest(queue: OrderedDict[Connection, None]) -> None:
    if queue:
        next(iter(queue)).abort()


def _check(allowed: bool) -> None:
    """Raise _TooManyError, at which the parser stops."""
    if not allowed:
        raise _TooManyError
