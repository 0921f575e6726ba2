"""Report rows to Katib's database manager: two gRPC calls over HTTP/2 without TLS.

grpcio would take 35 MB of memory in each trial. The calls are small enough for one frame each, so they need
no flow control. A reply with a message means success: after an error, gRPC sends only trailers. Header fields
are sent as literals (RFC 7541, 6.2.2), and those of the reply aren't read.
kubeflow/katib: pkg/apis/manager/v1beta1/api.proto
"""

import socket
import struct
import time
from collections.abc import Sequence

from reader.series import Row

SERVICE = "/api.v1.beta1.DBManager/"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7  # types of frames
END_STREAM = ACK = 1
END_HEADERS = 4
MAX_FRAME = 16_384  # bytes; HTTP/2's default
CALL_SECONDS = 3.0


class ReportError(Exception):
    """The database manager didn't confirm a call."""


def replace_rows(address: str, trial: str, rows: Sequence[Row], seconds: float = CALL_SECONDS) -> None:
    """Delete what the database has of the trial, such as an evicted pod's rows, and report these.

    `address`: HOST:PORT. `seconds`: of each call. Raises ReportError and OSError.
    """
    name = _field(1, trial.encode())
    logs = b"".join(
        _field(1, _field(1, at.encode()) + _field(2, _field(1, metric.encode()) + _field(2, value.encode())))
        for at, metric, value in rows
    )
    _call(address, "DeleteObservationLog", name, seconds)
    _call(address, "ReportObservationLog", name + _field(2, logs), seconds)


def _field(number: int, content: bytes) -> bytes:
    """Return a protobuf field of bytes."""
    size, head = len(content), bytes([number << 3 | 2])
    while size > 0x7F:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + content


def _call(address: str, method: str, message: bytes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    host, _, port = address.rpartition(":")
    body = b"\0" + struct.pack(">I", len(message)) + message
    if len(body) > MAX_FRAME:
        raise ReportError(f"{method}: the message is too large")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as connection:
        opening = PREFACE + _frame(SETTINGS, 0, 0, b"")
        head = _frame(HEADERS, END_HEADERS, 1, _headers(SERVICE + method, address))
        connection.sendall(opening + head + _frame(DATA, END_STREAM, 1, body))
        reply = b""
        while True:
            kind, flags, stream, content = _next(connection, deadline)
            if kind in {SETTINGS, PING} and not flags & ACK:
                connection.sendall(_frame(kind, ACK, 0, content if kind == PING else b""))
            elif kind in {RST_STREAM, GOAWAY}:
                raise ReportError(f"{method}: Katib's database manager closed the call")
            elif stream == 1:
                reply = (reply + content if kind == DATA else reply)[:5]
                if flags & END_STREAM:
                    break
    if len(reply) < 5:
        raise ReportError(f"{method}: Katib's database manager rejected the call")


def _headers(path: str, authority: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    pairs = ((name.encode(), value.encode()[:126]) for name, value in fields.items())
    return b"".join(bytes([0, len(n)]) + n + bytes([len(v)]) + v for n, v in pairs)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _next(connection: socket.socket, deadline: float) -> tuple[int, int, int, bytes]:
    high, low, kind, flags, stream = struct.unpack(">BHBBI", _exactly(connection, 9, deadline))
    if (size := high << 16 | low) > MAX_FRAME:
        raise ReportError("Katib's database manager sent a frame that is too large")
    return kind, flags, stream & 0x7FFFFFFF, _exactly(connection, size, deadline)


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    found = b""
    while len(found) < count:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("Katib's database manager didn't answer in time")
        connection.settimeout(left)
        piece = connection.recv(count - len(found))
        if not piece:
            raise ReportError("Katib's database manager closed the connection")
        found += piece
    return found
