"""The work queue: order, delays, sleeping workers, and every operation in every state."""

import asyncio
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import RedisError

from bot.platform.storage import queue_scripts
from bot.platform.storage import work_queue as queue_module
from bot.platform.storage.redis_client import connect
from bot.platform.storage.work_queue import Queue
from tests.bot.platform.storage.queues import blocked, drain, got, state_of, sweep

pytestmark = pytest.mark.usefixtures("no_litter")


async def test_items_run_once_and_the_one_that_is_ready_longest_first(queue):
    for _ in range(10):
        await queue.add(sweep("lr-brave-otter"))
    assert await drain(queue) == ["lr-brave-otter"]
    for item in ("c", "a", "b", "c"):
        await queue.add(sweep(item))
    assert await drain(queue) == ["c", "a", "b"]


async def test_done_ends_one_run_and_delays_or_begins_the_next(queue, redis):
    for item in ("a", "b"):
        await queue.add(sweep(item))
    second = await queue.done_and_get(await got(queue))
    assert second.item.key == "b"
    assert await queue.done_and_get(second) is None
    assert await drain(queue) == []
    await queue.add(sweep("a"))
    await queue.done(await got(queue), again_after=1000)
    assert await state_of(redis, queue, "a") == "delayed"
    await queue.add_after(sweep("a"), 0.01)
    await queue.done(await got(queue))


async def rung(redis):
    return (await redis.info("commandstats"))["cmdstat_rpush"]["calls"]


async def test_delayed_item_wakes_a_worker_only_before_the_end_of_its_wait(queue, redis, wait_until):
    """A sweep whose message is edited later is delayed to the same moment after each of its changes."""
    await queue.add(sweep("a"))
    await queue.done(await got(queue), again_after=0.9 * queue_module.MAX_BLOCK_SECONDS)
    await queue.add(sweep("a"))
    lease = await got(queue)
    waiting = asyncio.create_task(got(queue))
    await wait_until(lambda: blocked(redis, 1), "the worker sleeps in Redis")
    before = await rung(redis)
    await queue.done(lease, again_after=0.95 * queue_module.MAX_BLOCK_SECONDS)
    assert await rung(redis) == before
    lease = await waiting
    waiting, before = asyncio.create_task(got(queue)), await rung(redis)
    await wait_until(lambda: blocked(redis, 1), "the worker sleeps in Redis")
    await queue.done(lease, again_after=0.01)
    assert await rung(redis) > before
    await queue.done(await waiting)


@pytest.mark.parametrize("order", [("soon", "later"), ("later", "soon")])
async def test_idle_worker_waits_for_the_first_item_that_it_or_another_delayed(redis, monkeypatch, order):
    monkeypatch.setattr(queue_module, "MAX_BLOCK_SECONDS", 1000)
    queue, slept = Queue(redis, lease=4000), []

    async def blpop(_, **how):
        slept.append(how["timeout"])
        await queue.add(sweep("soon"))

    monkeypatch.setattr(redis, "blpop", blpop)
    for item in order:
        await queue.add(sweep(item))
    leases = {lease.item.key: lease for lease in (await got(queue), await got(queue))}
    for item in order:
        await queue.done(leases[item], again_after=100 if item == "soon" else 900)
    await queue.done(await got(queue, wait=1000))
    assert len(slept) == 1
    assert 50 < slept[0] < 101
    await queue.add_after(sweep("soon"), 50)
    other = Queue(redis, lease=4000)
    await other.done(await got(other, wait=1000))
    assert len(slept) == 2
    assert 0 < slept[1] < 51
    await queue.add(sweep("later"))
    assert await drain(queue) == ["later"]


async def test_idle_worker_looks_again_for_an_item_whose_delay_passed_while_it_looked(redis, monkeypatch):
    """That item rings for no one: it was finished while this worker waited for less than its delay."""
    monkeypatch.setattr(queue_module, "MAX_BLOCK_SECONDS", 0.05)
    queue, slept, late = Queue(redis, lease=4000), [], asyncio.Event()
    run, finishing = queue._run, []

    async def blpop(_, **how):
        slept.append(how["timeout"])
        if not finishing:
            finishing.append(asyncio.create_task(queue.done(lease, again_after=0.1)))
            await asyncio.sleep(0)

    async def slow(script, *args):
        if script is queue_scripts.DONE:
            await late.wait()
        answer = await run(script, *args)
        if script is queue_scripts.TAKE and finishing and not late.is_set():
            monkeypatch.setattr(queue_module, "MAX_BLOCK_SECONDS", 1000)
            await asyncio.sleep(0.11)
            late.set()
            await finishing[0]
        return answer

    await queue.add(sweep("a"))
    lease = await got(queue)
    monkeypatch.setattr(redis, "blpop", blpop)
    monkeypatch.setattr(queue, "_run", slow)
    await queue.done(await got(queue, wait=1000))
    assert max(slept[1:]) < 1


async def test_get_reports_the_seconds_since_the_item_was_due(queue, redis):
    await queue.add(sweep("a"))
    await redis.zincrby("sweepbot:queue:ready", -60_000, "a")
    lease = await got(queue)
    assert 60 <= lease.waited < 6_000
    await queue.done(lease)


async def test_get_never_returns_a_running_item(queue):
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.add(sweep("a"))
    assert await queue.get(wait=0) is None
    await queue.done(lease)
    assert await drain(queue) == ["a"], "an item added during its run runs once more"


