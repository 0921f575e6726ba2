"""Slash commands, from the call to its acknowledgment: Sweepbot's are queued durably by then, Bolt's dropped.

Each round sends commands one after another on one connection, and then on 50 connections at once, each again
after its acknowledgment. The servers are separate processes on the same machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles

from bench.child import Child, child
from bench.site import Site, site
from bench.slack_calls import Line, command, first_answer
from bench.table import Row, bounded, compared, interleaved
from local.slack import Slack
from tests.free_port import free_port

ROUNDS, ALONE, AT_ONCE, EACH = 7, 40, 50, 6
TEXT = "branch=main space=lr"
BOLT = "Bolt's default, ack only"

Call = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Taken:
    """Milliseconds to the acknowledgment, and of CPU time in the server for each call."""

    p50: float
    p99: float
    cpu: float


@dataclass(frozen=True)
class Server:
    """`connected`: yields what sends one command, for each of so many connections."""

    process: Child
    connected: Callable[[int], AbstractAsyncContextManager[list[Call]]]

    async def take(self, at_once: int, each: int) -> Taken:
        async with self.connected(at_once) as calls:
            before = self.process.cpu
            seconds = await asyncio.gather(*(_repeat(call, each) for call in calls))
            cpu = (self.process.cpu - before) / (at_once * each)
        times = [1000 * each for one in seconds for each in one]
        return Taken(median(times), quantiles(times, n=100)[-1], 1000 * cpu)


async def run() -> list[Row]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(site()) for _ in range(2)]
        rows = []
        for name, serving in (("HTTP", _over_http), ("Socket Mode", _over_a_socket)):
            async with serving(here, "-m", "bot", "serve") as ours, _bolt(serving, there) as bolt:
                rows += await _compare(name, ours, bolt)
        return rows


async def _compare(name: str, ours: Server, bolt: Server) -> list[Row]:
    rows = []
    for at_once, each, limit in ((1, ALONE, 0.1), (AT_ONCE, EACH, 1.3)):
        figures = await interleaved(
            ROUNDS, partial(ours.take, at_once, each), partial(bolt.take, at_once, each)
        )
        what = f"/sweep queued and acknowledged, {name}, {at_once} at once"
        p50 = [[each.p50 for each in one] for one in figures]
        rows.append(compared(f"{what}, p50", BOLT, *p50, unit="ms", at_most=limit))
        cpu = [[each.cpu for each in one] for one in figures]
        rows.append(compared(f"{what}, CPU", BOLT, *cpu, unit="ms"))
        if at_once > 1:
            rows.append(bounded(f"{what}, p99", [each.p99 for each in figures[0]], unit="ms", at_most=300))
    return rows


def _bolt(serving: Callable[..., object], there: Site) -> object:
    return serving(there, "-m", "bench.bolt_app")


@asynccontextmanager
async def _over_http(here: Site, *arguments: str) -> AsyncIterator[Server]:
    port = free_port()
    env = {**here.env, "SLACK_MODE": "http", "HTTP_PORT": str(port)}
    async with child(*arguments, env=env) as process:
        await first_answer(port)
        yield Server(process, partial(_lines, port))


@asynccontextmanager
async def _lines(port: int, number: int) -> AsyncIterator[list[Call]]:
    """Open new connections: a server closes those that were idle for some seconds."""
    lines = [await Line.open(port) for _ in range(number)]
    try:
        yield [partial(line.call, TEXT) for line in lines]
    finally:
        for line in lines:
            line.close()


@asynccontextmanager
async def _over_a_socket(here: Site, *arguments: str) -> AsyncIterator[Server]:
    async with child(*arguments, env={**here.env, "SLACK_MODE": "socket", "HTTP_PORT": "0"}) as process:
        await _connected(here.slack)

        yield Server(process, partial(_envelopes, here.slack))


@asynccontextmanager
async def _envelopes(slack: Slack, number: int) -> AsyncIterator[list[Call]]:
    async def call() -> float:
        started = time.perf_counter()
        await slack.sockets.deliver("slash_commands", command(TEXT))
        return time.perf_counter() - started

    yield [call] * number


async def _connected(slack: Slack) -> None:
    async with asyncio.timeout(120):
        while not slack.sockets.connections:  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.05)


async def _repeat(call: Call, times: int) -> list[float]:
    return [await call() for _ in range(times)]
