"""Connections that cost more than they should: unfinished, endless, idle, or with many small parts."""

import asyncio
import socket
import time
from contextlib import suppress

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from handlers import http_connection
from handlers.http_connection import MAX_CHUNKS, MAX_HEADERS
from handlers.http_server import MAX_BODY
from tests.handlers.pages import page
from tests.handlers.signing import COMMAND, call, signed


async def started(http, *headers, body=b"half"):
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    lines = ["POST /slack/events HTTP/1.1", "Host: x", "Content-Length: 9999", *headers]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    return reader, writer


def is_signed():
    return [f"{key}: {value}" for key, value in signed(b"").items()]


@pytest.mark.parametrize("how", [{"age": 360}, {"version": "v1"}, None], ids=str)
async def test_request_that_slack_cannot_have_sent_is_rejected_unread(listening, http, how):
    headers = [] if how is None else [f"{key}: {value}" for key, value in signed(b"", **how).items()]
    reader, writer = await started(http, *headers)
    answer = await reader.read()  # to the connection's end
    assert answer.startswith(b"HTTP/1.1 401")
    writer.close()


async def test_oversized_request_is_rejected_unread(listening, http):
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    lines = ["POST /slack/events HTTP/1.1", "Host: x", f"Content-Length: {MAX_BODY + 1}", *is_signed()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    assert (await reader.read()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_burst_of_unfinished_requests_leaves_only_the_newest_open(listening, http, monkeypatch):
    """And complete ones don't count."""
    monkeypatch.setattr("handlers.http_connection.MAX_BODIES", 3)
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 600)
    monkeypatch.setattr("handlers.http_server.BODY_TIMEOUT", 600)
    calls = await asyncio.gather(*(started(http, *is_signed()) for _ in range(40)))
    await closed(calls, 37)
    for _ in range(5):
        assert (await call(listening, COMMAND))[0] == 200
    assert sum(reader.at_eof() or reader.exception() is not None for reader, _ in calls) == 37
    for _, writer in calls:
        writer.close()


async def closed(calls, number):
    """Return when the server has closed this many. Each is read without pause: none of them is answered."""
    reads = [asyncio.create_task(reader.read()) for reader, _ in calls]
    async with asyncio.timeout(60):
        while sum(read.done() for read in reads) < number:
            open_ones = [read for read in reads if not read.done()]
            await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
    for read in reads:
        read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)


async def test_request_body_has_a_deadline(listening, http, monkeypatch):
    monkeypatch.setattr("handlers.http_server.BODY_TIMEOUT", 0.05)
    reader, writer = await started(http, *is_signed())
    assert (await reader.read()).startswith(b"HTTP/1.1 408")
    writer.close()


@pytest.mark.parametrize("earlier", [0, 1])
async def test_request_headers_have_a_deadline(http, monkeypatch, earlier):
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    for _ in range(earlier):
        await page_on(reader, writer)
    writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def page_on(reader, writer):
    """Get /healthz on an open connection."""
    writer.write(PAGE + b"\r\n")
    headers = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert headers.startswith(b"http/1.1 200")
    await reader.readexactly(int(headers.partition(b"content-length: ")[2].split()[0]))


PAGE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a header": PAGE + b"X: ",
    "the path": b"GET /",
    "a trailer": PAGE + CHUNKED + b"0\r\nX: ",
}


@pytest.mark.parametrize("start", ENDLESS.values(), ids=ENDLESS)
async def test_connection_with_endless_headers_is_closed(http, monkeypatch, start):
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 600)
    _, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(start)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await flood(writer)
    writer.close()
    assert (await page(http, "/healthz"))[0] == 200


async def flood(writer):
    for _ in range(300):
        writer.write(b"x" * MAX_HEADERS)
        await writer.drain()


async def test_connection_of_a_client_that_reads_no_response_is_closed(http, monkeypatch):
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 0.1)
    monkeypatch.setattr("handlers.http_connection.RESPONSE_TIMEOUT", 0.1, raising=False)
    lost, closed = http_connection.Connection.connection_lost, asyncio.Event()

    def noted(connection, error):
        lost(connection, error)
        closed.set()

    async def large():
        return b"x" * 2**26  # more than all buffers

    monkeypatch.setattr(http_connection.Connection, "connection_lost", noted)
    monkeypatch.setattr(http, "_metrics", large)
    unread = socket.create_connection(("127.0.0.1", http.port))
    unread.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        await closed.wait()
    unread.close()


