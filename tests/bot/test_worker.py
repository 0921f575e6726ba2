"""The end of a worker: turns under way may end, others take over at once what could not."""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from bot import app, work_process, worker
from bot.core.errors import RetryAfterError
from bot.core.masking import Mask
from bot.core.record import NewerRecordError
from bot.core.work_item import ItemKind, WorkItem
from bot.runtime.log_format import JsonLines
from bot.runtime.probes import ProbeFailedError
from bot.storage import work_queue
from bot.storage.work_queue import MAX_STARTS, Lease, Queue
from bot.sweeps import informer, reconciler
from bot.sweeps.informer import SweepInformer
from bot.worker import Worker, keyed
from k8s import outage as outage_module
from k8s.cache import Caches
from k8s.errors import ApiError, UnreachableError
from tests.bot.factories import CONFIG, SETTINGS

SWEEP = "lr-brave-otter"
WATCH = WorkItem(ItemKind.IDLE_GPUS, "gpus")


class Turns:
    """In place of the reconciler: turns that last until they may end."""

    def __init__(self):
        self.begun, self.may_end, self.ended = [], asyncio.Event(), []

    async def __call__(self, lease):
        self.begun.append(lease.item.key)
        await self.may_end.wait()
        self.ended.append(lease.item.key)


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture
def queue(redis):
    return Queue(redis)


class Running:
    """A worker in a task."""

    def __init__(self, queue, handle, places=2, jobs=None):
        handlers = {ItemKind.SWEEP: handle} | (jobs or {})
        self.worker, self.stop = Worker(queue, places, handlers), asyncio.Event()
        self.task = asyncio.create_task(self.worker.run(self.stop))

    async def cancelled(self):
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_worker_stopping_finishes_the_current_item_and_starts_no_other(queue, turns, wait_until):
    running = Running(queue, turns)
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: turns.begun, "a turn has begun")
    running.stop.set()
    await queue.add(WorkItem.sweep("lr-calm-lynx"))
    await asyncio.wait([running.task], timeout=0.05)
    assert not running.task.done()
    turns.may_end.set()
    await running.task
    assert turns.begun == turns.ended == [SWEEP]
    assert (await queue.get(wait=0)).item.key == "lr-calm-lynx"


async def test_worker_stopping_releases_an_unfinished_item(queue, turns, redis, wait_until):
    running = Running(queue, turns)
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: turns.begun, "a turn has begun")
    running.stop.set()
    await running.cancelled()
    lease = await Queue(redis).get(wait=0)
    assert (lease.item.key, lease.failures, turns.ended) == (SWEEP, 0, [])


async def test_item_runs_with_the_handler_of_its_kind_and_its_delay(queue, turns, wait_until):
    done = []

    async def busy(key):
        done.append(key)
        raise RetryAfterError("Slack asks to wait 30 s", 30)

    worker, stop = Worker(queue, 1, {ItemKind.SWEEP: turns, ItemKind.IDLE_GPUS: keyed(busy)}), asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    await queue.add(WATCH)
    await wait_until(lambda: done, "it has run")
    stop.set()
    await running
    assert (done, turns.begun) == ([WATCH.key], [])
    assert await queue.get(wait=0) is None  # not before Slack wants to hear more


async def test_item_of_an_unknown_kind_is_dropped_and_logged(queue, turns, caplog, wait_until, redis):
    running = Running(queue, turns)
    await queue.add(WorkItem("newer", "x"))
    await wait_until(lambda: "unknown kind of work item, dropped: newer: x" in caplog.text, "it is logged")
    await wait_until(lambda: not_(redis.exists("sweepbot:queue:running")), "it is done")
    await running.cancelled()
    assert await queue.get(wait=0) is None


async def test_quarantined_job_does_not_run(queue):
    done = []

    async def run(key):
        done.append(key)

    lease = Lease(WATCH, "token", 0, quarantined="the worker died")
    await keyed(run)(lease)
    assert done == []
    await keyed(run)(replace(lease, quarantined=""))
    assert done == [WATCH.key]


