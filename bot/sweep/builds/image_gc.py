"""Delete partial images that no sweep has used for some days; the images that trials run stay.

Only later builds need partial images (`code-`, `deps-`, `heavy-`): trials run the composed image, which has
its layers in its own repository. A deletion costs at most one more build; a sweep that loses a part while it
builds gets an `ImageMissingError`.

    images:used   sorted set: repository:tag by last use, or when first seen (Unix seconds)
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.clients import Clients
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.images import ImageRef
from bot.platform.storage import sweep_configmap
from bot.platform.storage.work_queue import text
from bot.sweep.builds.jobs import SHARED, own_repository
from k8s.objects import SWEEP_LABEL

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.IMAGE_GC, "tidy")
GC_INTERVAL = timedelta(days=1)
PARTIAL_TAG = re.compile(r"(code-[0-9a-f]{40}|deps|heavy)-[0-9a-f]+")
USED = "images:used"


@dataclass(frozen=True)
class ImageGc:
    redis: Redis
    clients: Clients
    days: int

    async def run(self, _: str) -> timedelta:
        try:
            await self._collect()
        except (RegistryError, KeyError, ValueError) as error:  # the last two: a record of a newer Sweepbot
            log.warning("image garbage collection failed, next try in 24 h: %s", error)
        return GC_INTERVAL

    async def _collect(self) -> None:
        clients, namespace = self.clients, self.clients.settings.k8s_namespace
        config_maps = await clients.cluster.list("ConfigMap", namespace, labels=SWEEP_LABEL)
        used = self._uses(sweep_configmap.read(each) for each in config_maps)
        there = [
            ImageRef(repository, tag)
            for repository in await self._repositories(used)
            for tag in await clients.registry.tags(repository)
            if PARTIAL_TAG.fullmatch(tag)
        ]
        limit = (clients.now() - timedelta(days=self.days)).timestamp()
        for place in await self._old(there, used, limit):
            if await clients.registry.delete(place):
                log.info("deleted image %s: unused for %d days", place, self.days)
        await self.redis.zremrangebyscore(USED, "-inf", limit)

    def _uses(self, records: Iterable[SweepRecord]) -> dict[ImageRef, datetime]:
        """Return when each part was last used by a sweep; now for sweeps that haven't ended."""
        found: dict[ImageRef, datetime] = {}
        for record in records:
            until = record.since if record.phase.final else self.clients.now()
            for build in record.plan.all_builds if record.plan else ():
                place = ImageRef(build.repository, build.tag)
                found[place] = max(until, found.get(place, until))
        return found

    async def _repositories(self, used: Iterable[ImageRef]) -> set[str]:
        """Return all image repositories, also those no longer in the configuration or the cluster."""
        settings, config = self.clients.settings, self.clients.config
        known = {own_repository(repository, settings) for repository in config.repositories}
        found: Any = await self.redis.zrange(USED, 0, -1)
        before = {text(name).rpartition(":")[0] for name in found}
        shared = settings.image_repository(SHARED)
        return {shared} | known | before | {place.repository for place in used}

    async def _old(
        self, there: list[ImageRef], used: dict[ImageRef, datetime], limit: float
    ) -> list[ImageRef]:
        """Return the parts last used before `limit`; a part without known use counts from when first seen."""
        if not there:
            return []
        last = {str(place): used.get(place, self.clients.now()).timestamp() for place in there}
        await self.redis.zadd(USED, last, nx=True)
        if later := {str(place): last[str(place)] for place in there if place in used}:
            await self.redis.zadd(USED, later, gt=True)
        found: Any = await self.redis.zrangebyscore(USED, "-inf", limit)
        old = {text(name) for name in found}
        return [place for place in there if str(place) in old]
