"""Store and queue a new sweep, before its request is acknowledged."""

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
    """Return the new record; for a repeated request, the existing one. Raises redis.exceptions.RedisError."""

    def new(sweep_id: str) -> SweepRecord:
        return SweepRecord(
            id=sweep_id,
            namespace=namespace,
            request=request,
            requester=requester,
            request_id=request_id,
            created=now,
            since=now,
        )

    record, _ = await store.create(new, candidates(request.name or request.space, request_id), request_id)
    await queue.add(WorkItem.sweep(record.id))
    return record
