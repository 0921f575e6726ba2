"""Store the latest snapshot of GPU use, which answers most queries.

    usage:<cluster>:snapshot   list: the latest snapshot, with its pods in parts; expires after a day

Handlers read the snapshot and add queries to the item `gpus: now`; a worker measures and answers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from redis.asyncio import Redis

from bot.core.stored_format import cached, late_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.measure.gpus.models import PodUse, Snapshot

ITEM = WorkItem(ItemKind.GPU_QUESTIONS, "now")
QUERY_TTL = timedelta(hours=1)
HOME_TAB = "home"  # not a /gpus view: refreshes an open home tab


@dataclass(frozen=True, kw_only=True)
class GpuQuery:
    user: str
    channel: str
    text: str  # after /gpus, or HOME_TAB
    response_url: str = ""
    thread: str = ""  # of a mention, which has no response_url
    at: datetime


PODS_PER_PART = 250  # a call of the parser keeps the event loop waiting, also from a thread

_SNAPSHOT = late_adapter(Snapshot)
_PODS: TypeAdapter[tuple[PodUse, ...]] = TypeAdapter(tuple[PodUse, ...], config=ConfigDict(defer_build=True))
_QUERY = late_adapter(GpuQuery)


class SnapshotStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis = redis
        self._snapshot = f"usage:{cluster}:snapshot"

    async def latest(self) -> Snapshot | None:
        """Return the latest snapshot; None if there is none, or in another version's format."""
        parts: list[Any] = await self._redis.lrange(self._snapshot, 0, -1)
        return await asyncio.to_thread(_decoded, parts) if parts else None

    async def save(self, snapshot: Snapshot) -> None:
        parts = await asyncio.to_thread(_encoded, snapshot)
        async with self._redis.pipeline(transaction=True) as steps:
            steps.delete(self._snapshot)
            steps.rpush(self._snapshot, *parts)
            steps.expire(self._snapshot, timedelta(days=1))
            await steps.execute()


def dump_query(query: GpuQuery) -> str:
    return _QUERY.dump_json(query, exclude_defaults=True).decode()


def load_query(stored: str | bytes) -> GpuQuery | None:
    """Return None for a query of another version."""
    return cached(_QUERY, stored)


def _encoded(snapshot: Snapshot) -> list[bytes]:
    pods = snapshot.pods
    parts = [pods[first : first + PODS_PER_PART] for first in range(0, len(pods), PODS_PER_PART)]
    return [_SNAPSHOT.dump_json(replace(snapshot, pods=())), *map(_PODS.dump_json, parts)]


def _decoded(parts: Sequence[bytes]) -> Snapshot | None:
    snapshot, *pods = cached(_SNAPSHOT, parts[0]), *(cached(_PODS, part) for part in parts[1:])
    if snapshot is None or None in pods:
        return None
    return replace(snapshot, pods=tuple(pod for part in pods if part for pod in part))
