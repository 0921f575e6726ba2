"""Read where items are in the work queue, and whether workers run, without changing either."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from bot.core.record import Quarantine
from bot.storage.work_queue import Queue, text

STATES = ("running", "ready", "delayed")
LEASES = ("sweepbot:resync", "sweepbot:usage")  # of bot.sweeps.informer and bot.gpus.collector


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
