"""A simulated sweep whose worker's calls to other systems are counted."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from bot.core.work_item import WorkItem
from bot.platform.storage.work_queue import Lease
from bot.sweep.sweeps.durable_record import recover
from bot.sweep.sweeps.informer import RESYNC_INTERVAL
from bot.sweep.sweeps.reconciler import reconcile
from k8s.api.cache import Caches
from tests.bot.factories import NOW
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

PARTS = ("cluster", "slack", "git", "registry")
Calls = Counter[str]
# An hour of resyncs: each lists the unfinished sweeps and those with incomplete MLflow runs. Redis is called
# twice for these sweeps and once for one reconcile.
RESYNCS = {"cluster.pages": 12 * 2, "redis": 12 * (2 + 1)}


def space(trials: int) -> str:
    widths = ", ".join(f"w{number:02}" for number in range(trials))
    return f"""
command: python train.py
objective: {{metric: loss, goal: minimize}}
algorithm: grid
trials: {{max: {trials}, parallel: 5, max_failed: 1}}
parameters:
  width: [{widths}]
"""


@contextmanager
def counting_redis(calls: Calls) -> Iterator[None]:
    """Count the round trips to Redis of all clients as `redis`."""
    send = AbstractConnection._send_packed_command

    async def counting(connection: AbstractConnection, *args: Any, **kwargs: Any) -> None:
        calls["redis"] += 1
        await send(connection, *args, **kwargs)

    AbstractConnection._send_packed_command = counting
    try:
        yield
    finally:
        AbstractConnection._send_packed_command = send


class Counting:
    def __init__(self, inner: Any, part: str, calls: Calls) -> None:
        self._inner, self._part, self._calls = inner, part, calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[f"{self._part}.{name}"] += 1
            return method(*args, **kwargs)

        return call


class CountedSweep(SimulatedSweep):
    def __init__(self, redis: Redis, calls: Calls, **scenario: Any) -> None:
        super().__init__(redis, Clock(None), **scenario)
        self.calls = calls
        parts = {part: Counting(getattr(self.clients, part), part, calls) for part in PARTS}
        self.clients = replace(self.clients, **parts)

    def _width(self, namespace: str, trial: str) -> str:
        return "0.5"  # better results are messages of their own

    async def reconciled(self) -> dict[str, int]:
        """Return the calls of one reconcile."""
        lease = Lease(WorkItem.sweep(SWEEP), "worker", failures=0, key="life:lease:worker")
        await self.redis.set(lease.key, lease.token)
        self.calls.clear()
        await reconcile(lease, self.clients)
        return dict(self.calls)

    async def requests(self) -> dict[str, int]:
        """Run the sweep; return its calls, without Redis and those of the ended sweep's ConfigMap."""
        self.calls.clear()
        async with self.started():
            while not (await self.record()).phase.final or self.last.outbox:
                await self.round()
            return {name: count for name, count in sorted(self.calls.items()) if name != "redis"}

    async def hour(self) -> Calls:
        """Return the calls of an hour in which nothing changes: every five minutes, it is woken."""
        cluster = Counting(self.cluster, "cluster", self.calls)
        clients = replace(self.clients, cluster=cluster, caches=Caches())
        hour: Calls = Counter()
        for _ in range(timedelta(hours=1) // RESYNC_INTERVAL):
            self.calls.clear()
            await recover(clients)
            hour += self.calls
            hour += Counter(await self.reconciled())
        return hour


@asynccontextmanager
async def running_sweep(redis: Redis, calls: Calls) -> AsyncIterator[CountedSweep]:
    """A sweep with finished first trials and five running ones, as the watches have reported them."""
    sweep = CountedSweep(redis, calls, image=True, space=space(30), one_ends=True)
    async with sweep.started():
        while not (await sweep.record()).progress.succeeded:
            await sweep.round()
        for minutes in range(4):
            sweep.clients = replace(sweep.clients, now=lambda at=NOW + timedelta(minutes=minutes): at)
            await sweep.round()
        while sweep.last.progress.running < 5 or sweep.last.progress.waiting:
            await sweep.round()
        await sweep.round()
        yield sweep
