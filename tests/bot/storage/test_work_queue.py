"""The work queue, against a real server."""

import asyncio
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisDown

from bot.core.work_item import WorkItem
from bot.storage import work_queue as queue_module
from bot.storage.redis_client import connect
from bot.storage.work_queue import MAX_STARTS, Lease, LeaseLostError, Queue, renewing

sweep = WorkItem.sweep
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("no_litter")


@pytest.fixture
def queue(redis):
    return Queue(redis)


async def got(queue, wait=20.0):
    lease = await queue.get(wait=wait)
    assert lease, "nothing was ready"
    return lease


async def drain(queue):
    """Run everything that is ready; the items, in order."""
    order = []
    while lease := await queue.get(wait=0):
        order.append(lease.item.key)
        await queue.done(lease)
    return order


async def test_add_repeated_runs_the_item_once(queue):
    for _ in range(10):
        await queue.add(sweep("lr-brave-otter"))
    assert await drain(queue) == ["lr-brave-otter"]


async def test_get_returns_the_item_that_is_ready_longest(queue):
    for item in ("c", "a", "b", "c"):
        await queue.add(sweep(item))
    assert await drain(queue) == ["c", "a", "b"]


async def test_get_never_returns_a_running_item(queue):
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.add(sweep("a"))
    assert await queue.get(wait=0) is None
    await queue.done(lease)
    assert await drain(queue) == ["a"], "what was added while it ran, once more"


async def test_hurry_applies_to_failed_items_and_not_to_delayed_ones(queue):
    for _ in range(8):
        await queue.add(sweep("failed"))
        await queue.fail(await got(queue))
    await queue.add_after(sweep("later"), 60)
    assert await drain(queue) == []
    await queue.hurry()
    assert await drain(queue) == ["failed"]
    await queue.add(sweep("later"))
    assert await drain(queue) == ["later"]


