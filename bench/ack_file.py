"""What the file of unconfirmed requests adds to an acknowledgment: the same `serve` with and without it.

Both store each sweep in their own Redis; one also appends it to a file and flushes that to the disk.
"""

from contextlib import AsyncExitStack
from functools import partial

from bench.ack import ALONE, AT_ONCE, EACH, Server, over_http
from bench.site import site
from bench.table import Row, bounded, compared, interleaved

ROUNDS = 9
SERVE = ("-m", "bot", "serve")
WITHOUT = """
from bot.__main__ import main
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests

async def in_memory(self, one):
    self._keep(one)

UnconfirmedRequests._add = in_memory
main()
"""


async def run() -> list[Row]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(site()) for _ in range(2)]
        ours = await stack.enter_async_context(over_http(here, *SERVE))
        without = await stack.enter_async_context(over_http(there, "-c", WITHOUT, "serve"))
        return [
            row
            for at_once, each in ((1, ALONE), (AT_ONCE, EACH))
            for row in await _compare(ours, without, at_once, each)
        ]


async def _compare(ours: Server, without: Server, at_once: int, each: int) -> list[Row]:
    taken = await interleaved(ROUNDS, partial(ours.take, at_once, each), partial(without.take, at_once, each))
    what = f"/sweep acknowledged with its file flushed, HTTP, {at_once} at once"
    p50 = [[one.p50 for one in side] for side in taken]
    added = [with_file - memory for with_file, memory in zip(*p50, strict=True)]
    return [
        compared(f"{what}, p50", "in memory only", *p50, unit="ms"),
        bounded(f"{what}, added to p50", added, unit="ms", at_most=None),
    ]
