"""Who wakes sweeps as the cluster moves: the one process that holds the watch lease."""

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
from k8s.errors import ApiError, UnreachableError
from k8s.objects import BUILD_LABEL, OURS, SWEEP_LABEL, Manifest, still_live
from k8s.outage import Outage
from k8s.watch import SILENCE, watch_forever

log = logging.getLogger(__name__)

BUILDS_WATCHED = ("Pod", "Job")  # in the namespace of builds
WATCHED = (*BUILDS_WATCHED, "Experiment", "Trial")
WATCH_LEASE = 15.0  # seconds
GATHER = timedelta(seconds=0.2)  # one turn for the burst of events that every change is
RESYNC = timedelta(minutes=5)
STALE = 1.5 * SILENCE  # seconds


class SweepInformer:
    def __init__(self, redis: Redis, clients: Clients) -> None:
        self._redis, self._outside = redis, clients
        self._heard: dict[tuple[str, str], float] = {}  # (kind, namespace) -> when; empty: not leading
        self._suspected, self._recovered = asyncio.Event(), asyncio.Event()
        self._outage = Outage(clients.cluster, self._recovered.set)

    async def run(self) -> None:
        """Until cancelled; then another worker leads at once."""
        while True:
            await lead(self._redis, "sweepbot:watch", WATCH_LEASE, self._watch)

    def suspect(self) -> None:
        """A call failed as if the API server were away: what has failed of it is repeated when it is back.

        Watches alone would notice late that etcd is away: their streams stay open.
        """
        self._suspected.set()

    async def fresh(self) -> str:
        """How old the picture may be. Raises ProbeFailedError when a quiet cluster does not explain that.

        Of the installation's namespace: another that can't be watched is told in the log.
        """
        if not self._heard:
            return "not leading"
        home = self._outside.settings.k8s_namespace
        kind, heard = min(
            ((kind, heard) for (kind, namespace), heard in self._heard.items() if namespace == home),
            key=lambda item: item[1],
        )
        silent = monotonic() - heard
        if silent > STALE:
            raise ProbeFailedError(f"nothing was heard about {kind} in {home} for {silent:.0f} s")
        return f"leading; the longest silence is {silent:.0f} s"

    async def _watch(self) -> None:
        settings = self._outside.settings
        trials = itertools.product(WATCHED, all_namespaces(settings.k8s_namespace, self._outside.config))
        watched = dict.fromkeys((*trials, *((kind, settings.builds_in) for kind in BUILDS_WATCHED)))
        self._heard = dict.fromkeys(watched, monotonic())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._resync())
                group.create_task(self._probe())
                for kind, namespace in watched:
                    group.create_task(self._follow(kind, namespace))
        finally:
            self._heard = {}

    async def _follow(self, kind: str, namespace: str) -> None:
        def heard() -> None:
            self._heard[kind, namespace] = monotonic()

        await watch_forever(
            self._outside.cluster,
            kind,
            namespace,
            OURS,
            lambda _, obj: self._wake(obj),
            self._outage,
            on_fresh=heard,
        )

    async def _wake(self, obj: Manifest) -> None:
        labels = obj["metadata"].get("labels", {})
        if sweep := labels.get(SWEEP_LABEL):
            # A restart lists what every sweep left behind; ended ones matter only if something still lives.
            if still_live(obj) or await self._outside.store.is_active(sweep):
                await self._outside.wake(sweep, after=GATHER)
        elif build := labels.get(BUILD_LABEL):
            for waiting in await self._outside.store.concerned_by(build):
                await self._outside.wake(waiting, after=GATHER)

    async def _probe(self) -> None:
        while True:
            await self._suspected.wait()
            await self._outage.over()
            self._suspected.clear()

    async def _resync(self) -> None:
        """The net under the watches, and under a Redis that forgot: the cluster knows what is unfinished.

        And the end of each outage: nothing that failed waits any longer.
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
