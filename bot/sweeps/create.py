"""A new sweep, put down durably before anybody hears of it."""

from datetime import datetime

from bot.core.ids import candidates
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.work_item import WorkItem
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue


async def start(
    store: Store,
    queue: Queue,
    request: SweepRequest,
    requester: Requester,
    *,
    namespace: str,
    request_id: str,
    now: datetime,
) -> SweepRecord:
    """A repeated delivery is the same sweep. Raises redis.exceptions.RedisError."""

    def named(sweep_id: str) -> SweepRecord:
        return SweepRecord(
            id=sweep_id,
            namespace=namespace,
            request=request,
            requester=requester,
            request_id=request_id,
            created=now,
            since=now,
        )

    record, _ = await store.create(named, candidates(request.name or request.space, request_id), request_id)
    await queue.add(WorkItem.sweep(record.id))
    return record
