"""Read the work queue without changing it: where items are, whether workers run, and figures for /metrics.

Every process reports the same figures, so they are available while no worker runs: use max() in queries.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from bot.core.metrics import gauge
from bot.core.record import Phase, Quarantine
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue, text

STATES = ("running", "ready", "delayed")
LEASES = (
    "sweepbot:resync",
    "sweepbot:usage",
)  # of bot.sweep.sweeps.informer, bot.measure.sources.collector

QUEUE = gauge("sweepbot_queue_items", "Items in the work queue.", ["state"])
OLDEST = gauge("sweepbot_queue_oldest_ready_seconds", "How long the next item has been due.")
SWEEPS = gauge("sweepbot_sweeps", "Unfinished sweeps, and the latest finished ones.", ["phase"])
UNSENT = gauge("sweepbot_messages_waiting", "Messages of sweeps that Slack hasn't accepted yet.")
REDIS_UP = gauge("sweepbot_redis_up", "1 if the figures of the queue and the sweeps were read.")


@dataclass(frozen=True, kw_only=True)
class ItemState:
    """`state`: running, ready, delayed, quarantined, or absent."""

    state: str = "absent"
    due: datetime | None = None  # ready, delayed: when it is due; running: when its lease expires
    failures: int = 0  # in a row
    starts: int = 0  # without an end
    quarantine: Quarantine | None = None


class QueueReader:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, prefix: str = "sweepbot:queue") -> None:
        self._redis, self._prefix = redis, prefix
        self._queue = Queue(redis, prefix=prefix)

    async def item(self, name: str) -> ItemState:
        [found] = await self.items([name])
        return found

    async def items(self, names: Sequence[str]) -> list[ItemState]:
        """Return the state of each item, by its text (`bot.core.work_item`)."""
        quarantined = await self._queue.quarantined()
        async with self._redis.pipeline(transaction=False) as reads:
            for name in names:
                for state in STATES:
                    reads.zscore(f"{self._prefix}:{state}", name)
                reads.hget(f"{self._prefix}:failures", name)
                reads.hget(f"{self._prefix}:starts", name)
            found = await reads.execute()
        rows = [found[n : n + 5] for n in range(0, len(found), 5)]
        return [_state(row, quarantined.get(name)) for name, row in zip(names, rows, strict=True)]

    async def others(self) -> list[str]:
        """Return items that fail or are quarantined, by their text."""
        failing: Any = await self._redis.hkeys(f"{self._prefix}:failures")
        return sorted({text(each) for each in failing} | set(await self._queue.quarantined()))

    async def has_worker(self) -> bool:
        """Return whether a worker holds a lease; one that just stopped can still hold it for 30 s."""
        return bool(await self._redis.exists(*LEASES))


def _state(row: Sequence[Any], quarantine: Quarantine | None) -> ItemState:
    *scores, failures, starts = row
    state, score = next(
        ((s, at) for s, at in zip(STATES, scores, strict=True) if at is not None), ("absent", None)
    )
    return ItemState(
        state="quarantined" if quarantine and starts is None else state,
        due=None if score is None else datetime.fromtimestamp(score / 1000, UTC),
        failures=int(failures or 0),
        starts=int(starts or 0),
        quarantine=quarantine,
    )


class Figures:
    def __init__(self, redis: Redis) -> None:
        self._redis, self._store, self._queue = redis, Store(redis), Queue(redis)

    async def refresh(self) -> None:
        """Set the gauges. Raises redis.exceptions.RedisError."""
        REDIS_UP.set(0)
        prefix = self._queue.prefix
        async with self._redis.pipeline(transaction=False) as calls:
            for name in STATES:
                calls.zcard(f"{prefix}:{name}")
            calls.hlen(f"{prefix}:quarantine")
            calls.zrange(f"{prefix}:ready", 0, 0, withscores=True)
            calls.time()
            *counts, first, (seconds, micros) = await calls.execute()
        for state, count in zip((*STATES, "quarantined"), counts, strict=True):
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
