"""Leases: renewed while the body runs, lost, and taken from a dead worker."""

import asyncio
import signal
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisDown

from bot.platform.storage.work_queue import Lease, LeaseLostError, Queue, renewing
from tests.bot.platform.storage.queues import drain, empty, got, state_of, sweep
from tests.cases import cases

pytestmark = pytest.mark.usefixtures("no_litter")
ROOT = Path(__file__).parents[4]


async def test_item_of_a_silent_worker_goes_to_another(queue, redis):
    await queue.add(sweep("a"))
    silent = await got(Queue(redis, lease=0.3))
    await queue.add(sweep("a"))
    other = await got(queue)
    assert other.item.key == "a"
    assert not await queue.heartbeat(silent)
    await queue.done(silent)
    assert await queue.fail(silent) == 0
    assert await state_of(redis, queue, "a") == "running", "a worker without its lease changes nothing"
    await queue.done(other)


async def test_item_with_an_expired_lease_is_lost_to_its_worker_first(queue, redis):
    await queue.add(sweep("a"))
    silent = await got(queue)
    await queue.add(sweep("b"))
    await redis.zadd("sweepbot:queue:running", {"a": 1})  # as if its lease had been over for long
    other = await got(queue)
    assert other.item.key == "b"
    assert not await queue.heartbeat(silent)
    await queue.done(other)
    assert await drain(queue) == ["a"]


async def test_item_of_a_killed_worker_goes_to_another(redis, redis_url):
    queue = Queue(redis)
    await queue.add(sweep("a"))
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, redis_url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await worker.stdout.readline() == b"a\n"
    finally:
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
    await queue.done(await got(queue))


WORKER = """
import asyncio, sys
from bot.platform.storage.work_queue import Queue
from bot.platform.storage.redis_client import connect

async def main():
    queue = Queue(connect(sys.argv[1]), lease=0.6)
    lease = await queue.get(wait=20)
    async with queue.renewing(lease):
        print(lease.item, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def hold_forever(holding):
    async with asyncio.timeout(200), holding:
        await asyncio.Event().wait()


async def test_lease_lasts_as_long_as_the_body(redis, wait_until):
    queue = Queue(redis, lease=1.5)
    await queue.add(sweep("a"))
    lease = await got(queue)
    keys, runs = set(), set()  # when the lease's key expires and the item's run ends

    async def renewed_twice():
        keys.add(await redis.pexpiretime(queue.lease_key(sweep("a"))))
        runs.add(await redis.zscore("sweepbot:queue:running", "a"))
        return len(keys) > 2 and len(runs) > 2

    async with queue.renewing(lease):
        await wait_until(renewed_twice, "the lease was renewed twice")
    await queue.done(lease)
    assert await drain(queue) == []


async def test_body_with_a_lost_lease_is_cancelled(redis, queue):
    queue = Queue(redis, lease=0.3)
    await queue.add(sweep("a"))
    lease = await got(queue)
    await redis.set(queue.lease_key(sweep("a")), "another's token", px=60_000)
    with pytest.raises(LeaseLostError):
        await hold_forever(queue.renewing(lease))
    await queue.done(Lease(sweep("a"), "another's token", 0))


async def test_body_is_cancelled_when_redis_is_silent_for_a_whole_lease():
    async def renew():
        raise RedisDown("gone")

    with pytest.raises(LeaseLostError):
        await hold_forever(renewing(0.1, renew))


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop without I/O, whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self):
        super().__init__()
        self.now, select = 0.0, self._selector.select

        def jump(timeout=None):
            self.now += timeout or 0
            return select(0)

        self._selector.select = jump

    def time(self):
        return self.now


@cases(("failures", "survives"), [(0, True), (1, True), (3, True), (4, False)])
@cases("hangs", [True, False])
def test_renewal_that_hangs_or_fails_is_tried_again_within_the_lease(hangs, failures, survives):
    calls = []

    async def renew():
        calls.append(loop.time())
        if len(calls) <= failures and hangs:
            await asyncio.Event().wait()
        if len(calls) <= failures:
            raise RedisDown("gone")
        return True

    async def body():
        async with renewing(30, renew):
            await asyncio.sleep(35)

    async def lost():
        with pytest.raises(LeaseLostError):
            await body()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        loop = runner.get_loop()
        runner.run(body() if survives or not hangs else lost())
    assert calls[0] == 10
    assert all(later - earlier < 11 for earlier, later in pairwise(calls))


async def test_body_exception_is_raised_unchanged():
    async def renew():
        return True

    with pytest.raises(TimeoutError):
        async with renewing(60, renew):
            raise TimeoutError


async def test_cancelling_the_caller_is_no_lost_lease():
    async def renew():
        return True

    task = asyncio.create_task(hold_forever(renewing(60, renew)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_twenty_workers_run_each_item_alone_and_after_its_last_add(queue, redis, wait_until):
    wanted, seen, running, runs = Counter(), Counter(), set(), Counter()

    async def work():
        while True:
            lease = await queue.get()
            if lease is None:
                continue
            assert lease.item.key not in running, "two workers on one item"
            running.add(lease.item.key)
            knows = wanted[lease.item.key]
            await asyncio.sleep(0.002)
            seen[lease.item.key] = knows
            running.discard(lease.item.key)
            runs[lease.item.key] += 1
            if runs[lease.item.key] % 7 == 3:
                await queue.fail(lease)
                await command(lease.item.key)
            else:
                await queue.done(lease)

    async def command(item):
        wanted[item] += 1
        await queue.add(sweep(item))

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(20)]
        for _ in range(10):
            await asyncio.gather(*(command(f"sweep-{n}") for n in range(30)))
        await wait_until(lambda: seen == wanted, "every item ran after its last add")
        await wait_until(lambda: empty(redis), "the queue is empty")
        for worker in workers:
            worker.cancel()
    assert runs <= wanted, "no add causes more than one run"
