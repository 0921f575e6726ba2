"""Quarantine: items that kill their workers or fail for good are left out, and reported."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.platform.storage.work_queue import MAX_STARTS
from tests.bot.platform.storage.queues import drain, got, sweep

pytestmark = pytest.mark.usefixtures("no_litter")


async def crash(queue, redis, item="a"):
    """Take the item with a worker that then dies."""
    lease = await got(queue, wait=0)
    assert lease.item.key == item
    await redis.zadd("sweepbot:queue:running", {item: 1})
    return lease


async def test_item_that_kills_five_workers_is_quarantined_and_reported_once(queue, redis):
    await queue.add(sweep("a"))
    assert [(await crash(queue, redis)).quarantined for _ in range(5)] == [""] * 5
    lease = await got(queue, wait=0)
    assert lease.quarantined == "the worker died"
    await queue.add(sweep("a"))
    await queue.done(lease)
    await queue.add(sweep("a"))
    await queue.add_after(sweep("a"), 0)
    assert await queue.get(wait=0) is None
    held = await queue.quarantined()
    assert {item: each.why for item, each in held.items()} == {"a": "the worker died"}
    assert abs(datetime.now(UTC) - held["a"].since) < timedelta(hours=1)
    assert not await queue.retry(sweep("b"))
    assert await queue.retry(sweep("a"))
    assert (await queue.quarantined(), await drain(queue)) == ({}, ["a"])


async def test_successful_run_resets_the_start_counter(queue, redis):
    await queue.add(sweep("a"))
    for ends in (queue.done, queue.fail):
        for _ in range(MAX_STARTS - 1):
            await crash(queue, redis)
        await ends(await got(queue, wait=0))
        await queue.add(sweep("a"))
    assert (await crash(queue, redis)).quarantined == ""
    await queue.done(await got(queue, wait=0))


async def test_repeated_permanent_errors_quarantine_with_their_text(queue):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await queue.fail(await got(queue, wait=0), permanent="KeyError: 'x'")
        await queue.add(sweep("a"))
    lease = await got(queue, wait=0)
    assert lease.quarantined == "KeyError: 'x'"
    await queue.done(lease)
    assert (await queue.quarantined())["a"].why == "KeyError: 'x'"
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_long_permanent_error_is_stored_to_500_characters(queue):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await queue.fail(await got(queue, wait=0), permanent="x" * 999)
        await queue.add(sweep("a"))
    lease = await got(queue, wait=0)
    assert lease.quarantined == "x" * 500
    await queue.done(lease)
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_report_of_a_quarantine_is_retried_and_given_up_if_it_kills_too(queue, redis):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await crash(queue, redis)
    for _ in range(10):
        await queue.fail(await got(queue, wait=0))
        await queue.add(sweep("a"))
    for _ in range(3):
        assert (await crash(queue, redis)).quarantined
    assert await queue.get(wait=0) is None
    await queue.retry(sweep("a"), starts=1)
    assert (await crash(queue, redis)).quarantined == ""
    await queue.done(await got(queue, wait=0))
    assert list(await queue.quarantined()) == ["a"], "one start was all it got"
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_items_beside_a_crashing_one_are_not_quarantined(queue, redis):
    """One process runs four items and dies of one of them; the others finish once they run without it."""
    for item in ("innocent-1", "innocent-2", "culprit", "innocent-3"):
        await queue.add(sweep(item))
    ended = set()
    for _ in range(20):
        leases = [lease for _ in range(4) if (lease := await queue.get(wait=0))]
        if any(lease.item.key == "culprit" and not lease.quarantined for lease in leases):
            for lease in leases:
                await redis.zadd("sweepbot:queue:running", {lease.item.key: 1})
        else:
            for lease in leases:
                ended.add(lease.item.key)
                await queue.done(lease)
        for item in await redis.zrange("sweepbot:queue:delayed", 0, -1):
            await redis.zadd("sweepbot:queue:delayed", {item: 1})
    assert list(await queue.quarantined()) == ["culprit"]
    assert {"innocent-1", "innocent-2", "innocent-3"} <= ended
    await queue.retry(sweep("culprit"))
    await drain(queue)


async def test_suspect_beside_a_running_suspect_waits_a_second(queue, redis):
    for item in ("a", "b"):
        await queue.add(sweep(item))
        await redis.hset("sweepbot:queue:starts", item, 2)
    lease = await got(queue, wait=0)
    second, _ = await redis.time()
    assert await queue.get(wait=0) is None
    assert await redis.zscore("sweepbot:queue:delayed", "b") >= (second + 1) * 1000
    await queue.done(lease)
    await queue.add(sweep("b"))
    for _ in range(MAX_STARTS - 2):
        await crash(queue, redis, "b")
    lease = await got(queue, wait=0)
    assert lease.quarantined, "the wait forgets no start"
    await queue.done(lease)
    await queue.retry(sweep("b"))
    assert await drain(queue) == ["b"]
