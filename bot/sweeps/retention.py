"""Ended sweeps leave the cluster after the days that an installation sets; their results stay in MLflow.

Without that, pods of trials and records pile up: Katib keeps what it ran, for people to look at logs.
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
from k8s.katib.spec import DELIVERY
from k8s.objects import Manifest, ref_of

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.SWEEP_GC, "retire")
EACH = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class SweepGc:
    cluster: KubernetesClient
    store: Store
    namespace: str
    days: int
    now: Callable[[], datetime]

    async def run(self, _: str = ITEM.key) -> timedelta:
        old = await self.cluster.list(
            "ConfigMap", self.namespace, labels=sweep_configmap.ENDED, only=self._is_old
        )
        for kept in old:
            sweep = sweep_configmap.read(kept)
            if not await self.store.is_active(sweep.id):  # it may have been extended just now
                await self._try(sweep, kept)
        return EACH

    def _is_old(self, kept: Manifest) -> bool:
        try:
            return sweep_configmap.read(kept).since <= self.now() - timedelta(days=self.days)
        except (KeyError, ValueError) as error:
            log.warning("%s stays, for it can't be read: %s", kept["metadata"]["name"], error)
            return False

    async def _try(self, sweep: SweepRecord, kept: Manifest) -> None:
        """A namespace that is no longer ours keeps what is in it, and no other sweep from going."""
        try:
            await self._retire(sweep, kept)
        except ApiError as error:
            if not error.permanent:
                raise
            log.warning("%s stays, for the cluster refuses: %s", sweep.id, error)

    async def _retire(self, sweep: SweepRecord, kept: Manifest) -> None:
        """The record goes last, so that a worker which dies leaves nothing behind. The name stays."""
        experiment = await self.cluster.get(sweep.plan.experiment_ref) if sweep.plan else None
        if experiment and experiment["metadata"].get("annotations", {}).get(DELIVERY) == sweep.request_id:
            await self.cluster.delete(ref_of(experiment), uid=experiment["metadata"]["uid"])
        await self.cluster.merge(ref_of(kept), sweep_configmap.RETIRED)
        log.info("%s, which ended %s, has left the cluster", sweep.id, sweep.since.date())