async def test_quarantine_is_reported_later_if_slack_is_busy(queue, redis):
    item, told = WorkItem.sweep(SWEEP), []

    async def handle(lease):
        told.append(lease.quarantined)
        if len(told) == 1:
            raise RetryAfterError("Slack asks to wait 30 s", 30)

    await queue.add(item)
    for _ in range(MAX_STARTS):
        await queue.fail(await queue.get(wait=0), permanent="a bug")
        await queue.add(item)
    worker = Worker(queue, 1, {ItemKind.SWEEP: handle})
    await worker._take(await queue.get(wait=0))
    await queue.add(item)
    await worker._take(await queue.get(wait=0))
    assert told == ["a bug", "a bug"]
    await queue.add(item)
    assert await queue.get(wait=0) is None


async def test_worker_probe_reports_busy_places_and_stuck_items(queue, turns, wait_until):
    running = Running(queue, turns, places=1)
    assert await running.worker.moving(60) == "0 of 1 busy"
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: turns.begun, "a turn has begun")
    assert await running.worker.moving(60) == "1 of 1 busy"
    with pytest.raises(ProbeFailedError, match=f"^{SWEEP} has run for 0 s$"):
        await running.worker.moving(-1)
    await running.cancelled()


async def test_log_lines_of_a_reconcile_name_its_sweep(queue, wait_until):
    async def failing(lease):
        raise ValueError("a bug")

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(JsonLines(Mask([])).format(record))
    worker.log.addHandler(handler)
    running = Running(queue, failing)
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: lines, "it is logged")
    worker.log.removeHandler(handler)
    await running.cancelled()
    assert f'"sweep": "{SWEEP}"' in lines[0]
    assert "ValueError: a bug" in lines[0]


@pytest.mark.parametrize(
    ("error", "item", "permanent"),
    [
        (ValueError("a bug"), WorkItem.sweep(SWEEP), "ValueError: a bug"),
        (
            ValueError("a bug at https://ada:hunter2@git"),
            WorkItem.sweep(SWEEP),
            "ValueError: a bug at https://***@git",
        ),
        (MemoryError(), WorkItem.sweep(SWEEP), "MemoryError: "),
        (UnreachableError("the API server does not answer"), WorkItem.sweep(SWEEP), ""),
        (ApiError(500, "", "etcdserver: leader changed"), WorkItem.sweep(SWEEP), ""),
        (ConnectionResetError(), WorkItem.sweep(SWEEP), ""),
        (TimeoutError(), WorkItem.sweep(SWEEP), ""),
        (NewerRecordError("sweep lr-brave-otter was stored by a newer Sweepbot"), WorkItem.sweep(SWEEP), ""),
        (ValueError("a bug"), WATCH, ""),
    ],
)
async def test_only_errors_of_the_sweep_are_permanent(queue, monkeypatch, wait_until, error, item, permanent):
    failed = []

    async def failing(*_):
        raise error

    async def fail(lease, *, permanent=""):
        failed.append(permanent)
        await queue.release(lease)
        running.stop.set()
        return 0

    monkeypatch.setattr(reconciler, "reconcile", failing)
    monkeypatch.setattr(queue, "fail", fail)
    await queue.add(item)
    sweeps = partial(reconciler.handle, clients=SimpleNamespace(mask=Mask()))
    running = Running(queue, sweeps, 1, {ItemKind.IDLE_GPUS: keyed(failing)})
    await running.task
    assert failed == [permanent]


async def test_busy_worker_needs_one_round_trip_per_item(queue, trips, wait_until):
    counts = []

    async def handle(lease):
        counts.append(len(trips))

    for _ in range(2):  # the first time loads the scripts
        for number in range(20):
            await queue.add(WorkItem.sweep(f"sweep-{number}"))
        counts.clear()
        trips.clear()
        running = Running(queue, handle, places=1)
        await wait_until(lambda: len(counts) == 20, "all have run")
        running.stop.set()
        await running.task
    assert counts == list(range(1, 21))


@pytest.mark.parametrize(("seconds", "most"), [(0, 4), (0.2, 6)])
async def test_item_wakes_one_of_eight_idle_loops(
    queue, redis, trips, wait_until, monkeypatch, seconds, most
):
    """The calls: add, take (twice for a delay), done, and the next loop's take before it waits."""
    monkeypatch.setattr(work_queue, "MAX_BLOCK_SECONDS", 4)
    monkeypatch.setattr(queue, "get", partial(queue.get, wait=600))
    done = []

    async def handle(lease):
        done.append(lease)

    async def waits():
        return (await redis.info("clients"))["blocked_clients"] == 1

    running = Running(queue, handle, places=8)
    for number in range(2):  # the first time loads the scripts
        await wait_until(waits, "one loop waits in Redis")
        trips.clear()
        await queue.add_after(WorkItem.sweep(SWEEP), seconds)
        await wait_until(lambda number=number: len(done) > number, "it has run")
        await wait_until(lambda: not_(redis.exists("sweepbot:queue:running")), "it is done")
    await wait_until(waits, "one loop waits in Redis")
    assert len([trip for trip in trips if b"EVALSHA" in trip]) <= most
    await running.cancelled()


