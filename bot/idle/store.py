"""What was told of idle GPUs, in Redis: bookkeeping only. Lost, each warning comes once more.

usage:<cluster>:told   hash: notice's id -> Notice; expires 30 days after the last one changed
usage:<cluster>:xids   hash: GPU -> its last Xid; expires as long after anybody looked
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.idle.alerts import Alert
from bot.storage.work_queue import text

KEPT = timedelta(days=30)

_NOTICE: TypeAdapter[Alert] = TypeAdapter(Alert)


class AlertStore:
    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._key = redis, f"usage:{cluster}:told"
        self._errors = f"usage:{cluster}:xids"

    async def all(self) -> tuple[Alert, ...]:
        """Without those that another version wrote in another way: they are told once more."""
        found, texts = [], list[Any](await self._redis.hvals(self._key))
        for each in texts:
            with suppress(ValueError):
                found.append(_NOTICE.validate_json(each))
        return tuple(found)

    async def save(self, alerts: Iterable[Alert]) -> None:
        known: dict[Any, Any] = {alert.id: _NOTICE.dump_json(alert) for alert in alerts}
        if not known:
            return
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._key, mapping=known)
            steps.expire(self._key, KEPT)
            await steps.execute()

    async def xids(self) -> dict[str, int]:
        known: dict[Any, Any] = await self._redis.hgetall(self._errors)
        return {text(device): int(code) for device, code in known.items()}

    async def save_xids(self, known: dict[str, int]) -> None:
        mapping: dict[Any, Any] = dict(known)
        if mapping:
            async with self._redis.pipeline(transaction=True) as steps:
                steps.hset(self._errors, mapping=mapping)
                steps.expire(self._errors, KEPT)
                await steps.execute()

    async def forget(self, alert: Alert) -> None:
        await self._redis.hdel(self._key, alert.id)
