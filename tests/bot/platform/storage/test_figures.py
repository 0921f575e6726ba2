"""The figures of /metrics against a queue and sweeps in a real Redis."""

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.events import Event
from bot.core.metrics import REGISTRY
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.platform.storage.queue_state import Figures
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from tests.bot.platform.storage.test_sweeps import record_for


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels)


def states():
    return {
        each: value("sweepbot_queue_items", state=each)
        for each in ("ready", "delayed", "running", "quarantined")
    }


async def test_the_queue_is_counted_by_state(redis):
    queue, figures = Queue(redis, most_starts=0), Figures(redis)
    await figures.refresh()
    assert set(states().values()) == {0}
    assert value("sweepbot_queue_oldest_ready_seconds") == 0
    for name in "abc":
        await queue.add(WorkItem.sweep(name))
    await queue.add_after(WorkItem.sweep("later"), 60)
    lease = await queue.get(wait=0)
    assert lease.quarantined  # with no start allowed, the first one is for the report
    assert 0 <= lease.waited < 60
    await redis.zadd("sweepbot:queue:ready", {"b": 1000.0})  # due since 1970
    await figures.refresh()
    assert states() == {"ready": 2, "delayed": 1, "running": 1, "quarantined": 1}
    assert value("sweepbot_queue_oldest_ready_seconds") > 1e9


async def test_sweeps_are_counted_by_phase_with_their_unsent_messages(redis):
    store, figures = Store(redis), Figures(redis)
    for name in ("lr-fast-fox", "lr-slow-fox"):
        await store.create(record_for(name, name), [name], name)
    await figures.refresh()
    assert value("sweepbot_sweeps", phase=Phase.RECEIVED) == 2
    assert value("sweepbot_messages_waiting") == 0
    queue = Queue(redis)
    await queue.add(WorkItem.sweep("lr-fast-fox"))
    lease = await queue.get(wait=0)
    sweep = (await store.get("lr-fast-fox")).to(Phase.REFUSED, record_for("x").since)
    await store.save(sweep.enqueue(Event(kind="released")), lease)
    await figures.refresh()
    assert value("sweepbot_sweeps", phase=Phase.RECEIVED) == 1
    assert value("sweepbot_sweeps", phase=Phase.REFUSED) == 1
    assert value("sweepbot_sweeps", phase="pending") == 0  # as in messages, not as stored
    assert value("sweepbot_messages_waiting") == 1


async def test_without_redis_the_page_says_so():
    async with Redis.from_url("redis://127.0.0.1:1", retry=None) as away:
        with pytest.raises(RedisError):
            await Figures(away).refresh()
    assert value("sweepbot_redis_up") == 0
