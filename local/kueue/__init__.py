"""A subset of Kueue 0.14.8: queues, quotas, priorities, and preemption of jobs [katib/08-*, 09-kueue-*].

Its API exists once `install` was called: a cluster without its CustomResourceDefinitions has no Workloads.
Only the first flavor of a ClusterQueue counts, and no Cohort object. What a cohort lends is never reclaimed.
"""

from local.kubernetes.apiserver.kinds import QUEUES, Object, clone
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.loop import ControllerLoop
from local.kueue import jobs, status, webhooks, workloads
from local.kueue.quotas import Quotas
from local.kueue.workloads import QUEUE

__all__ = ["QUEUE", "Kueue", "install"]


def install(store: Store) -> None:
    store.install(*QUEUES)


class Kueue(ControllerLoop):
    """Does nothing in namespaces without a LocalQueue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        for kind in jobs.JOBS:
            store.admission(kind, lambda job: webhooks.reviewed(store, job))

    async def _run(self) -> None:
        async for _ in self._store.subscribe(*jobs.JOBS, *QUEUES):
            self.reconcile()

    def reconcile(self) -> None:
        """Bring Workloads up to date with their jobs, then admit what fits, by priority and age."""
        for job in [*jobs.all_jobs(self._store)]:
            meta = job["metadata"]
            if QUEUE in meta.get("labels", {}) and "deletionTimestamp" not in meta:
                workloads.follow(self._store, clone(job))
        for workload in self._pending():
            if self._look_at(workload):
                break  # the quota of what it preempts is its own: nothing behind it may take it
        status.report(self._store)

    def _pending(self) -> list[Object]:
        found = [w for w in self._store.peek("Workload") if workloads.is_pending(w)]
        return sorted(found, key=workloads.order)

    def _look_at(self, workload: Object) -> bool:
        """Admit or refuse a Workload, and return whether it preempts others: the next reconcile admits it."""
        if reason := workloads.inadmissible(self._store, workload):
            workloads.refuse(self._store, workload, reason, "Inadmissible")
            return False
        quotas = Quotas(self._store, workloads.cluster_queue(self._store, workload))
        lacks = quotas.lack(workload)
        if not lacks:
            workloads.admit(self._store, workload, quotas.admission(workload))
            return False
        victims = quotas.victims(workload)
        for victim in victims:
            workloads.preempt(self._store, victim, workload)
        if victims:
            lacks = f"{lacks}. Pending the preemption of {len(victims)} workload(s)"
        workloads.refuse(self._store, workload, lacks, "Pending")
        return bool(victims)
