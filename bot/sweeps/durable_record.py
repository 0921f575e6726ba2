"""Copy a sweep's record from Redis to its ConfigMap, so that it survives the loss of Redis."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.clients import Clients
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.phases import refuse
from bot.lifecycle.trouble import report_restored
from bot.storage import sweep_configmap
from k8s.api.errors import ApiError
from k8s.configmaps import upsert

log = logging.getLogger(__name__)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]  # returns the saved version

CLAIMING = {Phase.RECEIVED, Phase.OPENING}  # OPENING for records of older versions


class DurableRecord:
    """Methods raise ApiError and UnreachableError if a retry can help, and whatever `save` raises."""

    def __init__(self, clients: Clients, save: Save) -> None:
        self._clients, self._save = clients, save

    async def claim(self, sweep: SweepRecord) -> SweepRecord | None:
        """Create the ConfigMap before anything else: from then on the loss of Redis loses nothing.

        Return None if an older sweep has this name. The record is saved at once, so that the end of the
        sweep also closes its ConfigMap.
        """
        if sweep.durable_phase or sweep.phase not in CLAIMING:
            return sweep
        ours = replace(sweep, durable_phase=sweep.phase)
        try:
            found = await self._create(ours)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self._save(self._refused(sweep, error))
        if found is None:
            return None
        current = found if found.phase is sweep.phase else report_restored(found)
        return await self._save(replace(current, version=sweep.version))

    async def keep(self, sweep: SweepRecord) -> SweepRecord:
        """Write each change of phase to the ConfigMap, once its events are posted.

        A cancel is written at once: if Redis lost it, the sweep would continue. Nothing is written before
        the name is claimed, because an older sweep can have it.
        """
        if sweep.outbox and sweep.phase is not Phase.STOPPING:
            return sweep
        try:
            if sweep.phase.final:
                return await self._close(sweep)
            if sweep.durable_phase in {None, sweep.phase}:
                return sweep
            return await self._write(sweep)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self._without_record(sweep, error)

    async def _close(self, sweep: SweepRecord) -> SweepRecord:
        """Mark the ConfigMap as ended, in every reconcile of an ended sweep.

        Otherwise a restored record would run the sweep again: after a claim whose response was lost, or a
        late write of a paused worker. A missing ConfigMap is created as ended, which defeats a late claim.
        """
        ended = replace(sweep, durable_phase=sweep.phase)
        found = await self._clients.cluster.get(sweep_configmap.ref(sweep.namespace, sweep.id))
        stored = sweep_configmap.own(found, sweep) if found else await self._create(ended)
        if stored is None:
            return sweep
        if stored.phase is not sweep.phase:
            return await self._write(sweep)
        return await self._save(ended) if sweep.durable_phase is not sweep.phase else sweep

    async def _write(self, sweep: SweepRecord) -> SweepRecord:
        sweep = replace(sweep, durable_phase=sweep.phase)
        await upsert(self._clients.cluster, sweep_configmap.config_map(sweep))
        return await self._save(sweep)

    async def _without_record(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        """Refuse a sweep that has created nothing; later it continues, and each reconcile tries again."""
        if sweep.phase is Phase.OPENING:
            return await self._save(self._refused(sweep, error))
        log.error("can't write the ConfigMap of %s: %s", sweep.id, error)
        return sweep

    async def _create(self, sweep: SweepRecord) -> SweepRecord | None:
        """Return the record that the ConfigMap has now; None if it belongs to another sweep.

        An existing one of the same request was created by a call whose response was lost, or is ahead of a
        Redis that lost its data.
        """
        try:
            await self._clients.cluster.create(sweep_configmap.config_map(sweep))
        except ApiError as error:
            if not error.exists:
                raise
            found = await self._clients.cluster.get(sweep_configmap.ref(sweep.namespace, sweep.id))
            return sweep_configmap.own(found, sweep) if found else None
        return sweep

    def _refused(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        why = f"The cluster rejected the sweep's ConfigMap. *Fix:* Ask an admin to check this error: {error}"
        return refuse(sweep, why, self._clients.now())