async def test_item_acquired_while_stopping_is_released(queue, redis, monkeypatch):
    items = [WorkItem.sweep(SWEEP), WorkItem.sweep("lr-calm-lynx")]
    for item in items:
        await queue.add(item)
    done_and_get = queue.done_and_get

    async def stopped_meanwhile(lease, **how):
        running.stop.set()
        return await done_and_get(lease, **how)

    async def handle(lease):
        assert lease.item == items[0]

    monkeypatch.setattr(queue, "done_and_get", stopped_meanwhile)
    running = Running(queue, handle, places=1)
    await running.task
    assert (await Queue(redis).get(wait=0)).item == items[1]


class KubernetesClient:
    """Whose watches hear something when told to."""

    def __init__(self, monkeypatch):
        self.fresh, self.listed, self.unfinished = {}, 0, []
        monkeypatch.setattr(informer, "watch_forever", self._watch)

    async def _watch(self, cluster, cache, labels, outage, *, on_fresh, on_failed):
        cluster.fresh[cache.kind], cluster.outage = on_fresh, outage
        cache.listed.set()
        await asyncio.Event().wait()

    async def pages(self, *_, **__):
        self.listed += 1
        yield [{"metadata": {"labels": {"sweepbot/sweep": sweep}}} for sweep in self.unfinished], "7"


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(outage_module, "PROBE_INTERVAL", 0)
    return KubernetesClient(monkeypatch)


def a_watcher(redis, cluster):
    async def active():
        return set()

    store, queue = SimpleNamespace(active=active), Queue(redis)

    async def wake(sweep_id):
        await queue.add(WorkItem.sweep(sweep_id))

    clients = SimpleNamespace(
        cluster=cluster,
        settings=SETTINGS,
        config=CONFIG,
        store=store,
        queue=queue,
        wake=wake,
        caches=Caches(),
    )
    return SweepInformer(redis, clients)


async def test_every_worker_watches_and_one_resyncs(redis, cluster, monkeypatch, wait_until):
    clusters = [cluster, KubernetesClient(monkeypatch)]
    watchers = [a_watcher(redis, each) for each in clusters]
    assert await watchers[0].fresh() == "not started"
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await wait_until(lambda: any(each.listed for each in clusters), "one resyncs")
    assert [len(each.fresh) for each in clusters] == [len(informer.WATCHED_KINDS)] * 2
    assert sum(each.listed for each in clusters) == 1
    assert {(await each.fresh()).partition(";")[0] for each in watchers} == {"watching"}
    await cancelled(tasks[clusters.index(next(each for each in clusters if each.listed))])
    assert await redis.exists("sweepbot:resync") == 0
    await cancelled(*tasks)


