"""Server-sent events of a sweep, until its end; and what clients that cost too much get."""

import asyncio
import json
from contextlib import suppress

import pytest

from bot.core.record import Phase
from handlers.api.app import CALLS_AT_ONCE
from handlers.api.events import MAX_PER_TOKEN
from handlers.api.models import MAX_BODY
from tests.bot.factories import NOW, a_sweep


@pytest.fixture
async def sweep(context):
    sweep = a_sweep(Phase.RUNNING)
    await context.store.create(sweep, [sweep.id], sweep.request_id)
    return sweep


@pytest.fixture
def follow(api, token, sweep):
    def opened():
        return api.get(f"/api/v1/sweeps/{sweep.id}/events", headers={"Authorization": f"Bearer {token}"})

    return opened


async def state(stream):
    """The state in the next event."""
    async with asyncio.timeout(60):
        async for line in stream.content:
            if line.startswith(b"data: "):
                return json.loads(line[6:])["state"]
    return "end"


async def test_each_change_is_an_event_until_the_end(follow, context, sweep, monkeypatch):
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    async with follow() as stream:
        assert (stream.content_type, await state(stream)) == ("text/event-stream", "running")
        sweep = await context.store.save(sweep.to(Phase.STOPPING, NOW))
        assert await state(stream) == "stopping"
        await context.store.save(sweep.to(Phase.CANCELLED, NOW))
        assert [await state(stream), await state(stream)] == ["cancelled", "end"]


async def test_stream_stays_open_beyond_the_time_of_a_response(follow, context, sweep, monkeypatch):
    monkeypatch.setattr("handlers.http_connection.HEADERS_TIMEOUT", 0.05)
    monkeypatch.setattr("handlers.http_connection.RESPONSE_TIMEOUT", 0.05)
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    monkeypatch.setattr("handlers.api.events.COMMENT_SECONDS", 0.1)
    async with follow() as stream:
        assert await state(stream) == "running"
        for _ in range(5):
            await stream.content.readuntil(b": still here\n\n")
        await context.store.save(sweep.to(Phase.SUCCEEDED, NOW))
        assert await state(stream) == "succeeded"


async def test_stream_ends_when_its_token_is_revoked(follow, typed, monkeypatch):
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    monkeypatch.setattr("handlers.api.events.COMMENT_SECONDS", 0.01)
    async with follow() as stream:
        assert await state(stream) == "running"
        await typed("token revoke")
        assert await state(stream) == "end"


async def test_streams_end_when_the_process_stops(follow, stop):
    async with follow() as stream:
        assert await state(stream) == "running"
        stop.set()
        assert await state(stream) == "end"


async def test_token_can_have_so_many_streams_and_closed_ones_do_not_count(follow, wait_until, monkeypatch):
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    streams = [await follow() for _ in range(MAX_PER_TOKEN)]
    async with follow() as refused:
        assert (refused.status, refused.headers["Retry-After"]) == (429, "15")
    streams[0].close()

    async def is_admitted():
        async with follow() as stream:
            return stream.status == 200

    await wait_until(is_admitted, "a closed stream leaves its place")
    for each in streams:
        each.close()


async def test_wait_whose_client_is_gone_leaves_its_place(api, token, sweep, follow, wait_until, monkeypatch):
    monkeypatch.setattr("handlers.api.events.POLL_SECONDS", 0.01)
    path, headers = f"/api/v1/sweeps/{sweep.id}?wait=30", {"Authorization": f"Bearer {token}"}
    waits = [asyncio.create_task(api.get(path, headers=headers)) for _ in range(MAX_PER_TOKEN + 1)]
    [refused], _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert refused.result().status == 429, "the others wait"
    for each in waits:
        each.cancel()

    async def is_admitted():
        async with follow() as stream:
            return stream.status == 200

    await wait_until(is_admitted, "a client that is gone leaves its place", seconds=20)


async def test_calls_that_wait_for_a_worker_leave_their_places_when_their_clients_are_gone(
    api, token, sweep, wait_until
):
    path, headers = f"/api/v1/sweeps/{sweep.id}", {"Authorization": f"Bearer {token}"}
    calls = [asyncio.create_task(api.get(f"{path}/logs", headers=headers)) for _ in range(CALLS_AT_ONCE + 1)]
    [refused], _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert refused.result().status == 429, "the others wait"
    for each in calls:
        each.cancel()

    async def is_admitted():
        async with api.get(path, headers=headers) as shown:
            return shown.status == 200

    await wait_until(is_admitted, "a client that is gone leaves its place", seconds=20)


async def test_head_of_events_is_answered_by_headers_and_holds_nothing(api, token, sweep):
    request = f"HEAD /api/v1/sweeps/{sweep.id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for _ in range(MAX_PER_TOKEN + 1):
        writer.write(f"{request}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert b"content-type: text/event-stream" in head
    writer.close()


def raw(path, *headers, length=9999):
    lines = [f"POST /api/v1{path} HTTP/1.1", "Host: x", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


async def answer_to(api, text):
    """The start of the answer to what is sent, up to the connection's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(text)
    answer = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(60):
            answer = await reader.read()
    writer.close()
    return answer[:12].decode()


async def test_body_of_a_stranger_is_never_read(api):
    assert await answer_to(api, raw("/sweeps") + b"half") == "HTTP/1.1 401"


async def test_oversized_body_is_refused_unread(api, token):
    headers = (f"Authorization: Bearer {token}", "Idempotency-Key: k")
    assert await answer_to(api, raw("/sweeps", *headers, length=MAX_BODY + 1)) == "HTTP/1.1 413"


async def test_body_that_turns_out_too_large_is_refused(api, token):
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}

    async def pieces():
        for _ in range(3):
            yield b"x" * (MAX_BODY // 2)

    async with api.post("/api/v1/sweeps", data=pieces(), headers=headers) as found:
        assert found.status == 413


async def test_body_that_comes_too_slowly_is_refused(api, token, monkeypatch):
    monkeypatch.setattr("handlers.api.models.BODY_TIMEOUT", 0.05)
    headers = (f"Authorization: Bearer {token}", "Idempotency-Key: k")
    assert await answer_to(api, raw("/sweeps", *headers) + b"half") == "HTTP/1.1 408"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 60_000,
        b'{"command": 1}',
        b'{"command": "x", "more": 1}',
        b"\xff",
        b'{"command": "\\ud800"}',
    ],
)
async def test_malformed_body_is_refused(api, token, body):
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    async with api.post("/api/v1/sweeps", data=body, headers=headers) as found:
        assert (found.status, found.content_type) == (422, "application/problem+json")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/", 404, None),
        ("PUT", "/api/v1/sweeps", 405, "GET, HEAD, POST"),
        ("GET", "/api/v1/mcp", 405, "POST"),
    ],
)
async def test_other_paths_are_problems_too(api, method, path, status, allowed):
    async with api.request(method, path) as found:
        problem = await found.json(content_type=None)
    assert (found.status, problem["status"], found.headers.get("Allow")) == (status, status, allowed)
    assert allowed is None or problem["detail"] == f"{method} isn't for this path. Available: {allowed}."
