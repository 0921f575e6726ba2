"""Hear of every change of one kind of object, through whatever happens to servers and connections.

List, then watch from the list's resourceVersion, and from where the last watch ended. A place that is too
old, or from which nothing is heard, means listing anew; then objects that vanished in between are reported
too. Bookmarks keep the place fresh.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from time import monotonic

from k8s.cluster import ApiError, Cluster, Unreachable
from k8s.objects import Manifest

log = logging.getLogger(__name__)

STREAM = 290.0  # seconds of one watch; API servers and proxies tend to end longer ones by themselves
SILENCE = 100.0  # seconds without event or bookmark (one a minute) after which a line counts as dead
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the first, and after the n-th failure in a row

OnObject = Callable[[str, Manifest], Awaitable[None]]


class _Silence(Unreachable):
    """The line is dead, or the place one that is yet to come, as after etcd was restored from a copy."""


async def watch_forever(
    cluster: Cluster,
    kind: str,
    namespace: str,
    labels: str,
    on_object: OnObject,
    *,
    on_fresh: Callable[[], None] | None = None,
) -> None:
    """Call `on_object("ADDED" | "MODIFIED" | "DELETED", object)` for what is there and what changes.

    Until cancelled. At least once, in order; after an outage an object may be ADDED again, and a vanished one
    comes as DELETED with its metadata only. When `on_object` fails, the same change comes again.
    `on_fresh` is called whenever the server has been heard, so its silence tells how old the picture may be.
    """
    await _Watch(cluster, kind, namespace, labels, on_object, on_fresh or (lambda: None)).run()


class _Watch:
    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        namespace: str,
        labels: str,
        on_object: OnObject,
        on_fresh: Callable[[], None],
    ) -> None:
        self.cluster, self.kind, self.namespace, self.labels = cluster, kind, namespace, labels
        self.on_object, self.on_fresh = on_object, on_fresh
        self.since = ""  # the resourceVersion up to which everything was reported; "": not yet listed
        self.known: dict[str, Manifest] = {}  # by name, to report what vanished unseen
        self.failures = 0  # in a row
        self.told = False  # that it is interrupted

    async def run(self) -> None:
        while True:
            try:
                if not self.since:
                    await self._list()
                await self._follow()
            except Exception as error:  # noqa: BLE001 - told once; what failed comes again
                await self._failed(error)

    async def _list(self) -> None:
        items, since = await self.cluster.snapshot(self.kind, self.namespace, labels=self.labels)
        there = {item["metadata"]["name"] for item in items}
        for item in items:
            await self._report("ADDED", item)
        for gone in [obj for name, obj in self.known.items() if name not in there]:
            await self._report("DELETED", gone)
        self.since = since
        self._heard()

    async def _follow(self) -> None:
        began = monotonic()
        changes = self.cluster.watch(
            self.kind, self.namespace, labels=self.labels, since=self.since, timeout=STREAM
        )
        heard = 0
        async with aclosing(changes):
            while change := await _next(changes):
                heard += 1
                await self._take(*change)
        if not heard and monotonic() - began < FIRST_PAUSE:
            raise Unreachable("the API server ended a watch at once")
        self._heard()

    async def _take(self, what: str, obj: Manifest) -> None:
        if what != "BOOKMARK":
            await self._report(what, obj)
        self.since = obj["metadata"]["resourceVersion"]
        self._heard()

    async def _report(self, what: str, obj: Manifest) -> None:
        await self.on_object(what, obj)
        name = obj["metadata"]["name"]
        if what == "DELETED":
            self.known.pop(name, None)
        else:
            self.known[name] = {key: obj[key] for key in ("apiVersion", "kind", "metadata")}

    def _heard(self) -> None:
        if self.told:
            log.info("watching %s in %s again", self.kind, self.namespace)
        self.failures, self.told = 0, False
        self.on_fresh()

    async def _failed(self, error: Exception) -> None:
        expired = isinstance(error, ApiError) and error.expired
        if expired or isinstance(error, _Silence):
            self.since = ""
        if not expired and not self.told:
            trace = None if isinstance(error, ApiError | Unreachable) else error
            text = "watching %s in %s is interrupted: %s"
            log.warning(text, self.kind, self.namespace, error, exc_info=trace)
            self.told = True
        self.failures += 1
        pause = min(FIRST_PAUSE * 2 ** (self.failures - 1), LONGEST_PAUSE)
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing


async def _next(changes: AsyncGenerator[tuple[str, Manifest], None]) -> tuple[str, Manifest] | None:
    try:
        async with asyncio.timeout(SILENCE):
            return await anext(changes, None)
    except TimeoutError:
        raise _Silence(f"nothing was heard for {SILENCE:.0f} s") from None
