"""A sweep in a simulated cluster with an item in the queue, for the commands of operators."""

from dataclasses import replace

from bot.core.work_item import WorkItem
from bot.operate.commands import Operator
from bot.platform.storage.last_errors import LastErrors
from bot.platform.storage.work_queue import Queue
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.sweep_in_memory import SWEEP

ITEM = WorkItem.sweep(SWEEP)


class Stage:
    """A sweep in a simulated cluster, its item in the queue, and a worker's lease."""

    def __init__(self, redis, happens=lambda *_: None, **scenario):
        self.redis, self.queue, self.faults = redis, Queue(redis), ()
        self.simulation = FailingTrials(redis, happens, **scenario)

    async def begun(self, rounds):
        await self.redis.set("sweepbot:resync", "worker-1")
        if rounds:
            await self.simulation.rounds(rounds)

    async def failed(self, service, error, times=3):
        """The worker's last runs failed with this error."""
        for _ in range(times):
            await self.queue.add(ITEM)
            await self.queue.fail(await self.queue.get(wait=0))
        await self.error(service, error)

    async def error(self, service, error):
        await LastErrors(self.redis).save(SWEEP, {service: error}, self.simulation.clients.now())

    async def save(self, **changes):
        record = replace(await self.simulation.record(), **changes)
        await self.simulation.store.save(record)

    @property
    def clients(self):
        cluster, store = self.simulation.cluster, self.simulation.store
        return replace(self.simulation.clients, cluster=cluster, queue=self.queue, store=store)

    async def run(self, word, name="", cluster=None):
        async def find_faults(_):
            return self.faults

        clients = replace(self.clients, cluster=cluster) if cluster else self.clients
        return await Operator(clients, self.redis, find_faults).run(word, name)

    async def lines(self, cluster=None):
        return await self.run("inspect", SWEEP, cluster)


class Refusing:
    """An API server that answers everything with one error."""

    def __init__(self, error):
        self.error = error

    async def get(self, _):
        raise self.error
