"""Store and queue a new sweep, before its request is acknowledged."""

from datetime import datetime

from bot.core.ids import candidates
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.seeds import EarlierSeeds
from bot.platform.storage.sweeps import NO_VALUE, ExpiringValue, Store
from bot.platform.storage.work_queue import Queue


async def start(
    store: Store,
    queue: Queue,
    request: SweepRequest,
    requester: Requester,
    *,
    namespace: str,
    request_id: str,
    now: datetime,
    earlier_seeds: EarlierSeeds | None = None,
    beside: ExpiringValue = NO_VALUE,
) -> SweepRecord:
    """Return the new record; for a repeated request, the existing one. Raises redis.exceptions.RedisError.

    `beside`: stored in the same round trip.
    """
    new = SweepRecord(
        id="",  # the first of the candidates that is free
        namespace=namespace,
        request=request,
        requester=requester,
        request_id=request_id,
        earlier_seeds=earlier_seeds,
        created=now,
        since=now,
    )
    ids = candidates(request.name or request.space, request_id)
    record, _ = await store.create(new, ids, request_id, queue=queue, beside=beside)
    return record