async def test_connection_of_a_client_that_reads_slowly_stays_open(http, monkeypatch):
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 0.5)
    monkeypatch.setattr("handlers.http_connection.MIN_READ", 1)
    size = 2**23

    async def large():
        return b"x" * size

    monkeypatch.setattr(http, "_metrics", large)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=2**16)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(16):
        await reader.readexactly(size // 16)
        await asyncio.sleep(0.05)
    writer.close()


UNSIGNED = f"X-Slack-Signature: v0={'0' * 64}\r\nX-Slack-Request-Timestamp: ".encode()
COSTLY = {
    "pipelined requests": lambda: PAGE + b"\r\n" + PAGE + b"\r\n",
    "header lines": lambda: PAGE + b"X:\r\n" * 300 + b"\r\n",
    "chunks": lambda: (
        b"POST /slack/events HTTP/1.1\r\nHost: x\r\n%s%d\r\n" % (UNSIGNED, time.time())
        + CHUNKED
        + b"1\r\nx\r\n" * 3_000
        + b"0\r\n\r\n"
    ),
}


@pytest.mark.parametrize("make", COSTLY.values(), ids=COSTLY)
async def test_connection_with_many_small_parts_is_closed(listening, http, make):
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(make())
    with suppress(ConnectionResetError):
        answer = await reader.read()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await page(http, "/healthz"))[0] == 200


@pytest.mark.parametrize(("chunks", "passed"), [(MAX_CHUNKS, True), (MAX_CHUNKS + 1, False)])
async def test_chunked_body_of_a_proxy_is_read_and_one_in_more_chunks_is_not(http, chunks, passed):
    """The last chunk is the empty one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(PAGE + CHUNKED + b"1\r\nx\r\n" * (chunks - 1) + b"0\r\n\r\n")
    answer = b""
    with suppress(ConnectionResetError, asyncio.IncompleteReadError):
        answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") is passed
    writer.close()


async def test_parser_stops_at_the_chunk_beyond_the_limit(http, monkeypatch):
    counted = []
    on_body = http_connection.Connection.on_body
    monkeypatch.setattr(
        http_connection.Connection, "on_body", lambda self, body: counted.append(body) or on_body(self, body)
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(PAGE + CHUNKED + b"1\r\nx\r\n" * 10_000)
    with suppress(ConnectionResetError):
        await reader.read()
    assert len(counted) == MAX_CHUNKS
    writer.close()


async def test_body_in_many_pieces_is_closed_at_the_limit(listening, http, monkeypatch):
    monkeypatch.setattr("handlers.http_connection.MAX_PIECES", 3)
    reader, writer = await started(http, *is_signed(), body=b"x")
    with suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(9):
            await asyncio.sleep(0.01)  # a read of its own
            writer.write(b"x")
            await writer.drain()
        assert await reader.read() == b""
    writer.close()


async def test_bad_requests_are_not_logged_each(http, caplog):
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(b"no HTTP\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
    assert [each.getMessage() for each in caplog.records if each.name.startswith("uvicorn")] == []


async def test_requests_one_after_the_other_share_a_connection(http):
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    for _ in range(3):
        await page_on(reader, writer)
    writer.close()


async def test_burst_of_idle_connections_leaves_only_the_newest_open(http, monkeypatch):
    monkeypatch.setattr("handlers.http_connection.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 600)
    idle = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", http.port) for _ in range(40)))
    await closed(idle, 37)
    assert (await page(http, "/healthz"))[0] == 200
    await closed(idle, 38)
    for _, writer in idle:
        writer.close()


async def test_request_before_the_last_response_is_read_closes_the_connection(http, monkeypatch):
    """Otherwise 500 such connections, which wait for nothing, would keep all others out."""

    async def large():
        return b"x" * 2**26  # more than all buffers

    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 600)
    monkeypatch.setattr(http, "_metrics", large)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readexactly(1)
    writer.write(PAGE + b"\r\n")
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(2**26)
    writer.close()


async def test_closed_connection_leaves_no_resources(listening, http, caplog):
    _, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(b"POST /slack/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()
    assert (await call(listening, COMMAND))[0] == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_response_does_not_wait_for_an_acknowledgment(http, monkeypatch):
    options = []

    def connected(connection, transport):
        accepted = transport.get_extra_info("socket")
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        HttpToolsProtocol.connection_made(connection, transport)
        connection._wait()

    monkeypatch.setattr(http_connection.Connection, "connection_made", connected)
    assert (await page(http, "/healthz"))[0] == 200
    assert options == [1]
