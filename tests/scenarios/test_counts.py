"""How many requests a sweep costs: exact counts, and none that grows with trials."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from redis.asyncio.connection import AbstractConnection

from bot.core.work_item import WorkItem
from bot.storage.work_queue import Lease
from bot.sweeps.informer import RESYNC_INTERVAL, SweepInformer
from bot.sweeps.reconciler import reconcile
from k8s.cache import Caches
from tests.bot.factories import NOW
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

PARTS = ("cluster", "slack", "git", "registry")


def space(trials):
    widths = ", ".join(f"w{number:02}" for number in range(trials))
    return f"""
command: python train.py
objective: {{metric: loss, goal: minimize}}
algorithm: grid
trials: {{max: {trials}, parallel: 5, max_failed: 1}}
parameters:
  width: [{widths}]
"""


class Counting:
    def __init__(self, inner, part, calls):
        self._inner, self._part, self._calls = inner, part, calls

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*args, **kwargs):
            self._calls[f"{self._part}.{name}"] += 1
            return method(*args, **kwargs)

        return call


class Counted(SimulatedSweep):
    """A sweep whose worker's calls are counted, with queries to Redis as `redis`."""

    def __init__(self, redis, calls, **scenario):
        super().__init__(redis, Clock(None), **scenario)
        self.calls = calls
        parts = {part: Counting(getattr(self.clients, part), part, calls) for part in PARTS}
        self.clients = replace(self.clients, **parts)

    def _width(self, namespace, trial):
        return "0.5"  # better results are messages of their own

    async def reconciled(self):
        lease = Lease(WorkItem.sweep(SWEEP), "worker", failures=0, key="life:lease:worker")
        await self.redis.set(lease.key, lease.token)
        self.calls.clear()
        await reconcile(lease, self.clients)
        return dict(self.calls)


@pytest.fixture
def counted(redis, monkeypatch):
    calls, send = Counter(), AbstractConnection.send_packed_command

    async def counting(connection, *args, **kwargs):
        calls["redis"] += 1
        await send(connection, *args, **kwargs)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counting)
    return partial(Counted, redis, calls)


async def requests(simulation):
    """What a whole sweep costs, without Redis and without what its ConfigMap costs once it has ended."""
    async with simulation.started():
        while not (await simulation.record()).phase.final:
            await simulation.round()
        return {name: count for name, count in sorted(simulation.calls.items()) if name != "redis"}


async def test_sweep_of_30_trials_costs_as_many_requests_as_one_of_10(counted):
    costs = []
    for trials in (10, 30):
        simulation = counted(space=space(trials))
        simulation.calls.clear()
        costs.append(await requests(simulation))
        assert simulation.last.progress.finished == trials
    assert costs[1] == costs[0]
    assert costs[1] == {
        "cluster.create": 5,
        "cluster.get": 15,
        "cluster.list": 25,
        "cluster.log": 2,
        "cluster.merge": 9,
        "git.prefetch": 1,
        "git.read": 3,
        "git.resolve": 1,
        "git.subject": 1,
        "registry.digest": 2,
        "slack.open_thread": 1,
        "slack.permalink": 1,
        "slack.reply": 7,
        "slack.update": 3,
        "slack.upload_files": 1,
    }


@pytest.fixture
async def running(counted):
    """A sweep with finished first trials and five running ones, as the watches have reported them."""
    async with counted(image=True, space=space(30), one_ends=True).started() as simulation:
        while not (await simulation.record()).progress.succeeded:
            await simulation.round()
        for minutes in range(4):
            simulation.clients = replace(
                simulation.clients, now=lambda at=NOW + timedelta(minutes=minutes): at
            )
            await simulation.round()
        while simulation.last.progress.running < 5 or simulation.last.progress.waiting:
            await simulation.round()
        await simulation.round()
        yield simulation


async def test_reconcile_of_an_unchanged_sweep_costs_two_redis_trips_and_no_request(running):
    """One reads its record, and one its commands; those of the queue are counted in tests/bot/storage."""
    assert await running.reconciled() == {"redis": 2}


async def test_hour_of_an_unchanged_sweep_costs_one_list_of_records_per_five_minutes(running):
    cluster = Counting(running.cluster, "cluster", running.calls)
    informer = SweepInformer(running.redis, replace(running.clients, cluster=cluster, caches=Caches()))
    hour = Counter()
    for _ in range(timedelta(hours=1) // RESYNC_INTERVAL):
        running.calls.clear()
        await informer._wake_unfinished()
        hour += running.calls
        hour += Counter(await running.reconciled())
    assert hour == {"cluster.pages": 12, "redis": 12 * (2 + 2)}
