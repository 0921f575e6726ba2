"""Copy a sweep's record from Redis to its ConfigMap, and restore from there what Redis lost."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage import sweep_configmap
from bot.platform.storage.configmaps import upsert
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.advance import apply_cancels
from bot.sweep.lifecycle.building import refuse
from bot.sweep.lifecycle.trouble import report_restored
from bot.sweep.sweeps.transient_errors import is_final
from k8s.api.errors import ApiError
from k8s.objects import SWEEP_LABEL, Manifest

log = logging.getLogger(__name__)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]  # returns the saved version

CLAIMING = {Phase.RECEIVED, Phase.OPENING}  # OPENING for records of older versions


class DurableRecord:
    """Methods raise ApiError and UnreachableError if a retry can help, and whatever `save` raises."""

    def __init__(self, clients: SweepClients, save: Save) -> None:
        self._clients, self._save = clients, save

    async def claim(self, sweep: SweepRecord) -> SweepRecord | None:
        """Create the ConfigMap before anything else: from then on the loss of Redis loses nothing.

        Return None if an older sweep has this name. The record is saved at once, so that the end of the
        sweep also closes its ConfigMap.
        """
        if sweep.durable_phase or sweep.phase not in {*CLAIMING, Phase.STOPPING}:
            return sweep
        if sweep.phase is Phase.STOPPING:
            return await self._cancelled(sweep)
        ours = replace(sweep, durable_phase=sweep.phase)
        try:
            found = await self._create(ours)
        except ApiError as error:
            if not is_final(error, sweep, self._clients.now()):
                raise
            return await self._save(self._refused(sweep, error))
        if found is None:
            return None
        current = found if found.phase is sweep.phase else report_restored(found)
        return await self._save(replace(current, version=sweep.version))

    async def _cancelled(self, sweep: SweepRecord) -> SweepRecord:
        """Return a sweep that was cancelled before its claim, as its ConfigMap has it if there is one.

        Then Redis lost its data, `serve` restored the sweep as it was acknowledged, and the cancel came
        before the claim. The sweep can have objects in the cluster that only the ConfigMap's record knows.
        """
        found = await self._clients.cluster.get(sweep_configmap.ref(sweep.namespace, sweep.id))
        stored = sweep_configmap.own(found, sweep) if found else None
        if stored is None or stored.phase in CLAIMING:
            return sweep
        log_ = (*stored.audit_log, *sweep.audit_log)
        ahead = replace(stored, version=sweep.version, cancelled_by=sweep.cancelled_by, audit_log=log_)
        cancelled = apply_cancels(report_restored(ahead), (), self._clients.config, self._clients.now())
        return await self._save(cancelled)

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
            is_new = sweep.phase is Phase.OPENING  # it has created nothing
            if not (is_final(error, sweep, self._clients.now()) if is_new else error.permanent):
                raise
            if is_new:
                return await self._save(self._refused(sweep, error))
            log.error("can't write the ConfigMap of %s: %s", sweep.id, error)  # noqa: TRY400 - each reconcile retries
            return sweep

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
        return refuse(sweep, self._clients.mask(why), self._clients.now())


@dataclass
class Recovered:
    woken: set[str] = field(default_factory=set)  # all unfinished sweeps
    restored: list[str] = field(default_factory=list)  # those of them that Redis had lost
    unreadable: list[str] = field(default_factory=list)  # ConfigMaps of a newer Sweepbot


async def recover(clients: SweepClients) -> Recovered:
    """Raises ApiError, UnreachableError, and redis.exceptions.RedisError; it can be repeated at any time."""
    found = Recovered(woken=await clients.store.active())
    home = clients.settings.k8s_namespace
    listing = clients.cluster.pages("ConfigMap", home, labels=sweep_configmap.UNFINISHED)
    async with aclosing(listing) as pages:
        async for maps, _ in pages:
            for config_map in maps:
                sweep_id = config_map["metadata"]["labels"][SWEEP_LABEL]
                if sweep_id not in found.woken:
                    await _restore(config_map, sweep_id, found, clients)
                found.woken.add(sweep_id)
    for sweep_id in found.woken:
        await clients.wake(sweep_id)
    async with aclosing(clients.kept_results.pending()) as pending:
        async for sweep_id in pending:
            await clients.queue.add(WorkItem(ItemKind.TRIAL_RUNS, sweep_id))
    return found


async def _restore(config_map: Manifest, sweep_id: str, found: Recovered, clients: SweepClients) -> None:
    try:
        record = sweep_configmap.read(config_map)
    except (KeyError, ValueError) as error:
        log.warning("unreadable record in the ConfigMap of %s: %s", sweep_id, error)
        found.unreadable.append(sweep_id)
        return
    if await clients.store.restore(report_restored(record)):
        found.restored.append(sweep_id)
