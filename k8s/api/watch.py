"""Keep a cache current with the objects of one kind, across restarts, outages, and lost connections.

List, then watch from the list's resourceVersion, and after that from where the last watch ended. List again
if the resourceVersion is too old for the server, or newer than the server's own.

A silent connection isn't necessarily dead: the server sends no bookmarks while no object of the kind has
changed since the watch's resourceVersion. The kernel's probes show within a minute that its peer is gone. A
proxy between can answer them for a dead server, so watches end after four minutes, and a connection is alive
if each ends in time. After a watch with a bookmark each minute, the next one is dead once it had one, or a
change, and then has none.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic

from k8s.api.cache import Cache
from k8s.api.client import CALL_TIMEOUT, WATCH_MARGIN, KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.outage import Outage, is_outage
from k8s.objects import Manifest
from k8s.retry import Retry

log = logging.getLogger(__name__)

WATCH_SECONDS = 240.0  # seconds of one watch; an alert comes after 300 without a response
# Seconds between two bookmarks, one each minute, in a watch that shows that the next one is dead without.
STEADY, NO_BOOKMARK = 75.0, 90.0
SILENCE = WATCH_SECONDS + WATCH_MARGIN + CALL_TIMEOUT  # seconds without a response from a live connection
RETRY = Retry(base=1.0, factor=2, max=30.0, jitter=0.5)
WATCH_PAGE = 100  # whole objects in memory at a time, while a list is read


async def watch_forever(
    cluster: KubernetesClient,
    cache: Cache,
    labels: str,
    outage: Outage,
    *,
    on_fresh: Callable[[], None],
    on_failed: Callable[[], None] = lambda: None,
) -> None:
    """Keep `cache` current with the objects that have these labels, until cancelled.

    The cache is complete after the first list, except while the watch is interrupted. `on_fresh` is called
    after each response of the server, `on_failed` after each list or watch that failed.
    """
    await _Watch(cluster, cache, labels, outage, on_fresh, on_failed).run()


@dataclass
class _Watch:
    cluster: KubernetesClient
    cache: Cache
    labels: str
    outage: Outage
    on_fresh: Callable[[], None]
    on_failed: Callable[[], None] = lambda: None
    since: str = ""  # the resourceVersion up to which the cache has everything; "": not yet listed
    failures: int = 0  # in a row
    steady: bool = False  # whether the last watch had a bookmark each minute
    logged: bool = False  # whether the interruption was logged

    def __post_init__(self) -> None:
        self.kind, self.namespace = self.cache.kind, self.cache.namespace

    async def run(self) -> None:
        while True:
            try:
                if not self.since or not await self._has_our_version():
                    await self._list()
                await self._follow()
            except Exception as error:  # noqa: BLE001 - logged once, then retried
                await self._failed(error)

    async def _list(self) -> None:
        listed: set[str] = set()
        since = ""
        listing = self.cluster.pages(self.kind, self.namespace, labels=self.labels, limit=WATCH_PAGE)
        async with aclosing(listing) as pages:
            async for items, since in pages:  # noqa: B007 - the watch starts at the last one
                for item in items:
                    listed.add(self.cache.key(item))
                    self.cache.put(item)
                self.on_fresh()
        self.cache.retain(listed)
        self.since = since
        self.cache.complete = True
        self.cache.listed.set()
        self._responded()

    async def _has_our_version(self) -> bool:
        """Return False after an interruption if the server was restored from an older backup."""
        return self.cache.complete or await self.cluster.has_reached(self.kind, self.namespace, self.since)

    async def _follow(self) -> None:
        began, changed = monotonic(), False
        last, longest = began, 0.0  # bookmark; seconds without one: a proxy can send all of them at the end
        changes = self.cluster.watch(
            self.kind,
            self.namespace,
            labels=self.labels,
            since=self.since,
            timeout=WATCH_SECONDS,
            on_open=self._opened,
        )
        was_steady, self.steady = self.steady, False
        try:
            async with aclosing(changes), asyncio.timeout(None) as silence:
                async for change in changes:
                    changed = True
                    if was_steady:
                        silence.reschedule(asyncio.get_running_loop().time() + NO_BOOKMARK)
                    if change[0] == "BOOKMARK":
                        last, longest = monotonic(), max(longest, monotonic() - last)
                    self._take(*change)
        except (TimeoutError, UnreachableError) as error:
            if monotonic() - began > RETRY.max:  # a proxy ends silent connections: watch again soon
                self.failures = 0
            if isinstance(error, TimeoutError):
                raise UnreachableError(f"the API server sent nothing for {NO_BOOKMARK:.0f} s") from None
            raise
        ended = monotonic()
        lasted = ended - began
        if not changed and lasted < RETRY.base:
            raise UnreachableError("the API server ended a watch at once")
        # A server that is restored from a backup ends its watches early.
        is_early = lasted < WATCH_SECONDS - 1
        self.steady = not is_early and max(longest, ended - last) <= STEADY
        if (
            is_early
            and not changed
            and not await self.cluster.has_reached(self.kind, self.namespace, self.since)
        ):
            self.since, self.cache.complete = "", False
        self._responded()

    def _opened(self) -> None:
        """Mark the cache complete: the server now sends every change since the last watch."""
        self.cache.complete = True
        self.on_fresh()

    def _take(self, what: str, obj: Manifest) -> None:
        if what == "DELETED":
            self.cache.remove(self.cache.key(obj), obj["metadata"]["resourceVersion"])
        elif what != "BOOKMARK":
            self.cache.put(obj)
        self.since = obj["metadata"]["resourceVersion"]
        self._responded()

    def _responded(self) -> None:
        if self.logged:
            log.info("watching %s in %s again", self.kind, self.namespace or "all namespaces")
        self.failures, self.logged = 0, False
        self.on_fresh()

    async def _failed(self, error: Exception) -> None:
        self.cache.complete = False
        self.on_failed()
        if isinstance(error, ApiError) and error.expired:
            self.since = ""
        elif not self.logged:
            trace = None if isinstance(error, ApiError | UnreachableError) else error
            text = "watching %s in %s is interrupted: %s"
            log.warning(text, self.kind, self.namespace or "all namespaces", error, exc_info=trace)
            self.logged = True
        if isinstance(error, ApiError) and error.throttled:
            await asyncio.sleep(error.wait)
        elif is_outage(error) and await self.outage.over():
            self.failures = 0
        else:
            self.failures += 1
            await asyncio.sleep(RETRY.seconds(self.failures))
