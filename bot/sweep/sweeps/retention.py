"""Delete what ended sweeps leave in the cluster: suggestion services, and after SWEEP_DAYS experiments with
their pods and logs; their runs stay in MLflow.

Katib keeps the pods of finished trials for their logs, and the suggestion service (one pod without a GPU) of
every experiment that could continue. Without this, both would pile up.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.plan import HOME_CLUSTER
from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage import sweep_configmap
from bot.platform.storage.sweeps import Store
from bot.sweep.model import engine
from bot.sweep.model.experiment import EXTENDABLE_FOR
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.objects import OURS, SWEEP_LABEL, Manifest, ref_of

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.SWEEP_GC, "retire")
GC_INTERVAL = timedelta(hours=1)
SUGGESTION_TTL = EXTENDABLE_FOR + timedelta(hours=1)  # a command that was just accepted still finds it


@dataclass(frozen=True, kw_only=True)
class SweepGc:
    cluster: KubernetesClient
    store: Store
    namespace: str  # of the records
    namespaces: Callable[[], tuple[str, ...]]  # of trials in the main cluster, at present
    elsewhere: Callable[[], Sequence[tuple[KubernetesClient, str]]] = tuple  # other clusters' namespaces
    trials_of: Callable[[str], KubernetesClient] | None = (
        None  # by cluster; None: all are in the main cluster
    )
    days: int  # 0: keep ended sweeps
    now: Callable[[], datetime]

    async def run(self, _: str = ITEM.key) -> timedelta:
        """Delete what has expired. Return when to run again. Raises ApiError and UnreachableError."""
        for namespace in self.namespaces():
            await self._delete_suggestions(self.cluster, namespace)
        for other, namespace in self.elsewhere():
            try:
                await self._delete_suggestions(other, namespace)
            except (ApiError, UnreachableError) as error:
                log.warning("kept the suggestions in %s: %s", namespace, error)
        if self.days:
            await self._delete_sweeps()
        return GC_INTERVAL

    async def _delete_suggestions(self, cluster: KubernetesClient, namespace: str) -> None:
        try:
            for suggestion in await cluster.list(engine.SEARCH, namespace, labels=OURS):
                if await self._is_unused(suggestion):
                    await cluster.delete(ref_of(suggestion), uid=suggestion["metadata"]["uid"])
        except ApiError as error:
            if not error.permanent:
                raise
            log.warning("kept the suggestions in %s: the cluster rejected it: %s", namespace, error)

    async def _is_unused(self, suggestion: Manifest) -> bool:
        """Return whether its experiment can't continue; Katib doesn't create it again after the end."""
        sweep = await self._record(suggestion["metadata"]["labels"].get(SWEEP_LABEL, ""))
        if sweep is None or not sweep.phase.final:
            return False
        keep = sweep.phase is Phase.SUCCEEDED and sweep.plan is not None and sweep.plan.space.extendable
        expires = sweep.since + (SUGGESTION_TTL if sweep.phase is Phase.SUCCEEDED else timedelta(0))
        return not keep and self.now() >= expires

    async def _record(self, sweep_id: str) -> SweepRecord | None:
        try:
            if record := await self.store.get(sweep_id):
                return record
            found = (
                await self.cluster.get(sweep_configmap.ref(self.namespace, sweep_id)) if sweep_id else None
            )
            return sweep_configmap.read(found) if found else None
        except (KeyError, ValueError):  # deleted, or of a newer version
            return None

    async def _delete_sweeps(self) -> None:
        expired = await self.cluster.list(
            "ConfigMap", self.namespace, labels=sweep_configmap.ENDED, only=self._is_expired
        )
        for config_map in expired:
            sweep = sweep_configmap.read(config_map)
            if not await self.store.is_active(sweep.id):  # it may have been extended since
                await self._try_delete(sweep, config_map)

    def _is_expired(self, config_map: Manifest) -> bool:
        try:
            return sweep_configmap.read(config_map).since <= self.now() - timedelta(days=self.days)
        except (KeyError, ValueError) as error:
            log.warning("kept %s: unreadable record: %s", config_map["metadata"]["name"], error)
            return False

    async def _try_delete(self, sweep: SweepRecord, config_map: Manifest) -> None:
        """Delete the experiments, then empty the ConfigMap, whose name stays taken. A crash repeats both.

        Continue with other sweeps if the cluster rejects one, for example in a removed namespace.
        """
        try:
            trials = self.trials_of(sweep.cluster) if self.trials_of else self.cluster
            if sweep.plan:
                await engine.delete_experiments(sweep, sweep.plan, trials)
            await self.cluster.merge(ref_of(config_map), sweep_configmap.RETIRED)
            log.info("deleted %s, ended %s", sweep.id, sweep.since.date())
        except ClusterUnreachableError as failure:
            log.warning("kept %s: %s", sweep.id, failure)
        except ApiError as error:
            if not error.permanent and sweep.cluster == HOME_CLUSTER:
                raise
            log.warning("kept %s: the cluster rejected its deletion: %s", sweep.id, error)
