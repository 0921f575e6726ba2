"""A first change wakes at once, a burst after it once more; without the lead, only what the leader missed."""

import itertools
import math
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from bot.core.work_item import WorkItem
from bot.platform.storage.work_queue import Queue
from bot.sweep.sweeps import wakes as wakes_module
from bot.sweep.sweeps.wakes import BACKUP_SECONDS, BATCH_SECONDS, BUSY_SECONDS, Wakes
from k8s.api.cache import Change
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from k8s.retry import Retry


class World:
    """`active`: unfinished sweeps; `trips`: number of queries to Redis, without the wakes."""

    def __init__(self):
        self.now, self.woken, self.active, self.trips, self.away = 0.0, [], {"a", "b"}, 0, False
        store = SimpleNamespace(active_of=self._active_of, concerned_by=self._concerned_by)
        clients = SimpleNamespace(store=store, queue=SimpleNamespace(wake=self._wake))
        self.wakes = Wakes(clients, clock=lambda: self.now)

    async def _wake(self, wakes):
        if self.away:
            raise RedisConnectionError
        self.woken += [each.item.key for each in wakes]

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


class TwoWorkers:
    """A leader and another worker on one queue in Redis, both with a clock that the test sets."""

    def __init__(self, redis):
        self.now, self.queue = 0.0, Queue(redis, prefix="test")
        store = SimpleNamespace(active_of=self._all, concerned_by=self._all)
        clients = SimpleNamespace(store=store, queue=self.queue)
        self.leader, self.other = (Wakes(clients, clock=lambda: self.now) for _ in range(2))
        self.other.leads = False

    async def _all(self, ids):
        return set(ids)

    async def sees(self, wakes, version, *, kind="Pod", label=SWEEP_LABEL, after=0.0):
        """A worker sees a change of the sweep, and looks `after` so many seconds."""
        wakes.add(Change((label, "a"), live=True, initial=False, kind=kind, version=version))
        await self.looks(wakes, after=after)

    async def looks(self, wakes, *, after=0.0):
        self.now += after
        if wakes._pause() == 0:
            await wakes.send()

    async def reconciles(self, wakes):
        """A worker reconciles the sweep, if it was woken; returns whether it was."""
        if (lease := await self.queue.get(wait=0)) is None:
            return False
        wakes.started(lease)
        await self.queue.done(lease)
        return True


def without_reply(call):
    async def interrupted(wakes):
        await call(wakes)
        raise RedisConnectionError

    return interrupted


@pytest.fixture
def two(redis):
    return TwoWorkers(redis)


async def test_other_worker_drops_a_change_that_the_leader_woke_for(two):
    await two.sees(two.other, 5)
    await two.sees(two.leader, 5)
    assert await two.reconciles(two.leader)
    await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert two.other._pause() is None
    assert not await two.reconciles(two.other)


async def test_wake_whose_reply_was_lost_is_repeated_without_a_second_reconcile(two, monkeypatch):
    await two.sees(two.other, 5)
    with monkeypatch.context() as patch:
        patch.setattr(two.queue, "wake", without_reply(two.queue.wake))
        with pytest.raises(RedisConnectionError):
            await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert await two.reconciles(two.leader)
    await two.looks(two.other)
    assert two.other._pause() is None
    assert not await two.reconciles(two.leader)


@pytest.mark.parametrize("seen_by_leader", [(), (4,), (math.inf,)], ids=["dead", "behind", "deleted"])
async def test_other_worker_wakes_within_two_seconds_what_the_leader_did_not_see(two, seen_by_leader):
    for version in seen_by_leader:
        await two.sees(two.leader, version)
        assert await two.reconciles(two.leader)
    await two.sees(two.other, 5)
    assert not await two.reconciles(two.other)
    await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert await two.reconciles(two.other)


async def test_newer_change_of_another_kind_hides_none_that_the_leader_did_not_see(two):
    """The leader's watch of Trials is dead, and the one of pods isn't."""
    await two.sees(two.leader, 9)
    assert await two.reconciles(two.leader)
    await two.sees(two.other, 5, kind="Trial")
    await two.sees(two.other, 9)
    await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert await two.reconciles(two.other)


async def test_change_of_a_build_wakes_beside_one_that_the_leader_woke_for(two):
    await two.sees(two.leader, 5)
    assert await two.reconciles(two.leader)
    await two.sees(two.other, 5)
    two.now += 2 * BACKUP_SECONDS
    await two.sees(two.other, 7, kind="Job", label=BUILD_LABEL)
    assert await two.reconciles(two.other)


async def test_stored_wake_of_another_format_counts_as_none(two, redis):
    await redis.set("test:woken:a:Pod", "a newer format", px=60_000)
    await two.sees(two.other, 5)
    await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert await two.reconciles(two.other)


async def test_other_worker_looks_once_a_second_for_all_that_waited_long_enough(world):
    world.wakes.leads = False
    looked = {}
    for sweep, at in (("a", 0.1), ("b", 0.9), ("a", 1.1), ("c", 1.5)):
        world.now = at
        world.changed(sweep)
    for _ in range(20):
        world.now += world.wakes._pause() or 0
        if found := await world.sent():
            looked[world.now] = found
    assert looked == {2.0: ["a", "b"], 3.0: ["c"]}
    assert world.wakes._pause() is None


@pytest.mark.parametrize("late", [0.1, 30 * BACKUP_SECONDS])
async def test_worker_that_reconciled_before_it_saw_the_change_wakes_again(two, late):
    await two.sees(two.leader, 5)
    assert await two.reconciles(two.other), "its memory is older than the wake"
    two.now += late
    await two.sees(two.other, 5)
    at_once = await two.reconciles(two.other)
    await two.looks(two.other, after=2 * BACKUP_SECONDS)
    assert (at_once, await two.reconciles(two.other)) == ((late < BACKUP_SECONDS), late > BACKUP_SECONDS)


async def test_reconcile_here_reads_what_waits_for_the_leader(two):
    await two.sees(two.other, 5)
    await two.queue.add(WorkItem.sweep("a"))
    assert await two.reconciles(two.other)
    assert two.other._pause() is None


async def test_next_leader_wakes_at_once_what_waited(two):
    await two.sees(two.other, 5)
    two.other.leads = True
    await two.looks(two.other)
    assert await two.reconciles(two.other)
