"""A worker: takes turns from the queue and, holding the watch lease, wakes sweeps as the cluster moves."""

import asyncio
import logging
from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot import durable
from bot.leader import lead
from bot.outside import Outside
from bot.queue import Lease, LeaseLost
from bot.reconciler import turn
from bot.store import Stale
from k8s.cluster import ApiError, Unreachable
from k8s.objects import BUILD_LABEL, OURS, SWEEP_LABEL, Manifest
from k8s.watch import watch_forever

log = logging.getLogger(__name__)

WATCHED = ("Pod", "Job", "Experiment", "Trial")
WATCH_LEASE = 15.0  # seconds
GATHER = timedelta(seconds=0.2)  # one turn for the burst of events that every change is
RESYNC = timedelta(minutes=5)
REDIS_PAUSE = 1.0  # seconds before Redis is asked again


async def work(redis: Redis, outside: Outside, turns: int) -> None:
    """Until cancelled. Turns under way are given up; another worker has them when their leases run out."""
    async with asyncio.TaskGroup() as group:
        for _ in range(turns):
            group.create_task(_take_turns(outside))
        group.create_task(_watch_always(redis, outside))


async def _take_turns(outside: Outside) -> None:
    while True:
        try:
            if lease := await outside.queue.get():
                await _take(lease, outside)
        except RedisError as error:
            log.warning("Redis does not answer: %s", error)
            await asyncio.sleep(REDIS_PAUSE)


async def _take(lease: Lease, outside: Outside) -> None:
    try:
        async with outside.queue.held(lease):
            again = await turn(lease, outside)
        await outside.queue.done(lease, again_after=again.total_seconds() if again is not None else None)
    except (LeaseLost, Stale) as lost:
        log.warning("a turn of %s was overtaken: %s", lease.item, lost)
        await outside.queue.fail(lease)
    except RedisError:
        raise
    except (ApiError, Unreachable) as trouble:
        delay = await outside.queue.fail(lease)
        log.warning("a turn of %s failed and is repeated in %.0f s: %s", lease.item, delay, trouble)
    except Exception:
        delay = await outside.queue.fail(lease)
        log.exception("a turn of %s failed and is repeated in %.0f s", lease.item, delay)


async def _watch_always(redis: Redis, outside: Outside) -> None:
    while True:
        await lead(redis, "sweepbot:watch", WATCH_LEASE, lambda: _watch(outside))


async def _watch(outside: Outside) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_resync(outside))
        for kind in WATCHED:
            group.create_task(
                watch_forever(
                    outside.cluster,
                    kind,
                    outside.settings.k8s_namespace,
                    OURS,
                    lambda _, o: _wake(o, outside),
                )
            )


async def _wake(obj: Manifest, outside: Outside) -> None:
    labels = obj["metadata"].get("labels", {})
    if sweep := labels.get(SWEEP_LABEL):
        await outside.wake(sweep, after=GATHER)
    elif build := labels.get(BUILD_LABEL):
        for waiting in await outside.store.waiting_for(build):
            await outside.wake(waiting, after=GATHER)


async def _resync(outside: Outside) -> None:
    """The net under the watches and under a Redis that forgot: the cluster knows every unfinished sweep."""
    while True:
        try:
            await _wake_unfinished(outside)
        except (ApiError, Unreachable, RedisError) as error:
            log.warning("unfinished sweeps can't be listed: %s", error)
        await asyncio.sleep(RESYNC.total_seconds())


async def _wake_unfinished(outside: Outside) -> None:
    namespace = outside.settings.k8s_namespace
    kept = await outside.cluster.list("ConfigMap", namespace, labels=durable.UNFINISHED)
    ids = {obj["metadata"]["labels"][SWEEP_LABEL] for obj in kept}
    for sweep_id in ids | await outside.store.active():
        await outside.wake(sweep_id)
