"""Keep each worker's memory of the cluster, and wake sweeps as it changes.

Every worker watches and wakes. A worker that reconciles a sweep before its own memory shows the change wakes
the sweep itself when it does; the queue holds a sweep once, however many wake it. Only the resync is one
worker's, by a lease.
"""

import asyncio
import itertools
import logging
from contextlib import aclosing, suppress
from datetime import timedelta
from time import monotonic

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.clients import Clients
from bot.config.policy import all_namespaces
from bot.runtime.probes import ProbeFailedError
from bot.storage import sweep_configmap
from bot.storage.leader import lead
from bot.sweeps.wakes import Wakes
from k8s.cache import Cache
from k8s.errors import ApiError, UnreachableError
from k8s.objects import OURS, SWEEP_LABEL
from k8s.outage import Outage
from k8s.watch import SILENCE, watch_forever

log = logging.getLogger(__name__)

BUILDS_WATCHED = ("Pod", "Job")  # in the namespace of builds
WATCHED = (*BUILDS_WATCHED, "Experiment", "Trial")
RESYNC_LEASE = 15.0  # seconds
RESYNC = timedelta(minutes=5)
STALE = 1.5 * SILENCE  # seconds
FIRST_LISTS = 10.0  # seconds after which reconciles start even if the first lists are not complete


class SweepInformer:
    def __init__(self, redis: Redis, clients: Clients) -> None:
        self._redis, self._outside = redis, clients
        self._answered: dict[tuple[str, str], float] = {}  # (kind, namespace) -> when; empty: not started
        self._suspected, self._recovered = asyncio.Event(), asyncio.Event()
        self._outage = Outage(clients.cluster, self._recovered.set)
        self.wakes = Wakes(clients)
        for kind, namespace in self._watched():
            clients.caches.add(Cache(kind, namespace, self.wakes.add))

    async def run(self) -> None:
        """Until cancelled; then another worker takes over the resync."""
        self._answered = dict.fromkeys(self._watched(), monotonic())
        async with asyncio.TaskGroup() as group:
            group.create_task(self.wakes.run())
            group.create_task(self._probe())
            group.create_task(self._lead())
            for cache in self._outside.caches:
                group.create_task(self._follow(cache))

    async def listed(self, stop: asyncio.Event) -> None:
        """Wait until memory is complete for the first time, for 10 s at most, or until `stop`.

        Otherwise each sweep's first reconcile would list what the watches are about to list.
        """
        waits = [asyncio.ensure_future(each) for each in (self._outside.caches.listed(), stop.wait())]
        await asyncio.wait(waits, timeout=FIRST_LISTS, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    def suspect(self) -> None:
        """A call failed as if the API server were away: what has failed of it is repeated when it is back.

        Watches alone would notice late that etcd is away: their streams stay open.
        """
        self._suspected.set()

    async def fresh(self) -> str:
        """How old memory can be. Raises ProbeFailedError when a quiet cluster does not explain that.

        Of the installation's namespace: another that can't be watched is logged.
        """
        if not self._answered:
            return "not started"
        home = self._outside.settings.k8s_namespace
        kind, answered = min(
            ((kind, at) for (kind, namespace), at in self._answered.items() if namespace == home),
            key=lambda item: item[1],
        )
        silent = monotonic() - answered
        if silent > STALE:
            raise ProbeFailedError(f"no answer about {kind} in {home} for {silent:.0f} s")
        return f"watching; the longest silence is {silent:.0f} s"

    def _watched(self) -> dict[tuple[str, str], None]:
        settings = self._outside.settings
        trials = itertools.product(WATCHED, all_namespaces(settings.k8s_namespace, self._outside.config))
        return dict.fromkeys((*trials, *((kind, settings.builds_in) for kind in BUILDS_WATCHED)))

    async def _follow(self, cache: Cache) -> None:
        def answered() -> None:
            self._answered[cache.kind, cache.namespace] = monotonic()

        await watch_forever(self._outside.cluster, cache, OURS, self._outage, on_fresh=answered)

    async def _probe(self) -> None:
        while True:
            await self._suspected.wait()
            await self._outage.over()
            self._suspected.clear()

    async def _lead(self) -> None:
        await self.listed(asyncio.Event())
        while True:
            await lead(self._redis, "sweepbot:resync", RESYNC_LEASE, self._resync)

    async def _resync(self) -> None:
        """Wake what is unfinished: for what a watch missed, and for a Redis that lost its data.

        Also at the end of each outage: nothing that failed waits any longer.
        """
        while True:
            self._recovered.clear()
            again = RESYNC
            try:
                await self._outside.queue.hurry()
                await self._wake_unfinished()
            except (ApiError, UnreachableError, RedisError) as error:
                log.warning("unfinished sweeps can't be listed: %s", error)
                if isinstance(error, ApiError) and error.throttled:
                    again = timedelta(seconds=error.wait)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._recovered.wait(), again.total_seconds())

    async def _wake_unfinished(self) -> None:
        ids = await self._outside.store.active()
        home = self._outside.settings.k8s_namespace
        kept = self._outside.cluster.pages("ConfigMap", home, labels=sweep_configmap.UNFINISHED)
        async with aclosing(kept) as pages:
            async for maps, _ in pages:
                ids |= {each["metadata"]["labels"][SWEEP_LABEL] for each in maps}
        for sweep_id in ids:
            await self._outside.wake(sweep_id)
