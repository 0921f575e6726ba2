"""Restore from ConfigMaps what Redis lost, records and work items of runs; wake all unfinished sweeps."""

import logging
from contextlib import aclosing
from dataclasses import dataclass, field

from bot.clients import Clients
from bot.core.work_item import ItemKind, WorkItem
from bot.lifecycle.trouble import report_restored
from bot.storage import sweep_configmap
from k8s.objects import SWEEP_LABEL, Manifest

log = logging.getLogger(__name__)


@dataclass
class Recovered:
    woken: set[str] = field(default_factory=set)  # all unfinished sweeps
    restored: list[str] = field(default_factory=list)  # those of them that Redis had lost
    unreadable: list[str] = field(default_factory=list)  # ConfigMaps of a newer Sweepbot


async def recover(clients: Clients) -> Recovered:
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


async def _restore(config_map: Manifest, sweep_id: str, found: Recovered, clients: Clients) -> None:
    try:
        record = sweep_configmap.read(config_map)
    except (KeyError, ValueError) as error:
        log.warning("unreadable record in the ConfigMap of %s: %s", sweep_id, error)
        found.unreadable.append(sweep_id)
        return
    if await clients.store.restore(report_restored(record)):
        found.restored.append(sweep_id)
