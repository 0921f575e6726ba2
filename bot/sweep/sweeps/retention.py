"""Delete what ended sweeps leave in the cluster: suggestion services, and after SWEEP_DAYS experiments with
their pods and logs; their runs stay in MLflow.

Katib keeps the pods of finished trials for their logs, and the suggestion service (one pod without a GPU) of
every experiment that could continue. Without this, both would pile up.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta

from bot.core.plan import HOME_CLUSTER
from bot.core.record import Phase, SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.clients import Clients
from bot.platform.config.policy import all_namespaces
from bot.platform.storage import sweep_configmap
from bot.sweep.model import engine
from bot.sweep.model.experiment import EXTENDABLE_FOR
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.objects import OURS, SWEEP_LABEL, Manifest, ref_of

log = logging.getLogger(__name__)

ITEM = WorkItem(ItemKind.SWEEP_GC, "retire")
GC_INTERVAL = timedelta(hours=1)
SUGGESTION_TTL = EXTENDABLE_FOR + timedelta(hours=1)  # a command that was just accepted still finds it


@dataclass(frozen=True)
class SweepGc:
    clients: Clients

    async def run(self, _: str = ITEM.key) -> timedelta:
        """Delete what has expired. Return when to run again. Raises ApiError and UnreachableError."""
        clients = self.clients
        for namespace in all_namespaces(clients.settings.k8s_namespace, clients.config):
            await self._delete_suggestions(clients.cluster, namespace)
        for other, namespace in clients.namespaces_elsewhere():
            try:
                await self._delete_suggestions(other, namespace)
            except (ApiError, UnreachableError) as error:
                log.warning("kept the suggestions in %s: %s", namespace, error)
        if clients.settings.sweep_days:  # 0: keep ended sweeps
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
        return not keep and self.clients.now() >= expires

    async def _record(self, sweep_id: str) -> SweepRecord | None:
        namespace = self.clients.settings.k8s_namespace
        try:
            if (record := await self.clients.store.get(sweep_id)) or not sweep_id:
                return record
            found = await self.clients.cluster.get(sweep_configmap.ref(namespace, sweep_id))
            return sweep_configmap.read(found) if found else None
        except (KeyError, ValueError):  # deleted, or of a newer version
            return None

    async def _delete_sweeps(self) -> None:
        namespace, ended = self.clients.settings.k8s_namespace, sweep_configmap.ENDED
        expired = await self.clients.cluster.list("ConfigMap", namespace, labels=ended, only=self._is_expired)
        for config_map in expired:
            sweep = sweep_configmap.read(config_map)
            if not await self.clients.store.is_active(sweep.id):  # it may have been extended since
                await self._try_delete(sweep, config_map)

    def _is_expired(self, config_map: Manifest) -> bool:
        kept = timedelta(days=self.clients.settings.sweep_days)
        try:
            return sweep_configmap.read(config_map).since <= self.clients.now() - kept
        except (KeyError, ValueError) as error:
            log.warning("kept %s: unreadable record: %s", config_map["metadata"]["name"], error)
            return False

    async def _try_delete(self, sweep: SweepRecord, config_map: Manifest) -> None:
        """Delete the experiments, then empty the ConfigMap, whose name stays taken. A crash repeats both.

        Continue with other sweeps if the cluster rejects one, for example in a removed namespace.
        """
        try:
            trials = self.clients.of(sweep.cluster).trials
            if sweep.plan:
                await engine.delete_experiments(sweep, sweep.plan, trials)
            await self.clients.cluster.merge(ref_of(config_map), sweep_configmap.RETIRED)
            log.info("deleted %s, ended %s", sweep.id, sweep.since.date())
        except ClusterUnreachableError as failure:
            log.warning("kept %s: %s", sweep.id, failure)
        except ApiError as error:
            if not error.permanent and sweep.cluster == HOME_CLUSTER:
                raise
            log.warning("kept %s: the cluster rejected its deletion: %s", sweep.id, error)
