"""The process of a worker: its watches, outages, and the end of all of its jobs."""

import asyncio
from types import SimpleNamespace

import pytest

from bot import app, work_process
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.clusters.connections import no_clusters
from bot.platform.runtime.probes import ProbeFailedError
from bot.platform.storage.work_queue import Queue
from bot.sweep.sweeps import informer
from bot.sweep.sweeps.informer import SweepInformer
from bot.worker import Worker
from k8s.api import outage as outage_module
from k8s.api.cache import Caches
from tests.bot.factories import CONFIG, SETTINGS
from tests.bot.workers import SWEEP, WATCH, failed, not_


class KubernetesClient:
    """A client whose watches report changes on request."""

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

    async def pending():
        for sweep in ():
            yield sweep

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
        kept_results=SimpleNamespace(pending=pending),
        clusters=no_clusters(),
    )
    return SweepInformer(redis, clients)


async def test_every_worker_watches_and_one_wakes_and_resyncs(redis, cluster, monkeypatch, wait_until):
    clusters = [cluster, KubernetesClient(monkeypatch)]
    watchers = [a_watcher(redis, each) for each in clusters]
    assert await watchers[0].fresh() == "not started"
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await wait_until(lambda: any(each.listed for each in clusters), "one resyncs")
    assert [len(each.fresh) for each in clusters] == [len(informer.WATCHED_KINDS)] * 2
    assert sum(each.listed for each in clusters) == 1
    assert {(await each.fresh()).partition(";")[0] for each in watchers} == {"watching"}
    leaders = [bool(each.listed) for each in clusters]
    await wait_until(lambda: [each.wakes.leads for each in watchers] == leaders, "the same one wakes sweeps")
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
    await wait_until(lambda: cluster.listed, "it has started")
    await failed(queue, WATCH, times=9)
    cluster.unfinished = ["lr-calm-lynx"]
    assert await queue.get(wait=0) is None
    cluster.is_ready = probe(False, False, True)
    watcher.suspect()
    await wait_until(lambda: redis.zscore("sweepbot:queue:ready", "lr-calm-lynx"), "sweeps are woken")
    assert [(await queue.get(wait=0)).item for _ in range(2)] == [WATCH, WorkItem.sweep("lr-calm-lynx")]
    task.cancel()
    await asyncio.wait([task])


async def test_end_of_an_outage_requeues_failed_items_of_a_worker_that_does_not_lead(
    redis, cluster, wait_until, monkeypatch
):
    await redis.set("sweepbot:resync", "another worker")
    monkeypatch.setattr(outage_module, "PROBE_INTERVAL", 0.01)
    cluster.is_ready = probe(*[False] * 10, True)
    queue, watcher = Queue(redis), a_watcher(redis, cluster)
    task = asyncio.create_task(watcher.run())
    await failed(queue, WATCH, times=9)
    watcher.suspect()
    await wait_until(lambda: redis.zscore("sweepbot:queue:ready", str(WATCH)), "it is retried")
    await cancelled(task)


def probe(*answers):
    left = list(answers)

    async def answer():
        return left.pop(0)

    return answer


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
    for received in cluster.fresh.values():
        received()
    assert await silent() == ""
    task.cancel()
    await asyncio.wait([task])


async def test_process_stops_within_the_grace_period_and_releases_everything(
    queue, runs, redis, cluster, wait_until
):
    watcher, running = a_watcher(redis, cluster), asyncio.Event()
    noted = work_process._noted(watcher.wakes.started, runs)
    turning = Worker(queue, 1, {ItemKind.SWEEP: noted}).run(running)
    job = asyncio.ensure_future(work_process._work(turning, [watcher.run()], running))
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: runs.started and cluster.listed, "it works")
    assert SWEEP in watcher.wakes._started, "wakes that came before don't count for it"
    running.set()
    await wait_until(
        lambda: not_(redis.exists("sweepbot:resync")), "the resync is released before the run ends"
    )
    assert not job.done()
    await app._live([job], running, grace=0.01)
    assert job.cancelled()
    assert (await queue.get(wait=0)).item.key == SWEEP


async def test_failed_job_stops_the_others_in_order_and_is_logged(queue, runs, wait_until):
    stop = asyncio.Event()

    async def failing():
        await wait_until(lambda: runs.started, "a run has started")
        raise ValueError("a bug")

    other = asyncio.ensure_future(Worker(queue, 1, {ItemKind.SWEEP: runs}).run(stop))
    await queue.add(WorkItem.sweep(SWEEP))
    asyncio.get_running_loop().call_later(0.05, runs.may_end.set)
    with pytest.raises(ValueError, match="a bug"):
        await app._live([asyncio.ensure_future(failing()), other], stop, grace=20)
    assert runs.ended == [SWEEP]
