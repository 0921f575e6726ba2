"""Store what Sweepbot did to each elastic Deployment, in the ConfigMap `sweepbot-elastic`.

A number of replicas is stored before it is written to the Deployment. So a leader that takes over can tell
its predecessor's change from someone else's, and one that was paused can't write anymore.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from bot.clients import Clients
from bot.core.stored_format import parse, strict_adapter
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref, config_map

CONFIGMAP_NAME = "sweepbot-elastic"


class Reason(StrEnum):
    """Why the number of replicas changed."""

    FREE = "free"  # GPUs were free
    GIVEN = "given"  # to other pods
    RESERVE = "reserve"  # less is free than the reserve
    LIMITS = "limits"  # it was below `min` or above `max`


@dataclass(frozen=True, kw_only=True)
class ElasticRecord:
    replicas: int | None = None  # the last number that Sweepbot wrote or found first; None: not seen yet
    before: int | None = None  # the number that `replicas` replaces, until it is seen in the Deployment
    changed_at: datetime | None = None
    changed_from: int = 0
    reason: Reason | None = None
    given: tuple[str, ...] = ()  # names of the pods or sweeps that got the GPUs
    raised_at: datetime | None = None
    lowered_at: datetime | None = None
    found: int | None = None  # someone else's number; Sweepbot pauses until it is `replicas` again
    found_by: str = ""  # the field manager that wrote it
    channel: str = ""
    ts: str = ""  # of its message; "": not posted yet
    shown: str = ""  # fingerprint of its message


_RECORD = strict_adapter(ElasticRecord)


class ElasticRecords:
    """The records by `ElasticDeployment.key`. Methods raise ApiError, UnreachableError, and ValueError."""

    def __init__(self, clients: Clients) -> None:
        self._cluster = clients.cluster
        self._ref = Ref("ConfigMap", clients.settings.k8s_namespace, CONFIGMAP_NAME)
        self._records: dict[str, ElasticRecord] | None = None
        self._version = ""
        self._lock = asyncio.Lock()

    async def load(self) -> dict[str, ElasticRecord]:
        """Return all records, read once. Raises NewerFormatError for those of a newer version."""
        async with self._lock:
            return await self._loaded()

    async def _loaded(self) -> dict[str, ElasticRecord]:
        if self._records is None:
            found = await self._cluster.get(self._ref)
            self._version = found["metadata"]["resourceVersion"] if found else ""
            data = (found.get("data") or {}) if found else {}
            self._records = {_key(name): parse(_RECORD, text, name) for name, text in data.items()}
        return self._records

    async def change(self, key: str, **changes: Any) -> ElasticRecord:
        """Store changes of one record and return it.

        Raises ApiError (stale or exists) if another leader was faster, or (absent) if someone deleted the
        ConfigMap; the records are then read again.
        """
        async with self._lock:
            records = await self._loaded()
            before = records.get(key, ElasticRecord())
            after = replace(before, **changes)
            if after != before:
                await self._write({_name(key): _RECORD.dump_json(after, exclude_defaults=True).decode()})
                records[key] = after
            return after

    async def remove(self, key: str) -> None:
        async with self._lock:
            records = await self._loaded()
            await self._write({_name(key): None})
            del records[key]

    async def _write(self, data: dict[str, str | None]) -> None:
        try:
            stored = await self._stored(data)
        except ApiError as error:
            if error.stale or error.exists or error.absent:
                self._records = None
            raise
        self._version = stored["metadata"]["resourceVersion"]

    async def _stored(self, data: dict[str, str | None]) -> Manifest:
        if self._version:
            patch = {"metadata": {"resourceVersion": self._version}, "data": data}
            return await self._cluster.merge(self._ref, patch)
        return await self._cluster.create(config_map(self._ref, data))


def _name(key: str) -> str:
    """Return the entry's name: a namespace has no dots."""
    return key.replace("/", ".", 1)


def _key(name: str) -> str:
    return name.replace(".", "/", 1)