async def cancelled(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("stopped", [True, False])
async def test_first_lists_are_awaited_until_complete_or_stopped(
    redis, cluster, monkeypatch, wait_until, stopped
):
    watcher, stop = a_watcher(redis, cluster), asyncio.Event()
    waiting = asyncio.create_task(watcher.listed(stop))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    task = asyncio.create_task(asyncio.Event().wait() if stopped else watcher.run())
    if stopped:
        stop.set()
    await wait_until(waiting.done, "it continues")
    await cancelled(task)


async def test_end_of_an_outage_requeues_failed_items_at_once(redis, cluster, wait_until):
    queue, watcher = Queue(redis), a_watcher(redis, cluster)
    task = asyncio.create_task(watcher.run())
    await wait_until(lambda: cluster.listed, "it has begun")
    await failed(queue, WATCH, times=9)
    cluster.unfinished = ["lr-calm-lynx"]
    assert await queue.get(wait=0) is None
    cluster.is_ready = probe(False, False, True)
    watcher.suspect()
    await wait_until(lambda: redis.zscore("sweepbot:queue:ready", "lr-calm-lynx"), "sweeps are woken")
    assert [(await queue.get(wait=0)).item for _ in range(2)] == [WATCH, WorkItem.sweep("lr-calm-lynx")]
    task.cancel()
    await asyncio.wait([task])


def probe(*answers):
    left = list(answers)

    async def answer():
        return left.pop(0)

    return answer


async def failed(queue, item, times):
    for _ in range(times):
        await queue.add(item)
        await queue.fail(await queue.get(wait=0))


@pytest.mark.parametrize(
    ("error", "suspected"),
    [
        (UnreachableError("no answer"), 1),
        (ApiError(504, "", "etcd"), 1),
        (ApiError(409, "Conflict", "again"), 0),
    ],
)
async def test_failed_item_suspects_an_outage_by_its_error(queue, wait_until, redis, error, suspected):
    async def failing(lease):
        raise error

    found, stop = [], asyncio.Event()
    handlers = {ItemKind.SWEEP: failing}
    running = asyncio.create_task(Worker(queue, 1, handlers, suspect=lambda: found.append(1)).run(stop))
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: redis.zscore("sweepbot:queue:delayed", SWEEP), "it has failed")
    stop.set()
    await running
    assert len(found) == suspected


async def test_busy_api_server_is_retried_and_counts_no_failure(queue, wait_until, redis):
    async def throttled(lease):
        raise ApiError(429, "TooManyRequests", "storage is (re)initializing", wait=7)

    await failed(queue, WorkItem.sweep(SWEEP), times=2)
    await queue.add(WorkItem.sweep(SWEEP))
    running = Running(queue, throttled)
    await wait_until(lambda: redis.zscore("sweepbot:queue:delayed", SWEEP), "it waits")
    await running.cancelled()
    seconds, micro = await redis.time()
    due = await redis.zscore("sweepbot:queue:delayed", SWEEP) / 1000 - seconds - micro / 1e6
    assert due <= 7
    assert await redis.hget("sweepbot:queue:failures", SWEEP) is None


async def test_silent_watch_fails_its_probe_and_recovers(redis, cluster, wait_until, monkeypatch):
    watcher = a_watcher(redis, cluster)
    task = asyncio.create_task(watcher.run())
    await wait_until(lambda: len(cluster.fresh) == len(informer.WATCHED_KINDS), "it watches")
    monkeypatch.setattr(informer, "STALE_AFTER", 0.05)

    async def silent():
        try:
            await watcher.fresh()
        except ProbeFailedError as broken:
            return str(broken)
        return ""

    for kind in informer.WATCHED_KINDS[1:]:
        cluster.fresh[kind]()
    assert "Pod" in await wait_until(silent, "the silence shows")
    monkeypatch.setattr(informer, "STALE_AFTER", 60)
    for heard in cluster.fresh.values():
        heard()
    assert await silent() == ""
    task.cancel()
    await asyncio.wait([task])


async def test_process_stops_within_the_grace_period_and_releases_everything(
    queue, turns, redis, cluster, wait_until
):
    watcher, running = a_watcher(redis, cluster), asyncio.Event()
    turning = Worker(queue, 1, {ItemKind.SWEEP: turns}).run(running)
    job = asyncio.ensure_future(work_process._work(turning, [watcher.run()], running))
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: turns.begun and cluster.listed, "it works")
    running.set()
    await wait_until(
        lambda: not_(redis.exists("sweepbot:resync")), "the resync is given back before the turn's end"
    )
    assert not job.done()
    await app._live([job], running, grace=0.01)
    assert job.cancelled()
    assert (await queue.get(wait=0)).item.key == SWEEP


async def test_failed_job_stops_the_others_in_order_and_is_logged(queue, turns, wait_until):
    stop = asyncio.Event()

    async def failing():
        await wait_until(lambda: turns.begun, "a turn has begun")
        raise ValueError("a bug")

    other = asyncio.ensure_future(Worker(queue, 1, {ItemKind.SWEEP: turns}).run(stop))
    await queue.add(WorkItem.sweep(SWEEP))
    asyncio.get_running_loop().call_later(0.05, turns.may_end.set)
    with pytest.raises(ValueError, match="a bug"):
        await app._live([asyncio.ensure_future(failing()), other], stop, grace=20)
    assert turns.ended == [SWEEP]


async def not_(answer):
    return not await answer
