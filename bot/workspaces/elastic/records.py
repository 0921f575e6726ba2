"""Store what Sweepbot did to each elastic Deployment, in the ConfigMap `sweepbot-elastic`.

A number of replicas is stored before it is written to the Deployment. So a leader that takes over can tell
its predecessor's change from someone else's, and one that was paused can't write anymore.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from bot.core.stored_format import NewerFormatError, strict_adapter
from bot.platform.clients import Clients
from bot.platform.storage.configmaps import ConfigMapStore
from k8s.api.errors import ApiError, SweepbotError

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
    """The records by `ElasticDeployment.key`. Methods raise ApiError, UnreachableError, and ValueError.

    `unreadable` has an error for each one that is damaged or of a newer version. It is left as it is.
    """

    def __init__(self, clients: Clients) -> None:
        namespace = clients.settings.k8s_namespace
        self._store = ConfigMapStore(clients.cluster, namespace, CONFIGMAP_NAME, _RECORD, sparse=True)
        self._records: dict[str, ElasticRecord] | None = None
        self.unreadable: dict[str, SweepbotError] = {}
        self._version = ""
        self._lock = asyncio.Lock()

    async def load(self) -> dict[str, ElasticRecord]:
        """Return all readable records. They are read once, or as long as one can't be read."""
        async with self._lock:
            if self.unreadable:
                self._records = None
            return await self._loaded()

    async def _loaded(self) -> dict[str, ElasticRecord]:
        if self._records is None:
            found = await self._store.read()
            self._version = found.version
            self._records = {_key(name): record for name, record in found.values.items()}
            self.unreadable = {_key(name): _unreadable(name, why) for name, why in found.damaged.items()}
        return self._records

    async def change(self, key: str, **changes: Any) -> ElasticRecord:
        """Store changes of one record and return it. Raises its error if it is unreadable.

        Raises ApiError (stale or exists) if another leader was faster, or (absent) if someone deleted the
        ConfigMap; the records are then read again.
        """
        async with self._lock:
            records = await self._loaded()
            if error := self.unreadable.get(key):
                raise error
            before = records.get(key, ElasticRecord())
            after = replace(before, **changes)
            if after != before:
                await self._write({_name(key): after})
                records[key] = after
            return after

    async def remove(self, key: str) -> None:
        async with self._lock:
            records = await self._loaded()
            await self._write({_name(key): None})
            del records[key]

    async def _write(self, changes: Mapping[str, ElasticRecord | None]) -> None:
        try:
            self._version = await self._store.write(changes, self._version)
        except ApiError as error:
            if error.stale or error.exists or error.absent:
                self._records = None
            raise


def _unreadable(name: str, why: ValueError) -> SweepbotError:
    if isinstance(why, NewerFormatError):
        return why
    return SweepbotError(
        f"entry {name} of ConfigMap {CONFIGMAP_NAME} is damaged; delete it to start from the current number "
        "of replicas"
    )


def _name(key: str) -> str:
    """Return the entry's name: a namespace has no dots."""
    return key.replace("/", ".", 1)


def _key(name: str) -> str:
    return name.replace(".", "/", 1)
