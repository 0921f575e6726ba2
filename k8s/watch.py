"""Keep a cache up with one kind of object, through whatever happens to servers and connections.

List, then watch from the list's resourceVersion, and from where the last watch ended. A resourceVersion that
is too old, or that is yet to come, means listing again.

Silence is no sign of a dead connection: the server sends no bookmarks for a kind that has not changed since
it started. So watches are short, and the connection is alive as long as each ends in time.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from time import monotonic

from k8s.cache import Cache
from k8s.client import CALL_SECONDS, WATCH_MARGIN, KubernetesClient
from k8s.errors import ApiError, UnreachableError
from k8s.objects import Manifest
from k8s.outage import Outage, away

log = logging.getLogger(__name__)

STREAM = 60.0  # seconds of one watch
SILENCE = STREAM + WATCH_MARGIN + CALL_SECONDS  # seconds that a live connection can be silent
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the first, and after the n-th failure in a row
PAGE = 100  # whole objects in memory at a time, while a list is read


async def watch_forever(
    cluster: KubernetesClient, cache: Cache, labels: str, outage: Outage, *, on_fresh: Callable[[], None]
) -> None:
    """Keep `cache` up with the objects that have these labels, until cancelled.

    The cache is complete from the end of the first list on, except while the watch is interrupted. `on_fresh`
    is called whenever the server has answered.
    """
    await _Watch(cluster, cache, labels, outage, on_fresh).run()


class _Watch:
    def __init__(
        self,
        cluster: KubernetesClient,
        cache: Cache,
        labels: str,
        outage: Outage,
        on_fresh: Callable[[], None],
    ) -> None:
        self.cluster, self.cache, self.labels = cluster, cache, labels
        self.kind, self.namespace = cache.kind, cache.namespace
        self.outage, self.on_fresh = outage, on_fresh
        self.since = ""  # the resourceVersion up to which the cache has everything; "": not yet listed
        self.failures = 0  # in a row
        self.logged = False  # that it is interrupted

    async def run(self) -> None:
        while True:
            try:
                if not self.since or not await self._is_reachable():
                    await self._list()
                await self._follow()
            except Exception as error:  # noqa: BLE001 - logged once, and tried again
                await self._failed(error)

    async def _list(self) -> None:
        there: set[str] = set()
        since = ""
        listing = self.cluster.pages(self.kind, self.namespace, labels=self.labels, limit=PAGE)
        async with aclosing(listing) as pages:
            async for items, since in pages:  # noqa: B007 - the last one is where the watch begins
                for item in items:
                    there.add(item["metadata"]["name"])
                    self.cache.put(item)
                self.on_fresh()
        self.cache.retain(there)
        self.since = since
        self.cache.complete = True
        self.cache.listed.set()
        self._answered()

    async def _is_reachable(self) -> bool:
        """After an interruption, return False if the server has been restored from an older backup."""
        return self.cache.complete or await self.cluster.has_reached(self.kind, self.namespace, self.since)

    async def _follow(self) -> None:
        began, changed = monotonic(), False
        changes = self.cluster.watch(
            self.kind,
            self.namespace,
            labels=self.labels,
            since=self.since,
            timeout=STREAM,
            on_open=self._opened,
        )
        async with aclosing(changes):
            async for change in changes:
                changed = True
                self._take(*change)
        if not changed and monotonic() - began < FIRST_PAUSE:
            raise UnreachableError("the API server ended a watch at once")
        if not changed and not await self.cluster.has_reached(self.kind, self.namespace, self.since):
            self.since, self.cache.complete = "", False
        self._answered()

    def _opened(self) -> None:
        """The server now sends what has changed since the last watch."""
        self.cache.complete = True
        self.on_fresh()

    def _take(self, what: str, obj: Manifest) -> None:
        if what == "DELETED":
            self.cache.remove(obj["metadata"]["name"])
        elif what != "BOOKMARK":
            self.cache.put(obj)
        self.since = obj["metadata"]["resourceVersion"]
        self._answered()

    def _answered(self) -> None:
        if self.logged:
            log.info("watching %s in %s again", self.kind, self.namespace)
        self.failures, self.logged = 0, False
        self.on_fresh()

    async def _failed(self, error: Exception) -> None:
        self.cache.complete = False
        if isinstance(error, ApiError) and error.expired:
            self.since = ""
        elif not self.logged:
            trace = None if isinstance(error, ApiError | UnreachableError) else error
            text = "watching %s in %s is interrupted: %s"
            log.warning(text, self.kind, self.namespace, error, exc_info=trace)
            self.logged = True
        if isinstance(error, ApiError) and error.throttled:
            await asyncio.sleep(error.wait)
        elif away(error) and await self.outage.over():
            self.failures = 0
        else:
            await self._back_off()

    async def _back_off(self) -> None:
        self.failures += 1
        pause = min(FIRST_PAUSE * 2 ** (self.failures - 1), LONGEST_PAUSE)
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing
