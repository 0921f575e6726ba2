"""The work queue beside raw Redis Streams and queue libraries: enqueue, drain, idle start, CPU, SIGKILL.

Each measurement is a new Redis and a new process of bench/peers/queues.py; measurements alternate. A library
that can't be installed or fails is reported without a goal.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from statistics import median

from redis.asyncio import Redis

from bench.child import ROOT, Child, child
from bench.environments import python_of
from bench.table import Row, bounded, compared, interleaved
from bot.core.work_item import WorkItem
from bot.storage.redis_client import connect
from bot.storage.work_queue import Queue
from local.redis import redis

PROGRAM = "bench/peers/queues.py"
ROUNDS, PEER_ROUNDS, NUMBER, IDLE = 7, 3, 1000, 20
LINE_TIMEOUT = 60.0  # seconds
LEASE = 5.0  # seconds, for the re-run after SIGKILL
KILLS, LONG = 3, 12.0  # workers killed; seconds of the job that starts once
RAW = "raw Redis Streams"
PEERS = {"saq": "bench", "taskiq": "bench", "dramatiq": "bench", "celery": "bench", "arq": "bench-arq"}


@dataclass(frozen=True)
class Cost:
    """Of one job: seconds to enqueue and to run it, and microseconds of CPU time in the worker."""

    enqueue: float
    run: float
    cpu: float


async def run() -> list[Row]:
    ours, raw = await interleaved(ROUNDS, partial(_cost, "ours"), partial(_cost, "raw"))
    rows = [
        _rate("queue: enqueue", RAW, [each.enqueue for each in ours], [each.enqueue for each in raw], 0.6),
        _rate("queue: end to end", RAW, [each.run for each in ours], [each.run for each in raw], 0.7),
        compared(
            "queue: CPU per job",
            RAW,
            [each.cpu for each in ours],
            [each.cpu for each in raw],
            unit="us",
            at_most=2,
        ),
    ]
    starts = await interleaved(ROUNDS, partial(_idle_start, "ours"), partial(_idle_start, "raw"))
    rows.append(compared("queue: start of a job when idle, p50", RAW, *starts, unit="ms", at_most=2))
    rows += [row for name, lock in PEERS.items() for row in await _peer(name, lock)]
    return rows + await _after_kill()


def _rate(what: str, against: str, ours: list[float], theirs: list[float], goal: float | None) -> Row:
    per_second = [[1 / each for each in one] for one in (ours, theirs)]
    return compared(what, against, *per_second, unit="jobs/s", at_least=goal)


async def _peer(name: str, lock: str) -> list[Row]:
    try:
        python = await asyncio.to_thread(python_of, lock)
        theirs = partial(_cost, name, python)
        costs = await interleaved(PEER_ROUNDS, partial(_cost, "ours"), theirs, warm_up=False)
    except (OSError, RuntimeError, TimeoutError, subprocess.CalledProcessError) as error:
        return [Row(what="queue", against=name, measured=f"not measured: {error or type(error).__name__}")]
    ours, peer = costs
    return [
        _rate("queue: enqueue", name, [each.enqueue for each in ours], [each.enqueue for each in peer], None),
        _rate("queue: end to end", name, [each.run for each in ours], [each.run for each in peer], None),
        compared(
            "queue: CPU per job", name, [each.cpu for each in ours], [each.cpu for each in peer], unit="us"
        ),
    ]


async def _cost(library: str, python: str = sys.executable) -> Cost:
    with redis() as url:
        enqueued, _ = await _figures(library, python, "enqueue", url)
        seconds, cpu = await _figures(library, python, "work", url)
    return Cost(enqueued / NUMBER, seconds / NUMBER, 1e6 * cpu / NUMBER)


async def _figures(library: str, python: str, role: str, url: str) -> list[float]:
    arguments = [PROGRAM, library, role, url, str(NUMBER)]
    async with child(*arguments, python=python, env={"PYTHONPATH": str(ROOT)}) as process:
        async with asyncio.timeout(LINE_TIMEOUT):
            while not (found := re.fullmatch(r"(\d\S+) (\d\S+)", await process.line())):
                pass  # "ready", or the library's error
        return [float(each) for each in found.groups()]


async def _idle_start(library: str) -> float:
    """Return the median milliseconds from an add to the job's start in a worker that waits."""
    arguments = [PROGRAM, library, "idle"]
    with redis() as url:
        async with (
            connect(url) as client,
            child(*arguments, url, str(IDLE), env={"PYTHONPATH": str(ROOT)}) as process,
        ):
            await process.line()
            await asyncio.sleep(0.5)
            add = _adds(library, client)
            return 1000 * median([await _latency(add, process.line) for _ in range(IDLE)])


def _adds(library: str, client: Redis) -> Callable[[str], Awaitable[object]]:
    if library == "raw":
        return lambda text: client.xadd("jobs", {"job": text})
    queue = Queue(client)
    return lambda text: queue.add(WorkItem("bench", text))


async def _latency(add: Callable[[str], Awaitable[object]], line: Callable[[], Awaitable[str]]) -> float:
    await add(f"{time.time()}/x")
    seconds = float(await line())
    await asyncio.sleep(0.05)
    return seconds


async def _after_kill() -> list[Row]:
    waits = [await _rerun() / LEASE for _ in range(KILLS)]
    starts = await _starts_of_a_long_job()
    return [
        bounded(f"queue: re-run after SIGKILL, lease {LEASE:g} s", waits, unit="leases", at_most=1.25),
        bounded(f"queue: starts of a live job of {LONG:g} s", [float(starts)], unit="starts", at_most=1),
    ]


async def _rerun() -> float:
    """Kill the process of a worker in its job; return the seconds until another one starts it."""
    with redis() as url:
        async with connect(url) as client, _hanging(url) as first:
            await first.line()
            await Queue(client).add(WorkItem("bench", "x"))
            await first.line()
            async with _hanging(url) as second:
                await second.line()
                first.process.kill()
                killed = time.monotonic()
                await second.line()
                return time.monotonic() - killed


async def _starts_of_a_long_job() -> int:
    with redis() as url:
        async with connect(url) as client, _hanging(url) as first, _hanging(url) as second:
            await asyncio.gather(first.line(), second.line())
            await Queue(client).add(WorkItem("bench", "x"))
            lines = [asyncio.create_task(each.line()) for each in (first, second)]
            await asyncio.sleep(LONG)
            started = sum(line.done() for line in lines)
            for line in lines:
                line.cancel()
            return started


def _hanging(url: str) -> AbstractAsyncContextManager[Child]:
    env = {"PYTHONPATH": str(ROOT), "BENCH_LEASE": str(LEASE)}
    return child(PROGRAM, "ours", "hang", url, "1", env=env)
