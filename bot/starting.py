"""A new sweep, put down durably before anybody hears of it."""

from datetime import datetime

from bot.identity import candidates
from bot.models import Asker, SweepRecord, SweepRequest
from bot.queue import Queue
from bot.store import Store


async def start(
    store: Store,
    queue: Queue,
    request: SweepRequest,
    asker: Asker,
    *,
    namespace: str,
    delivery: str,
    now: datetime,
) -> SweepRecord:
    """A repeated delivery is the same sweep. Raises redis.exceptions.RedisError."""

    def named(sweep_id: str) -> SweepRecord:
        return SweepRecord(
            id=sweep_id,
            namespace=namespace,
            request=request,
            asker=asker,
            delivery=delivery,
            created=now,
            since=now,
        )

    record, _ = await store.create(named, candidates(request.name or request.space, delivery), delivery)
    await queue.add(record.id)
    return record
