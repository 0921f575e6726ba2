"""One read for all callers at the same time."""

import asyncio

import pytest

from bot.clusters.shared_reads import SharedReads


async def test_failed_read_fails_for_every_caller_and_is_repeated_by_the_next():
    reads, calls = SharedReads(), []

    async def read():
        calls.append(1)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise ValueError("away")
        return 7

    failed = await asyncio.gather(*(reads.get("west", read) for _ in range(3)), return_exceptions=True)
    assert ([str(each) for each in failed], calls) == (["away"] * 3, [1])
    assert await reads.get("west", read) == 7


async def test_read_is_kept_for_a_while_and_then_repeated(wait_until):
    calls = []

    async def read():
        calls.append(1)
        return len(calls)

    kept = SharedReads(retention=3600.0)
    assert [await kept.get("west", read) for _ in range(1000)] == [1] * 1000
    kept.forget("west")
    assert await kept.get("west", read) == 2
    short = SharedReads(retention=0.0)
    before = await short.get("west", read)

    async def is_new():
        return await short.get("west", read) != before

    await wait_until(is_new, "it is read again")


async def test_cancelled_caller_leaves_the_read_to_the_others():
    reads, answered = SharedReads(), asyncio.Event()

    async def read():
        await answered.wait()
        return 7

    first, second = (asyncio.create_task(reads.get("west", read)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    answered.set()
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first
