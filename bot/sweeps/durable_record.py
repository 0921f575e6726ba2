"""Keep a sweep's ConfigMap up with its record in Redis: what survives a Redis that lost its data."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.clients import Clients
from bot.core.record import Phase, SweepRecord
from bot.storage import sweep_configmap
from bot.sweeps.lifecycle import refuse, tell_restored
from k8s.configmaps import upsert
from k8s.errors import ApiError

log = logging.getLogger(__name__)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]  # returns the saved version

CLAIMING = {Phase.RECEIVED, Phase.OPENING}  # the second: records of before the first phase claimed


class DurableRecord:
    """Methods raise ApiError and UnreachableError for what may pass, and whatever `save` raises."""

    def __init__(self, clients: Clients, save: Save) -> None:
        self._clients, self._save = clients, save

    async def claim(self, sweep: SweepRecord) -> SweepRecord | None:
        """Create the ConfigMap before anything else: from here on a lost Redis loses nothing.

        Returns None when an older sweep has this name. Saved at once, so that whatever ends the sweep also
        closes its ConfigMap.
        """
        if sweep.kept or sweep.phase not in CLAIMING:
            return sweep
        ours = replace(sweep, kept=sweep.phase)
        try:
            found = await self._create(ours)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self._save(self._refused(sweep, error))
        if found is None:
            return None
        known = found if found.phase is sweep.phase else tell_restored(found)
        return await self._save(replace(known, version=sweep.version))

    async def keep(self, sweep: SweepRecord) -> SweepRecord:
        """The durable record follows each change of phase, once everything of it was said.

        A cancel at once: a Redis that lost it would let the sweep run on. Never before the name was claimed:
        it may be an older sweep's record that has it.
        """
        if sweep.outbox and sweep.phase is not Phase.STOPPING:
            return sweep
        try:
            if sweep.phase.final:
                return await self._close(sweep)
            if sweep.kept in {None, sweep.phase}:
                return sweep
            return await self._write(sweep)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self._without_record(sweep, error)

    async def _close(self, sweep: SweepRecord) -> SweepRecord:
        """Looked at in every turn of an ended sweep: a record left active would train again one day.

        Left so by a claim whose answer was lost, or by a paused worker that wrote late. Where there is none
        it is created closed, so that a claim still under way finds the name taken.
        """
        ended = replace(sweep, kept=sweep.phase)
        kept = await self._clients.cluster.get(sweep_configmap.ref(sweep.namespace, sweep.id))
        if kept is None:
            kept_now = await self._create(ended)
        else:
            kept_now = sweep_configmap.own(kept, sweep)
        if kept_now is None:
            return sweep
        if kept_now.phase is not sweep.phase:
            return await self._write(sweep)
        return await self._save(ended) if sweep.kept is not sweep.phase else sweep

    async def _write(self, sweep: SweepRecord) -> SweepRecord:
        sweep = replace(sweep, kept=sweep.phase)
        await upsert(self._clients.cluster, sweep_configmap.config_map(sweep))
        return await self._save(sweep)

    async def _without_record(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        """Nothing was made yet: refused. Later the sweep goes on, and each turn tries to write it again."""
        if sweep.phase is Phase.OPENING:
            return await self._save(self._refused(sweep, error))
        log.error("the record of %s can't be kept: %s", sweep.id, error)
        return sweep

    async def _create(self, sweep: SweepRecord) -> SweepRecord | None:
        """Return what the ConfigMap of this name holds now; None if it belongs to another sweep.

        One of the same delivery was created by a call whose answer was lost, or is further on than a Redis
        that lost its data.
        """
        try:
            await self._clients.cluster.create(sweep_configmap.config_map(sweep))
        except ApiError as error:
            if not error.exists:
                raise
            kept = await self._clients.cluster.get(sweep_configmap.ref(sweep.namespace, sweep.id))
            return sweep_configmap.own(kept, sweep) if kept else None
        return sweep

    def _refused(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        why = f"The cluster refused to keep the sweep's record; an administrator has to look: {error}"
        return refuse(sweep, why, self._clients.now())
