"""A worker runs items by their handlers, stops in time, and releases what it cannot finish."""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from bot import worker
from bot.core.errors import RetryAfterError
from bot.core.stored_format import NewerFormatError
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.runtime.log_format import JsonLines
from bot.platform.runtime.probes import ProbeFailedError
from bot.platform.storage import work_queue
from bot.platform.storage.work_queue import MAX_STARTS, Lease, Queue
from bot.sweep.sweeps import reconciler
from bot.text.masking import Mask
from bot.worker import Worker, keyed, limited
from k8s.api.errors import ApiError, UnreachableError
from tests.bot.workers import SWEEP, WATCH, Running, failed, not_


async def test_worker_stopping_finishes_the_current_item_and_starts_no_other(queue, runs, wait_until):
    running = Running(queue, runs)
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: runs.started, "a run has started")
    running.stop.set()
    await queue.add(WorkItem.sweep("lr-calm-lynx"))
    await asyncio.wait([running.task], timeout=0.05)
    assert not running.task.done()
    runs.may_end.set()
    await running.task
    assert runs.started == runs.ended == [SWEEP]
    assert (await queue.get(wait=0)).item.key == "lr-calm-lynx"


async def test_worker_stopping_releases_an_unfinished_item(queue, runs, redis, wait_until):
    running = Running(queue, runs)
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: runs.started, "a run has started")
    running.stop.set()
    await running.cancelled()
    lease = await Queue(redis).get(wait=0)
    assert (lease.item.key, lease.failures, runs.ended) == (SWEEP, 0, [])


async def test_item_runs_with_the_handler_of_its_kind_and_its_delay(queue, runs):
    done = []

    async def busy(key):
        done.append(key)
        stop.set()
        raise RetryAfterError("Slack asks to wait 30 s", 30)

    worker, stop = Worker(queue, 1, {ItemKind.SWEEP: runs, ItemKind.IDLE_GPUS: keyed(busy)}), asyncio.Event()
    await queue.add(WATCH)
    await worker.run(stop)
    assert (done, runs.started) == ([WATCH.key], [])
    assert await queue.get(wait=0) is None  # not before Slack accepts messages


async def test_item_of_an_unknown_kind_is_left_to_a_newer_worker(queue, runs, wait_until, redis):
    older = Running(queue, runs)
    await queue.add(WorkItem("newer", "x"))
    await wait_until(lambda: redis.zscore("sweepbot:queue:delayed", "newer: x"), "it was tried")
    await older.cancelled()
    done = asyncio.Event()

    async def run(key):
        done.set()

    newer = Running(queue, runs, 1, {"newer": keyed(run)})
    await asyncio.wait_for(done.wait(), 60)
    await newer.cancelled()


async def test_item_that_stays_unknown_is_dropped_and_logged(
    queue, runs, caplog, wait_until, redis, monkeypatch
):
    monkeypatch.setattr(worker, "UNKNOWN_RETRY", replace(worker.UNKNOWN_RETRY, attempts=0))
    running = Running(queue, runs)
    await queue.add(WorkItem("newer", "x"))
    await wait_until(lambda: "unknown kind of work item, dropped: newer: x" in caplog.text, "it is logged")
    await wait_until(lambda: not_(redis.exists("sweepbot:queue:running")), "it is done")
    await running.cancelled()
    assert await queue.get(wait=0) is None


async def test_slow_questions_leave_loops_to_sweeps_and_are_all_answered(queue, wait_until):
    """Git doesn't answer the first two of 20 questions."""
    answers, started, reconciled, answered = asyncio.Event(), [], [], []

    async def answer(key):
        started.append(key)
        if len(started) <= 2:
            await answers.wait()
        answered.append(key)

    async def reconcile(lease):
        reconciled.append(lease.item.key)

    handlers = {ItemKind.SWEEP: reconcile, ItemKind.QUESTION: limited(keyed(answer), most=2)}
    asked = {f"q{number}" for number in range(20)}
    for key in sorted(asked):
        await queue.add(WorkItem(ItemKind.QUESTION, key))
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(queue, 4, handlers).run(stop))
    await wait_until(lambda: len(started) == 2, "two questions are being answered")
    for number in range(20):
        await queue.add(WorkItem.sweep(f"lr-{number}"))
    await wait_until(lambda: len(reconciled) == 20, "all sweeps are reconciled")
    assert (len(started), answered) == (2, [])
    answers.set()
    await wait_until(lambda: set(answered) == asked, "all questions are answered")
    assert len(answered) == 20
    stop.set()
    await running


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
    item, reported = WorkItem.sweep(SWEEP), []

    async def handle(lease):
        reported.append(lease.quarantined)
        if len(reported) == 1:
            raise RetryAfterError("Slack asks to wait 30 s", 30)

    await queue.add(item)
    for _ in range(MAX_STARTS):
        await queue.fail(await queue.get(wait=0), permanent="a bug")
        await queue.add(item)
    worker = Worker(queue, 1, {ItemKind.SWEEP: handle})
    await worker._take(await queue.get(wait=0))
    await queue.add(item)
    await worker._take(await queue.get(wait=0))
    assert reported == ["a bug", "a bug"]
    await queue.add(item)
    assert await queue.get(wait=0) is None


