"""Delete parts of images that no sweep has used for a long time; the images of trials stay.

Only a later build needs the parts (`code-`, `deps-`, `heavy-`): trials run the composed image, whose layers
are in its own repository. So a deletion costs one more build at most; a sweep that loses a part in between
gets an `ImageMissingError`.

    images:used   sorted set: repository:tag by when it was last of use (or first seen), seconds
"""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.builds.jobs import SHARED, own_repository
from bot.config.policy import Config
from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.registry.client import Registry, RegistryError
from bot.registry.images import Place
from bot.storage import sweep_configmap
from bot.storage.work_queue import text
from k8s.client import KubernetesClient
from k8s.objects import SWEEP_LABEL

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.IMAGE_GC, "tidy")
EACH = timedelta(days=1)
PART = re.compile(r"(code-[0-9a-f]{40}|deps|heavy)-[0-9a-f]+")
USED = "images:used"


@dataclass(frozen=True, kw_only=True)
class ImageGc:
    redis: Redis
    cluster: KubernetesClient
    registry: Registry
    config: Config
    namespace: str
    days: int
    now: Callable[[], datetime]

    async def run(self, _: str) -> timedelta:
        try:
            await self._tidy()
        except (RegistryError, KeyError, ValueError) as error:  # the last two: a record of a newer Sweepbot
            log.warning("image garbage collection failed, next try in 24 h: %s", error)
        return EACH

    async def _tidy(self) -> None:
        used = self._uses(await self._records())
        repositories = await self._repositories(used)
        there = [place for repository in repositories for place in await self._parts(repository)]
        limit = (self.now() - timedelta(days=self.days)).timestamp()
        for place in await self._old(there, used, limit):
            if await self.registry.delete(place):
                log.info("deleted image %s: unused for %d days", place, self.days)
        await self.redis.zremrangebyscore(USED, "-inf", limit)

    async def _records(self) -> list[SweepRecord]:
        kept = await self.cluster.list("ConfigMap", self.namespace, labels=SWEEP_LABEL)
        return [sweep_configmap.read(each) for each in kept]

    def _uses(self, records: Iterable[SweepRecord]) -> dict[Place, datetime]:
        """When each part was last of use to a sweep: now, when the sweep has not ended."""
        found: dict[Place, datetime] = {}
        for record in records:
            until = record.since if record.phase.final else self.now()
            for build in record.plan.builds if record.plan else ():
                place = Place(build.repository, build.tag)
                found[place] = max(until, found.get(place, until))
        return found

    async def _repositories(self, used: Iterable[Place]) -> set[str]:
        """Also of repositories that no configuration names and whose sweeps have left the cluster."""
        known = {own_repository(repository) for repository in self.config.repositories}
        found: Any = await self.redis.zrange(USED, 0, -1)
        before = {text(name).rpartition(":")[0] for name in found}
        return {SHARED} | known | before | {place.repository for place in used}

    async def _parts(self, repository: str) -> list[Place]:
        tags = await self.registry.tags(repository)
        return [Place(repository, tag) for tag in tags if PART.fullmatch(tag)]

    async def _old(self, there: list[Place], used: dict[Place, datetime], limit: float) -> list[Place]:
        """What no sweep is known to have used is as old as our knowledge of it."""
        if not there:
            return []
        last = {str(place): used.get(place, self.now()).timestamp() for place in there}
        await self.redis.zadd(USED, last, nx=True)
        if later := {str(place): last[str(place)] for place in there if place in used}:
            await self.redis.zadd(USED, later, gt=True)
        found: Any = await self.redis.zrangebyscore(USED, "-inf", limit)
        old = {text(name) for name in found}
        return [place for place in there if str(place) in old]
