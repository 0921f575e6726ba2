"""A worker in a task, and a handler that lasts until it may finish."""

import asyncio

from bot.core.work_item import ItemKind, WorkItem
from bot.worker import Worker

SWEEP = "lr-brave-otter"
WATCH = WorkItem(ItemKind.IDLE_GPUS, "gpus")


class PendingRuns:
    """Replaces the reconciler: its runs last until they may finish."""

    def __init__(self):
        self.started, self.may_end, self.ended = [], asyncio.Event(), []

    async def __call__(self, lease):
        self.started.append(lease.item.key)
        await self.may_end.wait()
        self.ended.append(lease.item.key)


class Running:
    """A worker in a task."""

    def __init__(self, queue, handle, places=2, jobs=None):
        handlers = {ItemKind.SWEEP: handle} | (jobs or {})
        self.worker, self.stop = Worker(queue, places, handlers), asyncio.Event()
        self.task = asyncio.create_task(self.worker.run(self.stop))

    async def cancelled(self):
        self.task.cancel()
        await asyncio.wait([self.task])


async def failed(queue, item, times):
    for _ in range(times):
        await queue.add(item)
        await queue.fail(await queue.get(wait=0))


async def not_(answer):
    return not await answer
