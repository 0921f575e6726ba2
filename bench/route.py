"""The way of one sweep through the code: which files it passes, in order. `python -m bench.route`

A `/sweep` goes through Bolt's dispatch, the queue, and real workers to the end of the sweep. Slack, git, the
registry and the cluster's API client are those of tests/scenarios: in memory, so their files are not counted.
Lists every file by its first call, and compares the route in docs/architecture.md with it. How long the whole
way is, is a figure with a goal, which nothing enforces: code must not be bent to reach it. So is how often it
climbs: in how many functions it calls something of a layer above theirs, which they were given.
"""

import argparse
import asyncio
import inspect
import re
import sys
import threading
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

from redis.asyncio import Redis
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind
from bot.platform.runtime import parser_thread
from bot.platform.storage.redis_client import connect
from bot.platform.storage.work_queue import Queue
from bot.sweep.reports.trial_runs_job import TrialRunsJob
from bot.sweep.sweeps import reconciler
from bot.worker import Worker, keyed
from handlers.app import build
from local import redis as local_redis
from local.slack import serve
from local.slack.workspace import TEAM
from tests.bot.factories import STRANGER
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import ROUNDS, Clock, SimulatedSweep

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
PRODUCT = ("bot", "handlers", "k8s")
GOAL = (80, 9_000)  # files and lines of the whole way
CLIMBS = 6  # at most, of a request


@cache
def height(file: str) -> int:
    """Return the number of the file's layer, counted from below."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    rows = contracts["importlinter:contract:wings"]["layers"].split("\n")
    within_bot = [[f"bot/{name}" for name in row.split(" | ")] for row in rows if row]
    layers = [["handlers"], *within_bot, ["k8s"]]
    [number] = [
        n
        for n, row in enumerate(layers)
        if file.startswith(tuple(f"{name}{end}" for name in row for end in "/."))
    ]
    return -number


@dataclass
class Trace:
    """`files`: of the product, relative to the root, by the first call of a function; constructors aside.

    `climbs`: by function, files of a layer above its own (`.importlinter`) that it calls.
    Generators aside: their values are data to who reads them.
    """

    files: list[str] = field(default_factory=list)
    climbs: dict[str, set[str]] = field(default_factory=dict)

    @contextmanager
    def recording(self) -> Iterator[None]:
        threading.setprofile(self._on_event)
        parser_thread._PARSER = parser_thread._Parser()  # noqa: SLF001  a thread that runs already is not profiled
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name in {"<module>", "__init__"}:
            return
        if not (file := _of_product(frame)):
            return
        if file not in self.files:
            self.files.append(file)
        caller = frame.f_back
        while caller and not _of_product(caller):
            caller = caller.f_back
        if caller and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            below = _of_product(caller)
            if height(file) > height(below):
                self.climbs.setdefault(f"{below} {caller.f_code.co_name}", set()).add(file)


def _of_product(frame: FrameType) -> str:
    """Return the frame's file, relative to the root; "" if it isn't of the product."""
    file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
    return file if file.startswith(tuple(f"{each}/" for each in PRODUCT)) else ""


def route() -> list[str]:
    """Return the files that the document's route names, in its order."""
    return re.findall(r"^\d+\. \[`([^`]+\.py)`\]", DOCUMENT.read_text(), re.MULTILINE)


def lines(files: list[str]) -> int:
    return sum(len((ROOT / file).read_text().splitlines()) for file in files)


def faults(named: list[str], passed: list[str]) -> list[str]:
    """Return the errors of the named route; "" if a sweep takes it."""
    found = [f"{file} is not passed" for file in named if file not in passed]
    if not found and named != sorted(named, key=passed.index):
        found.append(f"the order of first calls is {', '.join(sorted(named, key=passed.index))}")
    return found


async def traced(redis: Redis) -> tuple[Trace, Trace, SweepRecord]:
    """Run one sweep to its end. Return the way of its request, the whole way, and its last record."""
    trace = Trace()
    async with SimulatedSweep(redis, Clock(None)).started() as simulation:
        queue = Queue(redis, prefix="life:queue")
        simulation.clients = replace(simulation.clients, queue=queue)
        context = a_context(redis, store=simulation.store, queue=queue)
        slack = await serve()
        app = build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), context)
        handlers = {
            ItemKind.SWEEP: partial(reconciler.handle, clients=simulation.clients),
            ItemKind.TRIAL_RUNS: keyed(TrialRunsJob(simulation.clients, simulation.run_writer).run),
        }
        worker = Worker(queue, 1, handlers)
        try:
            with trace.recording():
                await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=_command()))
            request = deepcopy(trace)
            [sweep] = [
                each for each in await simulation.store.active() if each != (await simulation.record()).id
            ]
            for _ in range(ROUNDS):
                await redis.zunionstore("life:queue:delayed", {"life:queue:delayed": 0.0})  # all is due
                if not (lease := await queue.get(wait=0)):
                    break
                with trace.recording():
                    await worker._take(lease)  # noqa: SLF001 - one item at a time
                await simulation.settle()
                await simulation._time_passes()  # noqa: SLF001 - as the life's own rounds do
                await simulation.settle()
                await simulation.clients.wake(sweep)
                record = await simulation.store.get(sweep)
                if record and record.phase.final and not record.outbox:
                    break
        finally:
            await slack.close()
        [record] = await simulation.store.records([sweep])
        return request, trace, record


def _command() -> dict[str, str]:
    body = {"command": "/sweep", "text": "branch=main space=lr", "trigger_id": "trigger-2"}
    body |= {"user_id": STRANGER, "user_name": "grace", "channel_id": "C1", "team_id": TEAM["id"]}
    return body


async def _measure() -> tuple[Trace, Trace, SweepRecord]:
    with local_redis.redis() as url:
        async with connect(url) as redis:
            return await traced(redis)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    request, whole_way, record = asyncio.run(_measure())
    passed, named = whole_way.files, route()
    for file in passed:
        print(f"{'*' if file in named else ' '} {lines([file]):4} {file}")
    files, most = GOAL
    whole = f"{len(passed)} files, {lines(passed):,} lines"
    print(f"whole way of {record.id} ({record.phase}): {whole}; goal: under {files} files, {most:,} lines")
    for place, called in whole_way.climbs.items():
        print(f"climb: {place} -> {', '.join(sorted(called))}")
    climbs = (
        f"the request {len(request.climbs)}, goal: at most {CLIMBS}; the whole way {len(whole_way.climbs)}"
    )
    print(f"functions that climb: {climbs}")
    print(f"route in docs/architecture.md (*): {len(named)} files, {lines(named):,} lines")
    if wrong := faults(named, passed):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
