"""Figures of the work queue and of all sweeps, read from Redis for /metrics.

Every process reports the same figures, so they are available while no worker runs: use max() in queries.
"""

from collections import Counter
from typing import Any

from prometheus_client import Gauge
from redis.asyncio import Redis

from bot.core.metrics import REGISTRY
from bot.core.record import Phase
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue

QUEUE_STATES = ("ready", "delayed", "running", "quarantined")

QUEUE = Gauge("sweepbot_queue_items", "Items in the work queue.", ["state"], registry=REGISTRY)
OLDEST = Gauge(
    "sweepbot_queue_oldest_ready_seconds", "How long the next item has been due.", registry=REGISTRY
)
SWEEPS = Gauge(
    "sweepbot_sweeps", "Unfinished sweeps, and the latest finished ones.", ["phase"], registry=REGISTRY
)
UNSENT = Gauge(
    "sweepbot_messages_waiting", "Messages of sweeps that Slack hasn't accepted yet.", registry=REGISTRY
)
REDIS_UP = Gauge(
    "sweepbot_redis_up", "1 if the figures of the queue and the sweeps were read.", registry=REGISTRY
)


class Figures:
    def __init__(self, redis: Redis) -> None:
        self._redis, self._store, self._queue = redis, Store(redis), Queue(redis)

    async def refresh(self) -> None:
        """Set the gauges. Raises redis.exceptions.RedisError."""
        REDIS_UP.set(0)
        prefix = self._queue.prefix
        async with self._redis.pipeline(transaction=False) as calls:
            for name in ("ready", "delayed", "running"):
                calls.zcard(f"{prefix}:{name}")
            calls.hlen(f"{prefix}:quarantine")
            calls.zrange(f"{prefix}:ready", 0, 0, withscores=True)
            calls.time()
            *counts, first, (seconds, micros) = await calls.execute()
        for state, count in zip(QUEUE_STATES, counts, strict=True):
            QUEUE.labels(state).set(count)
        OLDEST.set(_age(first, seconds + micros / 1e6))
        await self._count_sweeps()
        REDIS_UP.set(1)

    async def _count_sweeps(self) -> None:
        entries = await self._store.listed()
        phases = Counter(entry.phase for entry in entries)
        for phase in Phase:
            SWEEPS.labels(phase.name.lower()).set(phases[phase])  # records store some older names
        UNSENT.set(sum(entry.unsent for entry in entries))


def _age(first: list[Any], now: float) -> float:
    """Return the seconds since the first ready item was due; 0 if there is none."""
    return max(now - float(first[0][1]) / 1000, 0) if first else 0
