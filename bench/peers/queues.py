"""One client and one worker of each queue. `python bench/peers/queues.py LIBRARY ROLE REDIS_URL NUMBER`

Each library runs in its own environment. Roles: `enqueue` adds so many jobs one after the other and prints
the seconds and CPU seconds; `work` runs so many and prints the same, from the first job to the last;
`trickle` adds so many with pauses, and `idle` prints each job's seconds from being added to being run; `hang`
prints "started". Workers print "ready" before they wait for jobs.
"""
# ruff: noqa: PLC0415, RET503 - a library is there only in its own environment; its part ends with the role

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

LIBRARY, ROLE, URL, NUMBER = sys.argv[1:5]
CONCURRENCY = 8
PAUSE = 0.05  # seconds between the jobs of `trickle`
LEASE = float(os.environ.get("BENCH_LEASE", "30"))  # seconds
ADDS = ROLE in {"enqueue", "trickle"}
Add = Callable[[str], Awaitable[Any]]


def report(*figures: object) -> None:
    # One write: workers with threads would mix their lines.
    sys.stdout.write(" ".join(map(str, figures)) + "\n")
    sys.stdout.flush()


class Jobs:
    """What every library's job calls; its argument is the time at which it was added."""

    def __init__(self) -> None:
        self.ran, self.started, self.cpu = 0, 0.0, 0.0
        self._lock = threading.Lock()

    def __call__(self, added: str) -> None:
        if ROLE == "idle":
            report(time.time() - float(added.partition("/")[0]))
            return
        with self._lock:  # some libraries run jobs in threads
            if not self.ran:
                self.started, self.cpu = time.perf_counter(), time.process_time()
            self.ran += 1
            ran = self.ran
        if ran == int(NUMBER):
            report(time.perf_counter() - self.started, time.process_time() - self.cpu)


job = Jobs()


def bench_job(added: str) -> None:
    job(added)


async def enqueue(add: Add) -> None:
    """Add jobs; each has another argument, because some queues hold equal ones only once."""
    if ROLE == "trickle":
        for number in range(int(NUMBER)):
            await asyncio.sleep(PAUSE)
            await add(f"{time.time()}/{number}")
        return
    await add(f"{time.time()}/warm-up")
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(int(NUMBER) - 1):
        await add(f"{time.time()}/{number}")
    report(time.perf_counter() - started, time.process_time() - cpu)


async def ours() -> None:
    from bot.core.work_item import WorkItem
    from bot.platform.storage.redis_client import connect
    from bot.platform.storage.work_queue import Lease, Queue
    from bot.worker import Worker

    queue = Queue(connect(URL), lease=LEASE)
    if ADDS:
        return await enqueue(lambda text: queue.add(WorkItem("bench", text)))

    async def handle(lease: Lease) -> None:
        if ROLE == "hang":
            report("started")
            await asyncio.Event().wait()
        job(lease.item.key)

    report("ready")
    return await Worker(queue, CONCURRENCY, {"bench": handle}).run(asyncio.Event())


async def batches() -> None:
    """Redis Streams whose worker takes up to 100 jobs, and acknowledges them, in one round trip each."""
    await raw(count=100)


async def raw(count: int = 1) -> None:
    """Redis Streams with what a worker must have: a consumer group, acknowledgments, and a lease."""
    from redis.asyncio import Redis
    from redis.exceptions import ResponseError

    redis = Redis.from_url(URL)
    if ADDS:
        return await enqueue(lambda text: redis.xadd("jobs", {"job": text}))
    with suppress(ResponseError):
        await redis.xgroup_create("jobs", "workers", id="0", mkstream=True)
    leased: set[bytes] = set()

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            if leased:
                await redis.xclaim("jobs", "workers", "me", 0, list(leased), justid=True)
            await redis.xautoclaim("jobs", "workers", "me", int(LEASE * 1000))

    async def loop() -> None:
        while True:
            found: Any = await redis.xreadgroup("workers", "me", {"jobs": ">"}, count=count, block=2000)
            entries = found[0][1] if isinstance(found, list) and found else _entries(found)
            names = [name for name, _ in entries]
            leased.update(names)
            for _, fields in entries:
                job(fields[b"job"].decode())
            if names:
                await redis.xack("jobs", "workers", *names)
            leased.difference_update(names)

    report("ready")
    await asyncio.gather(heartbeat(), *(loop() for _ in range(CONCURRENCY)))


def _entries(found: Any) -> Any:
    """Read an answer of RESP 3: entries by stream, in a list of one batch."""
    return [entry for batches in (found or {}).values() for batch in batches for entry in batch]


async def saq() -> None:
    from saq import Queue, Worker

    queue = Queue.from_url(URL)

    async def bench(_: Any, *, added: str) -> None:
        job(added)

    if ADDS:
        return await enqueue(lambda text: queue.enqueue("bench", added=text))
    report("ready")
    return await Worker(queue, functions=[("bench", bench)], concurrency=CONCURRENCY).start()


async def arq() -> None:
    from arq import create_pool, func
    from arq.connections import RedisSettings
    from arq.worker import Worker

    async def bench(_: Any, added: str) -> None:
        job(added)

    if ADDS:
        pool = await create_pool(RedisSettings.from_dsn(URL))
        return await enqueue(lambda text: pool.enqueue_job("bench", text))
    functions, settings = [func(bench, name="bench")], RedisSettings.from_dsn(URL)
    report("ready")
    return await Worker(functions, redis_settings=settings, max_jobs=CONCURRENCY).async_run()


async def taskiq() -> None:
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    broker = RedisStreamBroker(URL)

    @broker.task(task_name="bench")
    async def bench(added: str) -> None:
        job(added)

    broker.is_worker_process = not ADDS
    await broker.startup()
    if ADDS:
        return await enqueue(bench.kiq)
    report("ready")
    return await run_receiver_task(broker, max_async_tasks=CONCURRENCY)


async def dramatiq() -> None:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=URL)
    dramatiq.set_broker(broker)
    bench = dramatiq.actor(bench_job, actor_name="bench", broker=broker)
    if ADDS:
        return await enqueue(lambda text: _done(bench.send(text)))
    dramatiq.Worker(broker, worker_threads=CONCURRENCY).start()
    report("ready")
    return await asyncio.Event().wait()


async def celery() -> None:
    from celery import Celery

    app = Celery("bench", broker=URL)
    app.conf.update(task_ignore_result=True, worker_redirect_stdouts=False)
    bench = app.task(bench_job, name="bench")
    if ADDS:
        return await enqueue(lambda text: _done(bench.delay(text)))
    report("ready")
    arguments = ["worker", "--pool=threads", f"--concurrency={CONCURRENCY}", "--loglevel=ERROR"]
    return await asyncio.to_thread(app.worker_main, [*arguments, "--without-gossip", "--without-mingle"])


async def _done(_: object) -> None:
    """Make an awaitable of a call that is over."""


if __name__ == "__main__":
    asyncio.run(globals()[LIBRARY]())
