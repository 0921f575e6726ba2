"""Hear of every change of one kind of object, through whatever happens to servers and connections.

List, then watch from the list's resourceVersion, and from where the last watch ended. A place that is too
old, or that is yet to come, means listing again; then objects that vanished in between are reported too.

Silence is no sign of a dead line: the server sends no bookmarks for a kind that has not changed since it
started. So watches are short, and the line lives as long as each ends in time.

Memory: a page of objects at a time, and the name and labels of each.
"""

import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from time import monotonic

from k8s.client import CALL_SECONDS, WATCH_MARGIN, KubernetesClient
from k8s.errors import ApiError, UnreachableError
from k8s.objects import Manifest
from k8s.outage import Outage, away

log = logging.getLogger(__name__)

STREAM = 60.0  # seconds of one watch
SILENCE = STREAM + WATCH_MARGIN + CALL_SECONDS  # seconds that a line which is not dead may be silent
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the first, and after the n-th failure in a row

OnObject = Callable[[str, Manifest], Awaitable[None]]


async def watch_forever(
    cluster: KubernetesClient,
    kind: str,
    namespace: str,
    labels: str,
    on_object: OnObject,
    outage: Outage,
    *,
    on_fresh: Callable[[], None],
) -> None:
    """Call `on_object("ADDED" | "MODIFIED" | "DELETED", object)` for what is there and what changes.

    Until cancelled. At least once, in order; after an outage an object may be ADDED again, and a vanished one
    comes as DELETED with its name and labels only. When `on_object` fails, the same change comes again.
    `on_fresh` is called whenever the server has been heard, so its silence tells how old the picture may be.
    """
    await _Watch(cluster, kind, namespace, labels, on_object, outage, on_fresh).run()


class _Watch:
    def __init__(
        self,
        cluster: KubernetesClient,
        kind: str,
        namespace: str,
        labels: str,
        on_object: OnObject,
        outage: Outage,
        on_fresh: Callable[[], None],
    ) -> None:
        self.cluster, self.kind, self.namespace, self.labels = cluster, kind, namespace, labels
        self.on_object, self.outage, self.on_fresh = on_object, outage, on_fresh
        self.since = ""  # the resourceVersion up to which everything was reported; "": not yet listed
        self.known: dict[str, dict[str, str]] = {}  # labels by name, to report what vanished unseen
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
        there: set[str] = set()
        since = ""
        async with aclosing(self.cluster.pages(self.kind, self.namespace, labels=self.labels)) as pages:
            async for items, since in pages:  # noqa: B007 - the last one is where the watch begins
                for item in items:
                    there.add(item["metadata"]["name"])
                    await self._report("ADDED", item)
                self.on_fresh()
        for gone in self.known.keys() - there:
            meta = {"name": gone, "namespace": self.namespace, "labels": self.known[gone]}
            await self._report("DELETED", {"kind": self.kind, "metadata": meta})
        self.since = since
        self._heard()

    async def _follow(self) -> None:
        began, heard = monotonic(), False
        changes = self.cluster.watch(
            self.kind, self.namespace, labels=self.labels, since=self.since, timeout=STREAM
        )
        async with aclosing(changes):
            async for change in changes:
                heard = True
                await self._take(*change)
        if not heard and monotonic() - began < FIRST_PAUSE:
            raise UnreachableError("the API server ended a watch at once")
        if not heard and not await self.cluster.has_reached(self.kind, self.namespace, self.since):
            self.since = ""
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
            labels = obj["metadata"].get("labels") or {}
            # Most are alike; each object would have its own copies.
            self.known[name] = {sys.intern(key): sys.intern(value) for key, value in labels.items()}

    def _heard(self) -> None:
        if self.told:
            log.info("watching %s in %s again", self.kind, self.namespace)
        self.failures, self.told = 0, False
        self.on_fresh()

    async def _failed(self, error: Exception) -> None:
        expired = isinstance(error, ApiError) and error.expired
        if expired:
            self.since = ""
        elif not self.told:
            trace = None if isinstance(error, ApiError | UnreachableError) else error
            text = "watching %s in %s is interrupted: %s"
            log.warning(text, self.kind, self.namespace, error, exc_info=trace)
            self.told = True
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
