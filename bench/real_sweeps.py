"""Requests of whole sweeps in the local world whose trials improve one after another.

`serve` and `work` are processes of their own. What an idle installation requests in the same time is
subtracted.
"""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from aiohttp import web
from redis.asyncio import Redis

from bot.platform.storage.redis_client import connect
from local.kubernetes.apiserver.api import TOKEN, ApiServer
from local.slack.webapi import WebApi
from local.slack.workspace import Change
from local.world import World, commit, world

TIMEOUT = 300.0  # seconds of one sweep
IDLE = 20.0  # seconds in which the idle installation is counted
LAST = 8.0  # seconds after the end, in which MLflow's runs are completed
PROGRAM = """
import time
for step in range(1, 4):
    time.sleep(1)
    print(f"step {step}/3 loss={-time.time():.3f}", flush=True)  # less than all before
"""
SPACE = """
command: python improving.py
objective: {metric: loss, goal: minimize}
algorithm: grid
metrics: {from: stdout}
trials: {max: 100, parallel: 5, max_failed: 1}
parameters:
  width: [%s]
"""
# No samples of GPUs meanwhile.
QUIET = {"USAGE_SECONDS": "300", "WATCH_SECONDS": "300"}
ENDED = re.compile(r"^:(white_check_mark: .* · Finished: |x:|no_entry_sign:)")
Counts = Counter[str]  # by system, and by request: `Slack`, `Slack chat.update`


async def counted(*trials: int) -> list[Counts]:
    """Run one sweep for each number of trials; return its requests to Slack, the API server, and Redis."""
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            requests: Counts = Counter()
            stack.enter_context(counting(requests))
            here = await stack.enter_async_context(world(Path(folder)))
            here.env |= QUIET
            _publish(here)
            await here.start_bot("serve", "work")
            redis = await stack.enter_async_context(connect(here.env["REDIS_URL"]))
            await _sweep(here, 1)  # builds the image
            idle = await _during(requests, redis, asyncio.sleep(IDLE))
            return [await _beyond_idle(here, requests, redis, number, idle) for number in trials]


def _publish(here: World) -> None:
    copy = here.git / "requirements"
    (copy / "improving.py").write_text(PROGRAM)
    (copy / "requirements.txt").write_text("six\n")  # no TensorBoard: values are read from the output
    widths = ", ".join(str(number) for number in range(1, 101))
    (copy / "sweeps" / "improving.yaml").write_text(SPACE % widths)
    commit(copy, "Improve with each trial")


async def _beyond_idle(here: World, requests: Counts, redis: Redis, trials: int, idle: Counts) -> Counts:
    started = monotonic()
    found = await _during(requests, redis, _sweep(here, trials))
    share = (monotonic() - started) / IDLE
    return Counter({name: round(number - share * idle[name]) for name, number in found.items()})


async def _during(requests: Counts, redis: Redis, doing: Any) -> Counts:
    before, commands = Counter(requests), await _commands(redis)
    await doing
    return (requests - before) + (await _commands(redis) - commands)


async def _commands(redis: Redis) -> Counts:
    """Return the requests that Redis read so far, and the commands that it ran, also within scripts."""
    found = {
        name.partition("_")[2]: each["calls"] for name, each in (await redis.info("commandstats")).items()
    }
    commands = {f"Redis commands {name}": calls for name, calls in found.items()}
    reads = (await redis.info("stats"))["total_reads_processed"]
    return Counter({"Redis": reads, "Redis commands": sum(found.values()), **commands})


async def _sweep(here: World, trials: int) -> None:
    await to_its_end(here, f"repo=requirements branch=main space=improving trials={trials} gpus=0")
    await asyncio.sleep(LAST)


async def to_its_end(here: World, words: str) -> None:
    """Run a sweep to its end. Raises RuntimeError if it isn't started, doesn't end in time, or fails."""
    ended, texts = asyncio.Event(), list[str]()

    def on_change(change: Change) -> None:
        if change["type"] == "posted" and ENDED.search(change["message"]["text"]):
            texts.append(change["message"]["text"])
            ended.set()

    unlisten = here.slack.listen(on_change)
    said = await here.slack.command("ada", "sweeps", "/sweep", words)
    try:
        async with asyncio.timeout(TIMEOUT):
            await ended.wait()
    except TimeoutError:
        raise RuntimeError(f"no end of `{words}`: {said}") from None
    finally:
        unlisten()
    if "Finished" not in texts[0]:
        raise RuntimeError(texts[0])


@contextmanager
def counting(requests: Counts) -> Iterator[None]:
    """Count what Slack and the API server receive; the cluster's own parts make no requests."""
    slack, cluster = WebApi.handle, ApiServer._routed  # noqa: SLF001 - only to count

    async def handle(self: WebApi, request: web.Request) -> web.Response:
        requests.update(("Slack", f"Slack {request.match_info['method']}"))
        return await slack(self, request)

    async def routed(self: ApiServer, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            requests.update(("Kubernetes", f"Kubernetes {request.method} {_kind(request)}"))
        return await cluster(self, request)

    WebApi.handle, ApiServer._routed = handle, routed  # type: ignore[method-assign] # noqa: SLF001
    try:
        yield
    finally:
        WebApi.handle, ApiServer._routed = slack, cluster  # type: ignore[method-assign] # noqa: SLF001


def _kind(request: web.Request) -> str:
    parts = request.path.split("/namespaces/")[-1].split("/")
    return "/".join((parts[1:2] or parts[-1:]) + parts[3:]) + (" watch" if "watch" in request.query else "")
