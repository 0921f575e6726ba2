"""Delete ended sweeps from the cluster after a number of days; their runs stay in MLflow.

Katib keeps the pods of finished trials for their logs, so without this they would pile up.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.storage import sweep_configmap
from bot.storage.sweeps import Store
from k8s.client import KubernetesClient
from k8s.errors import ApiError
from k8s.katib.spec import REQUEST_ID
from k8s.objects import Manifest, ref_of

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.SWEEP_GC, "retire")
INTERVAL = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class SweepGc:
    cluster: KubernetesClient
    store: Store
    namespace: str
    days: int
    now: Callable[[], datetime]

    async def run(self, _: str = ITEM.key) -> timedelta:
        """Delete all expired sweeps. Return when to run again. Raises ApiError and UnreachableError."""
        expired = await self.cluster.list(
            "ConfigMap", self.namespace, labels=sweep_configmap.ENDED, only=self._is_expired
        )
        for config_map in expired:
            sweep = sweep_configmap.read(config_map)
            if not await self.store.is_active(sweep.id):  # it may have been extended since
                await self._try_delete(sweep, config_map)
        return INTERVAL

    def _is_expired(self, config_map: Manifest) -> bool:
        try:
            return sweep_configmap.read(config_map).since <= self.now() - timedelta(days=self.days)
        except (KeyError, ValueError) as error:
            log.warning("kept %s: unreadable record: %s", config_map["metadata"]["name"], error)
            return False

    async def _try_delete(self, sweep: SweepRecord, config_map: Manifest) -> None:
        """Continue with other sweeps if the cluster rejects one, for example in a removed namespace."""
        try:
            await self._delete(sweep, config_map)
        except ApiError as error:
            if not error.permanent:
                raise
            log.warning("kept %s: the cluster rejected its deletion: %s", sweep.id, error)

    async def _delete(self, sweep: SweepRecord, config_map: Manifest) -> None:
        """Delete the experiment, then empty the ConfigMap, whose name stays taken. A crash repeats both."""
        experiment = await self.cluster.get(sweep.plan.experiment_ref) if sweep.plan else None
        if experiment and experiment["metadata"].get("annotations", {}).get(REQUEST_ID) == sweep.request_id:
            await self.cluster.delete(ref_of(experiment), uid=experiment["metadata"]["uid"])
        await self.cluster.merge(ref_of(config_map), sweep_configmap.RETIRED)
        log.info("deleted %s, ended %s", sweep.id, sweep.since.date())
