"""The first change wakes at once, a burst after it once more, and Redis can be unreachable."""

import itertools
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from bot.sweep.sweeps import wakes as wakes_module
from bot.sweep.sweeps.wakes import BATCH_SECONDS, BUSY_SECONDS, Wakes
from k8s.api.cache import Change
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from k8s.retry import Retry


class World:
    """`active`: unfinished sweeps; `trips`: number of queries to Redis, without the wakes."""

    def __init__(self):
        self.now, self.woken, self.active, self.trips, self.away = 0.0, [], {"a", "b"}, 0, False
        store = SimpleNamespace(active_of=self._active_of, concerned_by=self._concerned_by)
        clients = SimpleNamespace(store=store, wake=self._wake)
        self.wakes = Wakes(clients, clock=lambda: self.now)

    async def _wake(self, sweep):
        if self.away:
            raise RedisConnectionError
        self.woken.append(sweep)

    async def _active_of(self, ids):
        self.trips += 1
        return self.active & set(ids)

    async def _concerned_by(self, build):
        self.trips += 1
        return {"a", "b"}

    def changed(self, *sweeps, live=True, initial=False, label=SWEEP_LABEL):
        for sweep in sweeps:
            self.wakes.add(Change((label, sweep), live, initial))

    async def sent(self, *, after=0.0):
        """What is woken now, `after` so many seconds."""
        self.now += after
        self.woken.clear()
        await self.wakes.send()
        return sorted(self.woken)


@pytest.fixture
def world():
    return World()


async def test_first_change_wakes_at_once_and_a_burst_after_it_once(world):
    world.changed("a")
    assert await world.sent() == ["a"]
    for _ in range(50):
        world.changed("a")
        assert await world.sent() == []
    assert await world.sent(after=BATCH_SECONDS) == ["a"]
    assert await world.sent(after=BATCH_SECONDS) == []
    assert world.trips == 0


async def test_sweep_that_changes_all_the_time_is_woken_more_often_until_it_rests(world):
    woken = []
    for _ in range(200):
        world.changed("a")
        woken += [world.now] * len(await world.sent(after=0.01))
    pauses = [then - since for since, then in itertools.pairwise(woken)]
    assert pauses[0] == pytest.approx(BATCH_SECONDS, abs=0.011)
    assert pauses[1:] == pytest.approx([BUSY_SECONDS] * 17, abs=0.011)
    await world.sent(after=3 * BATCH_SECONDS)
    await world.sent(after=3 * BATCH_SECONDS)
    world.changed("a")
    assert await world.sent() == ["a"]
    world.changed("a")
    assert await world.sent(after=1.5 * BUSY_SECONDS) == []


async def test_change_after_a_wake_wakes_again(world):
    world.changed("a")
    await world.sent()
    world.changed("a", live=False)
    world.changed("a", live=True)
    world.changed("a", live=False)
    assert await world.sent(after=BATCH_SECONDS) == ["a"]
    assert world.trips == 0, "something lives: it matters whether the sweep has ended or not"


async def test_wakes_are_coalesced_per_sweep(world):
    world.changed("a")
    await world.sent()
    world.changed("a", "b")
    assert await world.sent() == ["b"]
    assert await world.sent(after=BATCH_SECONDS) == ["a"]


async def test_changes_of_many_ended_sweeps_query_redis_once(world):
    world.changed(*(f"ended-{n}" for n in range(100)), "b", live=False)
    assert (await world.sent(), world.trips) == (["b"], 1)


async def test_first_list_of_a_thousand_objects_queries_redis_once_and_wakes_ended_sweeps_only(world):
    for _ in range(500):
        world.changed("a", "stray", initial=True)
    assert (await world.sent(), world.trips) == (["stray"], 1)


async def test_build_wakes_every_sweep_that_waits_for_it(world):
    world.changed("build-1", live=False, label=BUILD_LABEL)
    assert await world.sent() == ["a", "b"]


async def test_wakes_that_redis_rejected_are_sent_later(world):
    world.changed("a")
    world.changed("stray", initial=True)
    world.away = True
    with pytest.raises(RedisConnectionError):
        await world.sent()
    world.changed("a", live=False)
    world.away = False
    assert await world.sent() == ["a", "stray"]


async def test_loop_sends_due_wakes_and_continues_after_an_outage(world, wait_until, monkeypatch):
    monkeypatch.setattr(wakes_module, "REDIS_RETRY", Retry(base=0.01))
    monkeypatch.setattr(world.wakes, "_clock", wakes_module.monotonic)
    world.away = True
    world.changed("a")
    running = wakes_module.asyncio.create_task(world.wakes.run())
    await wakes_module.asyncio.sleep(0.05)
    world.away = False
    await wait_until(lambda: world.woken == ["a"], "it is sent")
    world.changed("a")
    await wait_until(lambda: world.woken == ["a", "a"], "what followed is sent without another change")
    running.cancel()
    await wakes_module.asyncio.wait([running])