async def test_worker_probe_reports_busy_places_and_stuck_items(queue, runs, wait_until):
    running = Running(queue, runs, places=1)
    assert await running.worker.moving(60) == "0 of 1 busy"
    await queue.add(WorkItem.sweep(SWEEP))
    await wait_until(lambda: runs.started, "a run has started")
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
        (NewerFormatError("sweep lr-brave-otter was stored by a newer Sweepbot"), WorkItem.sweep(SWEEP), ""),
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
    monkeypatch.setattr(queue, "leave" if isinstance(error, NewerFormatError) else "fail", fail)
    await queue.add(item)
    sweeps = partial(reconciler.handle, clients=SimpleNamespace(mask=Mask()))
    running = Running(queue, sweeps, 1, {ItemKind.IDLE_GPUS: keyed(failing)})
    await running.task
    assert failed == [permanent]


async def test_busy_worker_needs_one_round_trip_per_item(queue, trips):
    counts = []

    async def handle(lease):
        counts.append(len(trips))
        if len(counts) == 20:
            running.stop.set()  # before it waits for another item

    for _ in range(2):  # the first time loads the scripts
        for number in range(20):
            await queue.add(WorkItem.sweep(f"sweep-{number}"))
        counts.clear()
        trips.clear()
        running = Running(queue, handle, places=1)
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


async def test_failure_is_logged_once_per_item_and_cause(queue, caplog):
    """In an outage, every sweep fails every few seconds."""
    errors = [UnreachableError("no answer")] * 3 + [ValueError("a bug")] * 2

    async def failing(lease):
        raise errors.pop(0)

    worker = Worker(queue, 1, {ItemKind.SWEEP: failing})
    while errors:
        await worker._take(Lease(WorkItem.sweep(SWEEP), "w", failures=0, key="k"))
    assert [record.levelname for record in caplog.records if "failed" in record.message] == [
        "WARNING",
        "ERROR",
    ]


async def test_full_redis_stops_the_worker_and_counts_no_start(queue, redis, monkeypatch, wait_until):
    """Redis leases items when it is full, and stores nothing: otherwise, all would be quarantined."""
    runs, checks, check = [], [], queue.check_writable

    async def handle(lease):
        runs.append(lease.quarantined)
        await redis.set("found", "x", ex=60)

    async def checked():
        checks.append(len(runs))
        await check()

    monkeypatch.setattr(queue, "check_writable", checked)
    monkeypatch.setattr(worker, "REDIS_RETRY", replace(worker.REDIS_RETRY, base=0.001))
    await queue.add(WorkItem.sweep(SWEEP))
    await redis.config_set("maxmemory", 1)
    try:
        running = Running(queue, handle, places=2)
        await wait_until(lambda: len(checks) > 2, "it has looked whether Redis stores values")
        assert await redis.hget("sweepbot:queue:starts", SWEEP) is None
        due = await redis.zscore("sweepbot:queue:delayed", SWEEP)

        async def is_due():
            return (await redis.time())[0] * 1000 > due

        await wait_until(is_due, "it would run again")
        seen = len(checks)
        await wait_until(lambda: len(checks) > seen + 2, "it has looked again")
        assert runs == [""]
    finally:
        await redis.config_set("maxmemory", 0)
    await wait_until(lambda: len(runs) == 2, "it continues")
    running.stop.set()
    await running.task
    assert (runs, await queue.quarantined()) == (["", ""], {})


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
