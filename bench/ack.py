"""Slash commands, from the call to its acknowledgment, beside Bolt apps that do less (bench/bolt_app.py).

Each round sends commands one after another on one connection, and then on 50 connections at once, each again
after its acknowledgment. The servers are separate processes on the same machine.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles

from bench.child import Child, child
from bench.site import Site, site
from bench.slack_calls import Line, command, first_answer
from bench.table import Row, bounded, compared, interleaved, part
from local.slack import Slack
from tests.free_port import free_port

ROUNDS, ALONE, AT_ONCE, EACH = 7, 40, 50, 6
TEXT = "branch=main space=lr"
PEERS = {
    "default": "Bolt's default, ack only",
    "before": "Bolt with process_before_response, ack only",
    "durable": "the same with one XADD before the ack",
}

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
    rows = []
    for name, serving in (("HTTP", over_http), ("Socket Mode", _over_a_socket)):
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(serving(await stack.enter_async_context(site()), *arguments))
                for arguments in (("-m", "bot", "serve"), *(("-m", "bench.bolt_app", peer) for peer in PEERS))
            ]
            rows += await _compare(name, servers)
    return rows + await part("/sweep on a saturated node", saturated())


async def _compare(name: str, servers: list[Server]) -> list[Row]:
    rows = []
    for at_once, each in ((1, ALONE), (AT_ONCE, EACH)):
        ours, *theirs = await interleaved(ROUNDS, *(partial(one.take, at_once, each) for one in servers))
        what = f"/sweep queued and acknowledged, {name}, {at_once} at once"
        for peer, taken in zip(PEERS.values(), theirs, strict=True):
            p50 = [[each.p50 for each in one] for one in (ours, taken)]
            rows.append(compared(f"{what}, p50", peer, *p50, unit="ms"))
            cpu = [[each.cpu for each in one] for one in (ours, taken)]
            rows.append(compared(f"{what}, CPU", peer, *cpu, unit="ms"))
        if at_once > 1:
            rows.append(bounded(f"{what}, p99", [each.p99 for each in ours], unit="ms", at_most=300))
    return rows


async def saturated() -> list[Row]:
    """Measure 50 at once over HTTP while as many other processes as there are cores use all they get."""
    async with AsyncExitStack() as stack:
        ours, theirs = [await stack.enter_async_context(site()) for _ in range(2)]
        serve = await stack.enter_async_context(over_http(ours, "-m", "bot", "serve"))
        bolt = await stack.enter_async_context(over_http(theirs, "-m", "bench.bolt_app", "durable"))
        for _ in range(os.cpu_count() or 1):
            await stack.enter_async_context(child("-c", "while True: pass"))
        taken = await interleaved(ROUNDS, *(partial(one.take, AT_ONCE, EACH) for one in (serve, bolt)))
    p99 = [[each.p99 for each in one] for one in taken]
    what = f"/sweep queued and acknowledged on a saturated node, HTTP, {AT_ONCE} at once, p99"
    limit = bounded(what, p99[0], unit="ms", at_most=1000)
    return [limit, compared(what, PEERS["durable"], *p99, unit="ms")]


@asynccontextmanager
async def over_http(here: Site, *arguments: str) -> AsyncIterator[Server]:
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
