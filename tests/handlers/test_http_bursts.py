"""docs/security.md's limits of HTTP mode, kept by a real `serve` while thousands of connections come at once.

Run as a program, this file is the attacker; its argument is a port. Each line of its input is a burst,
`NUMBER KIND`, whose connections it holds until the next line.
"""

import asyncio
import resource
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from bench.child import ROOT, child
from bench.site import site
from bench.slack_calls import first_answer
from handlers.http_connection import MAX_CONNECTIONS
from handlers.http_server import ACCEPTED_AT_ONCE, SOCKET_BUFFER
from tests.free_port import free_port
from tests.handlers.signing import COMMAND, call

BODY_SIZE = 400_000
OWN_DESCRIPTORS = 60  # of `serve`: Redis, Slack, modules
TURNS = 4  # of the loop, from when a connection is accepted until the one that makes room for it is closed
MEMORY_LIMIT = 256 * 2**20  # bytes; of deploy/overlays/replicas/serve.yaml
RESET = 0  # in place of a status
SIZE = 5_000  # connections of a burst: more than are open and wait, MAX_CONNECTIONS + MAX_BACKLOG
SOCKET_MEMORY = MAX_CONNECTIONS * 2 * 2 * SOCKET_BUFFER  # bytes of it that the kernel allocates

pytestmark = pytest.mark.slow


def half_open() -> bytes:
    return b"POST /slack/events HTTP/1.1\r\nHost: x\r\nX-"


def body(sent: int, path: str = "/slack/events", signature: str = "0" * 64) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Length: {BODY_SIZE}",
        f"X-Slack-Signature: v0={signature}",
        f"X-Slack-Request-Timestamp: {time.time():.0f}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + b"x" * sent


SLACK_KINDS = {
    "silent": lambda: b"",
    "half-open requests": half_open,
    "unfinished headers": lambda: half_open() + b"x" * 60_000,
    "unfinished bodies": lambda: body(BODY_SIZE - 1),
    "bodies with a false signature": lambda: body(BODY_SIZE),
    "bodies without a signature": lambda: body(BODY_SIZE, signature=""),
    "bodies to a page": lambda: body(BODY_SIZE - 1, path="/healthz"),
    "requests for metrics": lambda: b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
}


def api_call(path: str, token: str, sent: int) -> bytes:
    lines = [f"POST /api/v1{path} HTTP/1.1", "Host: x", f"Content-Length: {BODY_SIZE}"]
    lines += [f"Authorization: Bearer {token}", "Idempotency-Key: x"]
    return "\r\n".join([*lines, "", ""]).encode() + b"x" * sent


FORGED, FORGED_JWT = "swb_" + "x" * 43, f"{'e30'}.{'W1tb' * 1000}.x"
API_KINDS = {
    "silent connections to the API": lambda: b"",
    "half-open calls": lambda: b"POST /api/v1/sweeps HTTP/1.1\r\nHost: x\r\nX-",
    "forged tokens": lambda: api_call("/sweeps", FORGED, BODY_SIZE),
    "forged tokens of CI": lambda: api_call("/sweeps", FORGED_JWT, BODY_SIZE - 1),
    "forged tokens of agents": lambda: api_call("/mcp", FORGED, BODY_SIZE - 1),
    "reads of the document": lambda: b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
}
KINDS = SLACK_KINDS | API_KINDS


async def test_bursts_take_no_more_descriptors_and_memory_than_promised(capfd):
    """Beyond its limit of descriptors `serve` could accept no connection, and would log it."""
    port = free_port()
    async with site() as here, attacker(port) as burst:
        env = {**here.env, "SLACK_MODE": "http", "HTTP_PORT": str(port)}
        async with child("-m", "bot", "serve", env=env) as serve:
            await first_answer(port)
            limit = MAX_CONNECTIONS + TURNS * ACCEPTED_AT_ONCE + OWN_DESCRIPTORS
            resource.prlimit(serve.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
            for kind in SLACK_KINDS:
                statuses = await calls_during(burst(SIZE, kind), port)
                assert {*statuses} <= {200, RESET}, kind
                assert statuses.count(RESET) <= len(statuses) // 20, kind
                assert peak_memory(serve.process.pid) < MEMORY_LIMIT - SOCKET_MEMORY, kind
    assert "system resource" not in capfd.readouterr().err


async def test_bursts_at_the_api_leave_slacks_calls_alone(capfd):
    port, api_port = free_port(), free_port()
    async with site() as here, attacker(api_port) as burst:
        ports = {"HTTP_PORT": str(port), "SWEEPBOT_API_PORT": str(api_port)}
        async with child("-m", "bot", "serve", env={**here.env, "SLACK_MODE": "http", **ports}) as serve:
            await first_answer(port)
            for kind in API_KINDS:
                statuses = await calls_during(burst(SIZE, kind), port)
                assert {*statuses} == {200}, kind
                assert peak_memory(serve.process.pid) < MEMORY_LIMIT - SOCKET_MEMORY, kind
    assert "system resource" not in capfd.readouterr().err


@asynccontextmanager
async def attacker(port):
    """`await burst(size, kind)` returns once its connections are open, or closed by the server."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, str(port), stdin=pipe, stdout=pipe, cwd=ROOT
    )

    async def burst(size, kind):
        process.stdin.write(f"{size} {kind}\n".encode())
        assert await process.stdout.readline() == b"holds\n"

    try:
        yield burst
    finally:
        process.kill()
        await process.wait()


async def calls_during(burst, port):
    """Return the statuses of Slack's calls during a burst, and while its connections are held.

    One is RESET if MAX_CONNECTIONS others came between its connection and its first byte: on a busy machine,
    this process can wait that long for its turn.
    """
    statuses, over = [], asyncio.ensure_future(burst)
    while not over.done() or len(statuses) < 20:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            try:
                statuses.append((await call(client, COMMAND))[0])
            except aiohttp.ClientOSError:
                statuses.append(RESET)
    await over
    return statuses


def peak_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


async def attack(port: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    loop = asyncio.get_running_loop()

    async def connect(one: socket.socket, sent: bytes) -> None:
        one.setblocking(False)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                await loop.sock_connect(one, ("127.0.0.1", port))
                await loop.sock_sendall(one, sent)

    sockets: list[socket.socket] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        number, kind = line.strip().split(maxsplit=1)
        for one in sockets:
            one.close()
        sockets, sent = [socket.socket() for _ in range(int(number))], KINDS[kind]()
        await asyncio.gather(*(connect(one, sent) for one in sockets))
        print("holds", flush=True)


if __name__ == "__main__":
    asyncio.run(attack(int(sys.argv[1])))