async def test_hurry_during_a_failing_run_repeats_the_item_at_once(queue):
    """It hung in a call of the outage that is over."""
    for _ in range(8):
        await queue.add(sweep("a"))
        await queue.fail(await got(queue))
    await queue.add(sweep("a"))
    hanging = await got(queue)
    await queue.hurry()
    assert await queue.fail(hanging) == 0
    assert await queue.fail(await got(queue)) > 100
    await queue.add(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_queue_works_with_a_decoding_client(redis_url):
    async with connect(redis_url, decode_responses=True) as redis:
        queue = Queue(redis)
        await queue.add(sweep("a"))
        assert (await got(queue)).item.key == "a"
        await redis.flushall()


async def test_add_wakes_a_sleeping_worker(queue, redis, wait_until):
    waiting = asyncio.create_task(queue.get(wait=20))
    await wait_until(lambda: blocked(redis, 1), "the worker sleeps in Redis")
    await queue.add(sweep("a"))
    lease = await waiting
    assert lease.item.key == "a"
    await queue.done(lease)


async def test_add_of_many_items_wakes_one_worker_each(queue, redis, wait_until):
    waiting = [asyncio.create_task(queue.get(wait=20)) for _ in range(5)]
    await wait_until(lambda: blocked(redis, 5), "all sleep in Redis")
    await asyncio.gather(*(queue.add(sweep(item)) for item in "abcde"))
    leases = await asyncio.gather(*waiting)
    assert sorted(lease.item.key for lease in leases) == list("abcde")
    for lease in leases:
        await queue.done(lease)


async def test_add_wakes_a_worker_and_remaining_items_wake_the_next(queue, redis):
    for item in "ab":
        await queue.add(sweep(item))
        assert await redis.llen("sweepbot:queue:wake") == 1
    leases = [await got(queue)]
    assert await redis.llen("sweepbot:queue:wake") == 1
    leases.append(await got(queue))
    assert await redis.llen("sweepbot:queue:wake") == 0
    for lease in leases:
        await queue.done(lease)


async def test_get_cancelled_while_sleeping_takes_no_item(queue, redis, wait_until):
    waiting = asyncio.create_task(queue.get(wait=20))
    await wait_until(lambda: blocked(redis, 1), "the worker sleeps in Redis")
    waiting.cancel()
    await asyncio.wait([waiting])
    await queue.add(sweep("a"))
    await queue.done(await got(queue))


async def test_delayed_item_wakes_a_sleeping_worker_when_due(queue, redis, wait_until):
    await queue.add_after(sweep("later"), 1000)
    waiting = asyncio.create_task(queue.get(wait=20))
    await wait_until(lambda: blocked(redis, 1), "the worker sleeps in Redis")
    await queue.add_after(sweep("soon"), 0.05)
    lease = await waiting
    assert lease.item.key == "soon"
    await queue.done(lease)
    await queue.add(sweep("later"))
    assert await drain(queue) == ["later"], "a plain add wins over a delay"


async def test_sleeping_worker_checks_for_expired_leases_four_times_per_lease(redis, monkeypatch):
    """So a dead worker's turn is begun again within 1.25 of its lease: no event tells of a death."""
    queue, slept = Queue(redis, lease=4), []
    await queue.add(sweep("a"))
    held = await got(queue)

    async def sleep(seconds):
        slept.append(seconds)
        await redis.delete(queue.lease_key(sweep("a")))
        await redis.zadd("sweepbot:queue:running", {"a": 1})

    monkeypatch.setattr(queue, "_sleep", sleep)
    again = await got(queue)
    assert (again.item.key, len(slept)) == ("a", 1)
    assert slept[0] <= 4 / 4
    await queue.done(held)
    await queue.done(again)


async def test_add_with_two_delays_keeps_the_shorter(queue, redis):
    for seconds in (1000, 10, 1000):
        await queue.add_after(sweep("a"), seconds)
    second, _ = await redis.time()
    assert await redis.zscore("sweepbot:queue:delayed", "a") < (second + 11) * 1000
    await queue.add(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_failures_double_the_delay_up_to_five_minutes(queue):
    for failures, longest in enumerate([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]):
        await queue.add(sweep("a"))
        lease = await got(queue)
        assert lease.failures == failures
        assert longest * 0.79 < await queue.fail(lease) <= longest
    await queue.add(sweep("a"))
    await queue.done(await got(queue))
    await queue.add(sweep("a"))
    lease = await got(queue)
    assert lease.failures == 0, "a good turn forgets them"
    await queue.done(lease)


async def test_add_during_a_failing_run_is_not_delayed(queue):
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.add(sweep("a"))
    assert await queue.fail(lease) == 0
    assert await drain(queue) == ["a"]


async def test_release_hands_the_item_over_at_once_and_counts_no_failure(queue, redis):
    await queue.add(sweep("a"))
    await queue.fail(await got(queue))
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.release(lease)
    again = await got(Queue(redis), wait=0)
    assert (again.item.key, again.failures) == ("a", 1)
    await queue.release(lease)
    assert await queue.heartbeat(again), "one may only give back what one holds"
    await queue.done(again)


async def test_done_with_again_after_delays_the_next_run(queue, redis):
    await queue.add(sweep("a"))
    await queue.done(await got(queue), again_after=1000)
    assert await state_of(redis, queue, "a") == "delayed"
    await queue.add_after(sweep("a"), 0.01)
    await queue.done(await got(queue))


async def test_item_of_a_silent_worker_goes_to_another(queue, redis):
    await queue.add(sweep("a"))
    silent = await got(Queue(redis, lease=0.3))
    await queue.add(sweep("a"))
    other = await got(queue)
    assert other.item.key == "a"
    assert not await queue.heartbeat(silent)
    await queue.done(silent)
    assert await queue.fail(silent) == 0
    assert await state_of(redis, queue, "a") == "running", "whoever lost the lease changes nothing"
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
from bot.storage.work_queue import Queue
from bot.storage.redis_client import connect
async def main():
    queue = Queue(connect(sys.argv[1]), lease=0.6)
    lease = await queue.get(wait=20)
    async with queue.renewing(lease):
        print(lease.item, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def hold_for_ever(holding):
    async with asyncio.timeout(20), holding:
        await asyncio.Event().wait()


async def test_lease_lasts_as_long_as_the_body(redis, wait_until):
    queue = Queue(redis, lease=1.5)
    await queue.add(sweep("a"))
    lease = await got(queue)
    keys, turns = set(), set()  # when the lease's key and the item's turn were to end

    async def renewed_twice():
        keys.add(await redis.pexpiretime(queue.lease_key(sweep("a"))))
        turns.add(await redis.zscore("sweepbot:queue:running", "a"))
        return len(keys) > 2 and len(turns) > 2

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
        await hold_for_ever(queue.renewing(lease))
    await queue.done(Lease(sweep("a"), "another's token", 0))


async def test_body_is_cancelled_when_redis_is_silent_for_a_whole_lease():
    async def renew():
        raise RedisDown("gone")

    with pytest.raises(LeaseLostError):
        await hold_for_ever(renewing(0.1, renew))


async def test_body_exception_is_raised_unchanged():
    async def renew():
        return True

    with pytest.raises(TimeoutError):
        async with renewing(60, renew):
            raise TimeoutError


async def test_cancelling_the_caller_is_no_lost_lease():
    async def renew():
        return True

    task = asyncio.create_task(hold_for_ever(renewing(60, renew)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_twenty_workers_run_each_item_alone_and_after_its_last_add(queue, redis, wait_until):
    wanted, seen, running, turns = Counter(), Counter(), set(), Counter()

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
            turns[lease.item.key] += 1
            if turns[lease.item.key] % 7 == 3:
                await queue.fail(lease)
                await ask(lease.item.key)
            else:
                await queue.done(lease)

    async def ask(item):
        wanted[item] += 1
        await queue.add(sweep(item))

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(20)]
        for _ in range(10):
            await asyncio.gather(*(ask(f"sweep-{n}") for n in range(30)))
        await wait_until(lambda: seen == wanted, "every item ran after its last add")
        await wait_until(lambda: empty(redis), "the queue is empty")
        for worker in workers:
            worker.cancel()
    assert turns <= wanted, "no add makes more than one turn"


async def dies(queue, redis, item="a"):
    """Its worker takes it, and is heard of no more."""
    lease = await got(queue)
    assert lease.item.key == item
    await redis.zadd("sweepbot:queue:running", {item: 1})
    return lease


async def test_item_that_kills_five_workers_is_quarantined_and_reported_once(queue, redis):
    await queue.add(sweep("a"))
    assert [(await dies(queue, redis)).quarantined for _ in range(MAX_STARTS)] == [""] * MAX_STARTS
    lease = await got(queue)
    assert lease.quarantined == "the worker died"
    await queue.add(sweep("a"))
    await queue.done(lease)
    await queue.add(sweep("a"))
    await queue.add_after(sweep("a"), 0)
    assert await queue.get(wait=0) is None
    held = await queue.quarantined()
    assert {item: each.why for item, each in held.items()} == {"a": "the worker died"}
    assert not await queue.retry(sweep("b"))
    assert await queue.retry(sweep("a"))
    assert (await queue.quarantined(), await drain(queue)) == ({}, ["a"])


async def test_successful_run_resets_the_start_counter(queue, redis):
    await queue.add(sweep("a"))
    for ends in (queue.done, queue.fail):
        for _ in range(MAX_STARTS - 1):
            await dies(queue, redis)
        await ends(await got(queue))
        await queue.add(sweep("a"))
    assert (await dies(queue, redis)).quarantined == ""
    await queue.done(await got(queue))


async def test_repeated_permanent_errors_quarantine_with_their_text(queue):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await queue.fail(await got(queue), permanent="KeyError: 'x'")
        await queue.add(sweep("a"))
    lease = await got(queue)
    assert lease.quarantined == "KeyError: 'x'"
    await queue.done(lease)
    assert (await queue.quarantined())["a"].why == "KeyError: 'x'"
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_report_of_a_quarantine_is_retried_and_given_up_if_it_kills_too(queue, redis):
    await queue.add(sweep("a"))
    for _ in range(MAX_STARTS):
        await dies(queue, redis)
    for _ in range(10):
        await queue.fail(await got(queue))
        await queue.add(sweep("a"))
    for _ in range(3):
        assert (await dies(queue, redis)).quarantined
    assert await queue.get(wait=0) is None
    await queue.retry(sweep("a"), starts=1)
    assert (await dies(queue, redis)).quarantined == ""
    await queue.done(await got(queue))
    assert list(await queue.quarantined()) == ["a"], "one start was all it got"
    await queue.retry(sweep("a"))
    assert await drain(queue) == ["a"]


async def test_items_beside_a_crashing_one_are_not_quarantined(queue, redis):
    """One process runs four turns and dies of one of them; the others end, once they run without that one."""
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


async def blocked(redis, count):
    return (await redis.info("clients"))["blocked_clients"] == count


async def empty(redis):
    return await redis.dbsize() == 0


async def state_of(redis, queue, item):
    """absent, ready, delayed, running, or running and then ready or delayed."""
    prefix = queue.lease_key(sweep("")).removesuffix(":lease:")
    scores = {
        name: await redis.zscore(f"{prefix}:{name}", item)
        for name in ("ready", "delayed", "running", "again")
    }
    there = [name for name, score in scores.items() if score is not None]
    if there == ["running", "again"]:
        second, _ = await redis.time()
        return "running, ready" if scores["again"] < (second + 1) * 1000 else "running, delayed"
    assert len(there) <= 1, f"{item} is in {there}"
    assert (await redis.exists(queue.lease_key(sweep(item))) == 1) == (there == ["running"])
    return there[0] if there else "absent"


# What each act makes of each state. Acts of a worker happen to running items only.
AFTER = {
    ("add", "absent"): "ready",
    ("add", "ready"): "ready",
    ("add", "delayed"): "ready",
    ("add", "running"): "running, ready",
    ("add", "running, ready"): "running, ready",
    ("add", "running, delayed"): "running, ready",
    ("add_after", "absent"): "delayed",
    ("add_after", "ready"): "ready",
    ("add_after", "delayed"): "delayed",
    ("add_after", "running"): "running, delayed",
    ("add_after", "running, ready"): "running, ready",
    ("add_after", "running, delayed"): "running, delayed",
    ("done", "running"): "absent",
    ("done", "running, ready"): "ready",
    ("done", "running, delayed"): "delayed",
    ("again", "running"): "delayed",
    ("again", "running, ready"): "ready",
    ("again", "running, delayed"): "delayed",
    ("release", "running"): "ready",
    ("release", "running, ready"): "ready",
    ("release", "running, delayed"): "ready",
    ("fail", "running"): "delayed",
    ("fail", "running, ready"): "ready",
    ("fail", "running, delayed"): "delayed",
}
ACTS = st.tuples(
    st.sampled_from(["add", "add_after", "get", "done", "again", "release", "fail"]), st.sampled_from("abc")
)


@given(st.lists(ACTS, max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_operation_in_every_state_has_the_expected_result(redis_url, acts):
    asyncio.run(play(redis_url, acts))


async def play(redis_url, acts):
    """Play the acts on a queue where nothing becomes due by itself, and compare with the table."""
    states, leases = dict.fromkeys("abc", "absent"), {}
    async with connect(redis_url) as redis:
        queue = Queue(redis, prefix=f"table:{uuid.uuid4().hex}", lease=1000, most_starts=1000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue_module, "FIRST_DELAY", 300.0)
            for action, item in acts:
                if action == "get":
                    await take(queue, states, leases)
                elif after := AFTER.get((action, states[item])):
                    await do(queue, action, item, leases)
                    states[item] = after
                assert {one: await state_of(redis, queue, one) for one in "abc"} == states
        await redis.flushall()


async def take(queue, states, leases):
    lease = await queue.get(wait=0)
    ready = [item for item, state in states.items() if state == "ready"]
    assert (lease.item.key in ready) if lease else not ready
    if lease:
        leases[lease.item.key] = lease
        states[lease.item.key] = "running"


async def do(queue, action, item, leases):
    if action == "add":
        await queue.add(sweep(item))
    elif action == "add_after":
        await queue.add_after(sweep(item), 1000)
    elif action in {"fail", "release"}:
        await getattr(queue, action)(leases.pop(item))
    else:
        await queue.done(leases.pop(item), again_after=1000 if action == "again" else None)
