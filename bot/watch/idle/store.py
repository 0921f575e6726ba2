"""Store sent GPU warnings in Redis; if the data is lost, each warning is sent once more. Store snoozes in
the ConfigMap `sweepbot-keeps`, which survives that: all of them as JSON in one entry.

usage:<cluster>:alerts  hash: alert id -> Alert; expires 30 days after the last change
usage:<cluster>:xids    hash: GPU -> its last Xid; expires 30 days after the last check
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pydantic import OnErrorOmit, TypeAdapter
from redis.asyncio import Redis

from bot.platform.clients import Clients
from bot.platform.storage.configmaps import ConfigMapStore
from bot.platform.storage.work_queue import text
from bot.watch.idle.alerts import Alert, Snooze

log = logging.getLogger(__name__)

TTL = timedelta(days=30)
SNOOZES, KEY = "sweepbot-keeps", "keeps"  # the ConfigMap and its entry

_ALERT: TypeAdapter[Alert] = TypeAdapter(Alert)
_SNOOZES: TypeAdapter[dict[str, Snooze]] = TypeAdapter(dict[str, OnErrorOmit[Snooze]])


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


class SnoozeStore:
    """Snoozes by allocation key. Methods raise ApiError and UnreachableError."""

    def __init__(self, clients: Clients) -> None:
        namespace = clients.settings.k8s_namespace
        self._store = ConfigMapStore(clients.cluster, namespace, SNOOZES, _SNOOZES)

    async def all(self) -> dict[str, Snooze]:
        """Skip damaged ones: the warnings that they kept back are sent."""
        found = await self._store.read()
        for error in found.damaged.values():
            log.warning("can't read ConfigMap %s: %s", SNOOZES, error)
        return found.values.get(KEY, {})

    async def save(self, snoozes: Mapping[str, Snooze], now: datetime) -> None:
        """Store all snoozes that haven't expired."""
        await self._store.write({KEY: {key: each for key, each in snoozes.items() if each.until > now}})
