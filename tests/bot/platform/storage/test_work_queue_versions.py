"""Items that a worker leaves to one of a newer version, while both run."""

from dataclasses import replace

import pytest

from bot.platform.storage import work_queue
from bot.platform.storage.work_queue import MAX_STARTS, Queue
from tests.bot.platform.storage.queues import drain, got, sweep

pytestmark = pytest.mark.usefixtures("no_litter")
LEFT, DELAYED, STARTS = "sweepbot:queue:left", "sweepbot:queue:delayed", "sweepbot:queue:starts"


@pytest.fixture(autouse=True)
def long_delays(monkeypatch):
    """No delay ends by itself during a test."""
    monkeypatch.setattr(work_queue, "RETRY", replace(work_queue.RETRY, base=300.0))


@pytest.fixture
def older(redis):
    return [Queue(redis) for _ in range(3)]


async def leave(queue, item="a"):
    lease = await got(queue, wait=0)
    assert lease.item == sweep(item)
    return lease.failures, await queue.leave(lease)


async def expire(redis, item="a"):
    """As if the delay of a left item were over."""
    await redis.zadd(DELAYED, {item: 1})
    await redis.hset(LEFT, item, "1 " + (await redis.hget(LEFT, item)).decode().partition(" ")[2])


async def test_left_item_goes_at_once_to_each_worker_that_has_not_left_it(queue, older):
    await queue.add(sweep("a"))
    for each in older:
        await leave(each)
    for each in older:
        assert await each.get(wait=0) is None
    assert await drain(queue) == ["a"]


async def test_left_item_that_many_older_workers_are_woken_for_counts_one_failure(queue, older):
    """Each change in the cluster wakes the sweep, and most workers are older: the delay must not grow."""
    await queue.add(sweep("a"))
    left = [await leave(older[0])]
    for each in older * 5:
        await queue.add(sweep("a"))
        left.append(await leave(each))
    assert [failures for failures, _ in left] == [0, *[1] * 15]
    assert await drain(queue) == ["a"]


async def test_left_item_that_no_other_worker_takes_is_retried_after_growing_delays(
    queue, redis, monkeypatch
):
    monkeypatch.setattr(work_queue, "RETRY", replace(work_queue.RETRY, base=1.0))
    await queue.add(sweep("a"))
    for failures, longest in enumerate([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]):
        found, seconds = await leave(queue)
        assert (found, longest * 0.79 < seconds <= longest) == (failures, True)
        await expire(redis)
    await queue.done(await got(queue))


async def test_left_item_wakes_a_sleeping_worker_though_another_item_is_due_earlier(queue, redis):
    await queue.add_after(sweep("earlier"), 100)
    await queue.add(sweep("a"))
    await leave(queue)
    assert await redis.llen("sweepbot:queue:wake") == 1
    assert await drain(Queue(redis)) == ["a"]
    await queue.add(sweep("earlier"))
    assert await drain(queue) == ["earlier"]


async def test_left_item_that_another_worker_fails_or_delays_is_not_taken_earlier(queue, older):
    await queue.add(sweep("a"))
    await leave(older[0])
    await queue.fail(await got(queue))
    assert await older[1].get(wait=0) is None
    await queue.add(sweep("a"))
    await leave(older[0])
    await queue.done(await got(queue), again_after=1000)
    assert await older[1].get(wait=0) is None
    await queue.add(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_item_added_while_it_is_left_is_ready_for_all(queue):
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.add(sweep("a"))
    assert await queue.leave(lease) == 0
    assert await drain(queue) == ["a"]


async def test_item_left_without_its_lease_stays_with_its_new_worker(queue, redis):
    await queue.add(sweep("a"))
    silent = await got(Queue(redis, lease=0.01))
    await redis.zadd("sweepbot:queue:running", {"a": 1})
    other = await got(queue)
    assert await queue.leave(silent) == 0
    assert await queue.heartbeat(other)
    await queue.done(other)


async def test_left_suspect_beside_a_running_suspect_waits_a_second(queue, redis, older):
    for item in "ab":
        await queue.add(sweep(item))
    await redis.hset(STARTS, "a", 2)
    lease = await got(queue)
    await leave(older[0], "b")
    await redis.hset(STARTS, "b", 2)
    second, _ = await redis.time()
    assert await older[1].get(wait=0) is None
    assert await redis.zscore(DELAYED, "b") >= (second + 1) * 1000
    await queue.done(lease)
    await queue.add(sweep("b"))
    assert await drain(queue) == ["b"]


async def test_quarantine_that_only_a_newer_worker_can_report_stays_to_be_reported(queue, redis):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await queue.fail(await got(queue), permanent="KeyError: 'x'")
        await queue.add(sweep("a"))
    for _ in range(10):
        lease = await got(queue)
        assert lease.quarantined == "KeyError: 'x'"
        await queue.leave(lease)
        await queue.add(sweep("a"))
    lease = await got(Queue(redis))
    assert lease.quarantined
    await queue.done(lease)
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]
