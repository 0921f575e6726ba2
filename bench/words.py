"""`/sweep list` and `/sweep status NAME` with 1,000 ended sweeps kept, beside 10; 20 commands a second."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from statistics import median

from redis.asyncio import Redis

from bench.child import child
from bench.site import Site, site
from bench.slack_calls import Line, first_answer
from bench.table import Row, compared, interleaved
from bot.core.record import Phase, SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import Store
from local.slack.workspace import ADA
from tests.free_port import free_port

FEW, MANY = 10, 1000
ROUNDS, COMMANDS, PAUSE = 7, 40, 0.05  # seconds between two commands
NOW = datetime.now(UTC)


async def run() -> list[Row]:
    async with AsyncExitStack() as stack:
        few, many = [await _serving(stack, kept) for kept in (FEW, MANY)]
        rows = []
        for text in ("list", "status lr-0007"):
            takes = [partial(_take, port, text) for port in (many, few)]
            figures = await interleaved(ROUNDS, *takes)
            what = f"/sweep {text.split()[0]}, {MANY:,} ended sweeps kept"
            rows.append(compared(what, f"{FEW} kept", *figures, unit="ms", at_most=1.5))
        return rows


async def _serving(stack: AsyncExitStack, kept: int) -> int:
    """Start `serve` with so many ended sweeps in its Redis; return its port."""
    here: Site = await stack.enter_async_context(site())
    async with connect(here.redis_url) as redis:
        await _fill(redis, kept)
    port = free_port()
    env = {**here.env, "SLACK_MODE": "http", "HTTP_PORT": str(port)}
    await stack.enter_async_context(child("-m", "bot", "serve", env=env))
    await first_answer(port)
    return port


async def _fill(redis: Redis, kept: int) -> None:
    store = Store(redis)
    for number in range(kept):
        await store.restore(
            SweepRecord(
                id=f"lr-{number:04}",
                namespace="sweeps",
                request=SweepRequest(branch="main", space="lr"),
                requester=Requester(user=ADA.id, user_name="ada", channel="C1"),
                request_id=f"request-{number}",
                created=NOW,
                since=NOW,
                phase=Phase.SUCCEEDED,
            )
        )
    now = NOW.timestamp()  # one ended every ten minutes
    await redis.zadd("sweepbot:recent", {f"lr-{number:04}": now - 600 * number for number in range(kept)})


async def _take(port: int, text: str) -> float:
    """Return the median milliseconds until an answer."""
    line = await Line.open(port)
    times = []
    for _ in range(COMMANDS):
        times.append(1000 * await line.call(text))
        await asyncio.sleep(PAUSE)
    line.close()
    return median(times)
