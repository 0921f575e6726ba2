"""What is known of the GPUs at the moment, for answers that can't wait, and who wants to know it better.

    usage:<cluster>:now    the last measurement, expires after a day
    usage:<cluster>:asks   list: questions for the next one, expires after an hour

Doors read and leave questions; a worker's turn of the item `gpus: now` measures and answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.core.work_item import ItemKind, WorkItem
from bot.gpus.models import Snapshot

ITEM = WorkItem(ItemKind.GPU_QUESTIONS, "now")
HOME = "home"  # nobody can type it: the home tab stands open, and shall show what is measured


@dataclass(frozen=True, kw_only=True)
class Question:
    user: str
    channel: str
    text: str  # after /gpus, or HOME
    response_url: str = ""
    at: datetime


_SNAPSHOT: TypeAdapter[Snapshot] = TypeAdapter(Snapshot)
_QUESTION: TypeAdapter[Question] = TypeAdapter(Question)


class SnapshotStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._now, self._asks = redis, f"usage:{cluster}:now", f"usage:{cluster}:asks"

    async def latest(self) -> Snapshot | None:
        found = await self._redis.get(self._now)
        return _SNAPSHOT.validate_json(found) if found else None

    async def keep(self, snapshot: Snapshot) -> None:
        await self._redis.set(self._now, _SNAPSHOT.dump_json(snapshot), ex=timedelta(days=1))

    async def ask(self, question: Question) -> None:
        async with self._redis.pipeline(transaction=True) as both:
            both.rpush(self._asks, _QUESTION.dump_json(question))
            both.expire(self._asks, timedelta(hours=1))
            await both.execute()

    async def asked(self) -> list[Question]:
        found: list[Any] = await self._redis.lrange(self._asks, 0, -1)
        return [_QUESTION.validate_json(each) for each in found]

    async def remove_commands(self, questions: Sequence[Question]) -> None:
        async with self._redis.pipeline(transaction=True) as all_:
            for each in questions:
                all_.lrem(self._asks, 1, _QUESTION.dump_json(each).decode())
            await all_.execute()
