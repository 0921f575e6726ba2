"""Katib's database manager: a gRPC server with the two calls that the reader in trials' pods makes.

HTTP/2 for a client that sends each call as one frame of headers, as literals, and some frames of data.
"""

import asyncio
import struct
from collections.abc import Iterator
from datetime import datetime

from local.katib.metrics import MetricsStore, Reported

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4  # types of frames
END_STREAM, ACK, END_HEADERS = 1, 1, 4
OK = b"\x88" + b"\0\x0ccontent-type\x10application/grpc"  # :status 200
DONE, UNAVAILABLE = b"\0\x0bgrpc-status\x010", b"\0\x0bgrpc-status\x0214"


class DbManager:
    """`away`: whether calls fail."""

    def __init__(self, metrics: MetricsStore) -> None:
        self._metrics, self.away, self.address = metrics, False, ""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(len(PREFACE)) == PREFACE:
                writer.write(_frame(SETTINGS, 0, 0, b""))
                await self._calls(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = body = b""
        while True:
            high, low, kind, flags, stream = struct.unpack(">BHBBI", await reader.readexactly(9))
            content = await reader.readexactly(high << 16 | low)
            if kind == SETTINGS and not flags & ACK:
                writer.write(_frame(SETTINGS, ACK, 0, b""))
            elif kind == HEADERS:
                path, body = content, b""
            elif kind == DATA:
                body += content
            if kind in {HEADERS, DATA} and flags & END_STREAM:
                writer.write(self._answer(path, body[5:], stream))
                await writer.drain()

    def _answer(self, headers: bytes, message: bytes, stream: int) -> bytes:
        fields = dict(_fields(message))
        trial = fields.get(1, b"").decode()
        if self.away or not trial:
            return _frame(HEADERS, END_STREAM | END_HEADERS, stream, OK + UNAVAILABLE)
        if b"/api.v1.beta1.DBManager/DeleteObservationLog" in headers:
            self._metrics.forget(trial)
        else:
            self._metrics.report(trial, list(_rows(fields.get(2, b""))))
        reply = _frame(HEADERS, END_HEADERS, stream, OK) + _frame(DATA, 0, stream, b"\0\0\0\0\0")
        return reply + _frame(HEADERS, END_STREAM | END_HEADERS, stream, DONE)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _rows(logs: bytes) -> Iterator[Reported]:
    """Yield the rows of an ObservationLog."""
    for _, row in _fields(logs):
        fields = dict(_fields(row))
        metric = dict(_fields(fields[2]))
        at = datetime.fromisoformat(fields[1].decode()).timestamp()
        yield Reported(metric[2].decode(), at, metric[1].decode())


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a protobuf message that has only bytes and messages."""
    at = 0
    while at < len(message):
        number, size, shift = message[at] >> 3, 0, 0
        at += 1
        while True:
            size, more = size | (message[at] & 0x7F) << shift, message[at] & 0x80
            at, shift = at + 1, shift + 7
            if not more:
                break
        yield number, message[at : at + size]
        at += size
