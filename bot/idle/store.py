"""Store sent GPU warnings in Redis. If the data is lost, each warning is sent once more.

usage:<cluster>:alerts  hash: alert id -> Alert; expires 30 days after the last change
usage:<cluster>:xids    hash: GPU -> its last Xid; expires 30 days after the last check
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.idle.alerts import Alert
from bot.storage.work_queue import text

TTL = timedelta(days=30)

_ALERT: TypeAdapter[Alert] = TypeAdapter(Alert)


class AlertStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._alerts_key = redis, f"usage:{cluster}:alerts"
        self._xids_key = f"usage:{cluster}:xids"

    async def all(self) -> tuple[Alert, ...]:
        """Skip alerts in another version's format: they are sent once more."""
        found, texts = [], list[Any](await self._redis.hvals(self._alerts_key))
        for each in texts:
            with suppress(ValueError):
                found.append(_ALERT.validate_json(each))
        return tuple(found)

    async def save(self, alerts: Iterable[Alert]) -> None:
        mapping: dict[Any, Any] = {alert.id: _ALERT.dump_json(alert) for alert in alerts}
        await self._set(self._alerts_key, mapping)

    async def delete(self, alert: Alert) -> None:
        await self._redis.hdel(self._alerts_key, alert.id)

    async def xids(self) -> dict[str, int]:
        known: dict[Any, Any] = await self._redis.hgetall(self._xids_key)
        return {text(device): int(code) for device, code in known.items()}

    async def save_xids(self, known: dict[str, int]) -> None:
        await self._set(self._xids_key, dict(known))

    async def _set(self, key: str, mapping: dict[Any, Any]) -> None:
        if not mapping:
            return
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(key, mapping=mapping)
            steps.expire(key, TTL)
            await steps.execute()