async def test_hurry_applies_to_failed_items_and_not_to_delayed_ones(queue):
    for _ in range(8):
        await queue.add(sweep("failed"))
        await queue.fail(await got(queue))
    await queue.add_after(sweep("later"), 60)
    assert await drain(queue) == []
    assert [await queue.is_due(sweep(item)) for item in ("failed", "later", "none")] == [True, False, False]
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
    for item in "abc":
        await queue.add(sweep(item))
        assert await redis.llen("sweepbot:queue:wake") == 1
    await redis.lpop("sweepbot:queue:wake")  # as a worker does that wakes
    leases = []
    for left in (1, 1, 0):
        leases.append(await got(queue))
        assert await redis.llen("sweepbot:queue:wake") == left
    for lease in leases:
        await queue.done(lease)


async def test_delayed_item_wakes_a_worker_if_it_is_due_before_all_others(queue, redis):
    """A sleeping worker knows when the earliest of the others is due, and always looks again after 2 s."""
    for item, seconds, woken in (("late", 60, 0), ("soon", 1.8, 1), ("later", 1.9, 0), ("sooner", 1.7, 1)):
        await queue.add_after(sweep(item), seconds)
        assert (item, await redis.llen("sweepbot:queue:wake")) == (item, woken)
        await redis.delete("sweepbot:queue:wake")  # as a worker does that wakes
    for item in ("late", "soon", "later", "sooner"):
        await queue.add(sweep(item))
    assert sorted(await drain(queue)) == ["late", "later", "soon", "sooner"]


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
    """So the item of a dead worker runs again within 1.25 leases: nothing announces a death."""
    first, queue, slept = Queue(redis, lease=4), Queue(redis, lease=4), []
    await first.add(sweep("a"))
    held = await got(first)

    async def sleep(seconds):
        slept.append(seconds)
        await redis.delete(queue.lease_key(sweep("a")))
        await redis.zadd("sweepbot:queue:running", {"a": 1})

    monkeypatch.setattr(queue, "_sleep", sleep)
    again = await got(queue)
    assert (again.item.key, len(slept)) == ("a", 1)
    assert 0 < slept[0] <= 4 / 4
    await queue.done(held)
    await queue.done(again)


async def test_add_with_two_delays_keeps_the_shorter(queue, redis):
    for seconds in (1000, 10, 1000):
        await queue.add_after(sweep("a"), seconds)
    second, _ = await redis.time()
    assert await redis.zscore("sweepbot:queue:delayed", "a") < (second + 11) * 1000
    await queue.add(sweep("a"))
    assert await drain(queue) == ["a"]
    await queue.add_after(sweep("a"), 0)
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
    assert lease.failures == 0, "a good run clears the failures"
    await queue.done(lease)


async def test_add_during_a_failing_run_is_not_delayed(queue):
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.add(sweep("a"))
    assert await queue.fail(lease) == 0
    assert await drain(queue) == ["a"]


@pytest.mark.parametrize("is_next", [False, True])
async def test_item_whose_take_got_no_answer_is_ready_at_the_next_call_and_not_a_start_more(
    redis, monkeypatch, is_next
):
    queue = Queue(redis, lease=1000)
    await queue.add(sweep("first"))
    first = await got(queue)
    await queue.add(sweep("a"))
    run = queue._run

    async def lost(*args):
        await run(*args)
        raise RedisError("Connection closed by server.")

    with monkeypatch.context() as patched:
        patched.setattr(queue, "_run", lost)
        with pytest.raises(RedisError):
            await (queue.done_and_get(first) if is_next else queue.get(wait=0))
    assert await state_of(redis, queue, "a") == "running"
    again = await queue.get(wait=0)
    assert (again.item, again.starts) == (sweep("a"), 0)
    for lease in (first, again):
        await queue.done(lease)


async def test_release_hands_the_item_over_at_once_and_counts_no_failure(queue, redis):
    await queue.add(sweep("a"))
    await queue.fail(await got(queue))
    await queue.add(sweep("a"))
    lease = await got(queue)
    await queue.release(lease)
    again = await got(Queue(redis), wait=0)
    assert (again.item.key, again.failures, again.starts) == ("a", 1, 1)
    await queue.release(lease)
    assert await queue.heartbeat(again), "only a held lease can be released"
    await queue.done(again)


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
    ("leave", "running"): "delayed",
    ("leave", "running, ready"): "ready",
    ("leave", "running, delayed"): "delayed",
}
ACTS = st.tuples(
    st.sampled_from(["add", "add_after", "get", "done", "again", "release", "fail", "leave"]),
    st.sampled_from("abc"),
)


@given(st.lists(ACTS, max_size=40))
def test_every_operation_in_every_state_has_the_expected_result(redis_url, acts):
    asyncio.run(play(redis_url, acts))


async def play(redis_url, acts):
    """Play the acts on a queue where nothing becomes due by itself, and compare with the table."""
    states, leases = dict.fromkeys("abc", "absent"), {}
    async with connect(redis_url) as redis:
        queue = Queue(redis, prefix=f"table:{uuid.uuid4().hex}", lease=1000, most_starts=1000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue_module, "RETRY", replace(queue_module.RETRY, base=300.0))
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
    elif action in {"fail", "leave", "release"}:
        await getattr(queue, action)(leases.pop(item))
    else:
        await queue.done(leases.pop(item), again_after=1000 if action == "again" else None)
