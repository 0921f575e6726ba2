"""The work queue beside raw Redis Streams and queue libraries: enqueue, drain, idle start, CPU, SIGKILL.

Each measurement is a new Redis and a new process of bench/peers/queues.py; measurements alternate. A library
that can't be installed or fails is reported without a goal.
"""

import asyncio
import re
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from statistics import median

from redis.asyncio import Redis

from bench.child import ROOT, Child, child
from bench.environments import python_of
from bench.table import Row, bounded, compared, interleaved, part, reason
from bot.core.work_item import WorkItem
from bot.platform.storage.redis_client import connect
from bot.platform.storage.work_queue import Queue
from local.redis import redis

PROGRAM = "bench/peers/queues.py"
ROUNDS, PEER_ROUNDS, NUMBER, IDLE = 5, 2, 1000, 20
LINE_TIMEOUT = 60.0  # seconds
LEASE = 5.0  # seconds, for the re-run after SIGKILL
KILLS, LONG = 3, 12.0  # workers killed; seconds of the job that starts once
RAW = "raw Redis Streams"
PEERS = {"saq": "bench", "taskiq": "bench", "dramatiq": "bench", "celery": "bench", "arq": "bench-arq"}


@dataclass(frozen=True)
class Cost:
    """Of one job: seconds to enqueue and to run it, and in the worker, microseconds of CPU time and commands.

    Commands are those that Redis ran, also within scripts, and those of idle loops.
    """

    enqueue: float
    run: float
    cpu: float
    commands: float


@dataclass(frozen=True)
class Goals:
    """Limits of the ratio to a peer. None: the row has no goal."""

    enqueue: float | None = None
    run: float | None = None
    cpu: float | None = None
    idle: float | None = None


async def run() -> list[Row]:
    rows = await _beside("raw", sys.executable, RAW, ROUNDS, Goals(enqueue=0.6, run=0.7, cpu=2, idle=2))
    rows += await _beside("batches", sys.executable, f"{RAW}, read in batches", PEER_ROUNDS, Goals())
    rows += [row for name, lock in PEERS.items() for row in await _peer(name, lock)]
    return rows + await part("queue: re-run after SIGKILL", _after_kill())


async def _peer(name: str, lock: str) -> list[Row]:
    try:
        python = await asyncio.to_thread(python_of, lock)
        return await _beside(name, python, name, PEER_ROUNDS, Goals())
    except (OSError, RuntimeError, TimeoutError, subprocess.CalledProcessError) as error:
        return [Row(what="queue", against=name, measured=f"not measured: {reason(error)}")]


async def _beside(library: str, python: str, name: str, rounds: int, goals: Goals) -> list[Row]:
    ours, theirs = await interleaved(
        rounds, partial(_cost, "ours"), partial(_cost, library, python), warm_up=False
    )
    starts = await interleaved(
        rounds, partial(_idle_start, "ours"), partial(_idle_start, library, python), warm_up=False
    )
    enqueue, run, cpu, commands = (
        [[getattr(each, what) for each in side] for side in (ours, theirs)]
        for what in ("enqueue", "run", "cpu", "commands")
    )
    return [
        _rate("queue: enqueue", name, *enqueue, goals.enqueue),
        _rate("queue: end to end", name, *run, goals.run),
        compared("queue: start of a job when idle, p50", name, *starts, unit="ms", at_most=goals.idle),
        compared("queue: CPU per job", name, *cpu, unit="us", at_most=goals.cpu),
        compared("queue: Redis commands per job", name, *commands, unit="commands"),
    ]


def _rate(what: str, against: str, ours: list[float], theirs: list[float], goal: float | None) -> Row:
    per_second = [[1 / each for each in one] for one in (ours, theirs)]
    return compared(what, against, *per_second, unit="jobs/s", at_least=goal)


async def _cost(library: str, python: str = sys.executable) -> Cost:
    with redis() as url:
        enqueued, _ = await _figures(library, python, "enqueue", url)
        async with connect(url) as client:
            before = await _commands(client)
            seconds, cpu = await _figures(library, python, "work", url)
            commands = await _commands(client) - before
    return Cost(enqueued / NUMBER, seconds / NUMBER, 1e6 * cpu / NUMBER, commands / NUMBER)


async def _commands(client: Redis) -> int:
    return int((await client.info("stats"))["total_commands_processed"])


async def _figures(library: str, python: str, role: str, url: str) -> list[float]:
    async with _running(library, python, role, url, NUMBER) as process, asyncio.timeout(LINE_TIMEOUT):
        while not (found := re.fullmatch(r"(\d\S+) (\d\S+)", await process.line())):
            pass  # "ready", or the library's error
    return [float(each) for each in found.groups()]


async def _idle_start(library: str, python: str = sys.executable) -> float:
    """Return the median milliseconds from an add to the job's start in a worker that waits."""
    with redis() as url:
        async with _running(library, python, "idle", url, IDLE) as worker:
            await _line(worker, "ready")
            await asyncio.sleep(1)  # some libraries then still connect
            async with _running(library, python, "trickle", url, IDLE):
                return 1000 * median([float(await _line(worker, r"[\d.e-]+")) for _ in range(IDLE)])


async def _line(process: Child, pattern: str) -> str:
    async with asyncio.timeout(LINE_TIMEOUT):
        while not re.fullmatch(pattern, line := await process.line()):
            pass
    return line


def _running(
    library: str, python: str, role: str, url: str, number: int
) -> AbstractAsyncContextManager[Child]:
    arguments = [PROGRAM, library, role, url, str(number)]
    return child(*arguments, python=python, env={"PYTHONPATH": str(ROOT)})


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
