"""Measure unused quota of Kueue's queues, and Workloads that wait for it. Pure.

A sweep yields to Workloads of its own ClusterQueue, and to those of its tree of cohorts as far as its
ClusterQueue borrows: its nominal quota is its own. Kueue's API v1beta2 names the cohort `cohortName`.

Quotas count for each flavor alone, as in Kueue's pkg/cache/scheduler/resource_node.go: a cohort has what its
members and its Cohort object lend. It exists without an object, which then limits nothing. A queue that is
stopped, or not active for another cause, admits nothing; its ClusterQueue lends as before.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.measure.capacity.nodes import WAIT_THRESHOLD
from bot.platform.pod_health.queue_words import fits_quota
from k8s.kueue import Workload
from k8s.nodes.gpu_pods import GpuPod, is_placeholder
from k8s.objects import Manifest, condition
from k8s.quantities import any_amount
from k8s.trial_kinds import JOB_LABEL


@dataclass(frozen=True, kw_only=True)
class Queues:
    """Kueue's queues, and the Workloads of the sweeps' namespaces."""

    cluster_queue: Mapping[tuple[str, str], str]  # by namespace and LocalQueue
    inactive: Collection[tuple[str, str]]  # namespaces and LocalQueues, such as stopped ones
    above: Mapping[str, Manifest]  # ClusterQueues by name
    workloads: tuple[Workload, ...]
    cohorts: Mapping[str, Manifest] = field(default_factory=dict)  # by name


def read_queues(
    local: Collection[Manifest],
    above: Iterable[Manifest],
    workloads: Iterable[Workload],
    cohorts: Iterable[Manifest] = (),
) -> Queues:
    def place(queue: Manifest) -> tuple[str, str]:
        return queue["metadata"]["namespace"], queue["metadata"]["name"]

    return Queues(
        cluster_queue={place(q): q["spec"]["clusterQueue"] for q in local},
        inactive={place(q) for q in local if condition(q, "Active", "False")},
        above={q["metadata"]["name"]: q for q in above},
        workloads=tuple(workloads),
        cohorts={each["metadata"]["name"]: each for each in cohorts},
    )


def capacity_in_queue(
    request: CapacityRequest,
    queues: Queues,
    yielding: Collection[str],
    name: Callable[[Workload], str],
    now: datetime,
) -> FreeCapacity | None:
    """Return what a sweep's queue has free; None if its ClusterQueue can't be read or has no such quota."""
    own = queues.above.get(queues.cluster_queue.get((request.namespace, request.queue), ""))
    if own is None or (free := _unused(own, request.resource, queues)) is None:
        return None

    def wanted(workload: Workload) -> int:
        return workload.devices.get(request.resource, 0)

    size = request.gpus * request.pods
    old = [w for w in queues.workloads if _waits(w, now)]
    mine = [w for w in queues.workloads if w.sweep == request.sweep and not w.finished]
    rank = max((w.priority for w in mine), default=0)
    ours = {request.sweep, *yielding}
    others = [w for w in old if wanted(w) and w.sweep not in ours and w.priority >= rank]
    queue, root = own["metadata"]["name"], _root(own, queues)
    near = [w for w in others if _queue_of(w, queues) == queue]
    far = [w for w in others if _queue_of(w, queues) != queue and _root_of(w, queues) == root != ""]
    borrowed = _used(own, request.resource, "borrowed")
    requested = sum(map(wanted, near)) + min(borrowed, sum(map(wanted, far)))
    who = max([*near, *far], key=wanted, default=None) if requested else None
    short = max(0, requested - sum(max(0, each) for each in free.values()))
    for held in _held_for(request, queues):
        if (flavor := held.flavors.get(request.resource, "")) in free:
            free[flavor] += wanted(held)
    admits = (request.namespace, request.queue) not in queues.inactive
    left = sum(max(0, each // size) for each in free.values()) if admits and not requested else 0
    return FreeCapacity(
        at=now,
        gpus=size,
        trials=left,
        steady=left,
        waiting=sum(w.sweep == request.sweep for w in old),
        to_yield=-(-short // size),
        who=name(who) if who and short else "",
        requested=requested if short else 0,
    )


def has_quota(namespace: str, queue: str, resource: str, queues: Queues) -> bool | None:
    """Return whether a LocalQueue's ClusterQueue has a quota of this resource; None if it is unknown."""
    above = queues.above.get(queues.cluster_queue.get((namespace, queue), ""))
    return None if above is None else bool(_quotas(above, resource))


def _held_for(request: CapacityRequest, queues: Queues) -> list[Workload]:
    """Return the placeholders that hold GPUs for the sweep's queue: its trials replace them."""
    place = request.namespace, request.queue
    holding = (w for w in queues.workloads if w.admitted and is_placeholder(w.job))
    return [w for w in holding if (w.namespace, w.queue) == place]


def held_on_nodes(request: CapacityRequest, queues: Queues, reserved: Iterable[GpuPod]) -> Mapping[str, int]:
    """Return the GPUs by node that are reserved for the sweep's queue. `reserved`: pods of placeholders."""
    jobs = {w.job for w in _held_for(request, queues)}
    found = Counter[str]()
    for pod in reserved:
        if pod.namespace == request.namespace and pod.labels.get(JOB_LABEL) in jobs:
            found[pod.node] += pod.sizes.get(request.resource, 0)
    return found


def _waits(workload: Workload, now: datetime) -> bool:
    old = workload.created is not None and now - workload.created >= WAIT_THRESHOLD
    return old and not workload.reserved and fits_quota(workload) and not is_placeholder(workload.job)


def _queue_of(workload: Workload, queues: Queues) -> str:
    return queues.cluster_queue.get((workload.namespace, workload.queue), "")


def _root_of(workload: Workload, queues: Queues) -> str:
    name = _queue_of(workload, queues)
    return _root(queues.above[name], queues) if name in queues.above else ""


def _root(queue: Manifest, queues: Queues) -> str:
    return next(reversed(_cohorts(queue, queues) or [""]))


def _cohorts(queue: Manifest, queues: Queues) -> list[str] | None:
    """Return the cohorts of a ClusterQueue, the nearest first; None if they form a ring: nothing starts."""
    found, name = list[str](), _parent(queue)
    while name:
        if name in found:
            return None
        found.append(name)
        name = _parent(queues.cohorts.get(name, NO_COHORT))
    return found


def _parent(each: Manifest) -> str:
    spec = each.get("spec") or {}
    return str(spec.get("cohortName") or spec.get("cohort") or spec.get("parentName") or "")


def _unused(queue: Manifest, resource: str, queues: Queues) -> dict[str, int] | None:
    """Return the GPUs by flavor that a ClusterQueue has unused, and can borrow; None without a quota.

    Below 0, more are used than its quota, as after that was lowered.
    """
    if not (quotas := _quotas(queue, resource)):
        return None
    cohorts = _cohorts(queue, queues)
    if cohorts is None:
        return dict.fromkeys(quotas, 0)
    free = {}
    for flavor in quotas:
        left = None
        for name in reversed(cohorts):
            left = _below_cohort(name, resource, flavor, queues).free(left)
        free[flavor] = _below_queue(queue, resource, flavor).free(left)
    return free


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What a ClusterQueue or a cohort, with all below it, has of one resource in one flavor."""

    quota: int
    used: int
    borrowing: int | None = None  # None: no limit
    lending: int | None = None

    @property
    def kept(self) -> int:
        """What is never lent to what is above."""
        return 0 if self.lending is None else max(0, self.quota - self.lending)

    @property
    def used_above(self) -> int:
        return max(0, self.used - self.kept)

    def free(self, above: int | None) -> int:
        """Return what is unused, with what can be borrowed of `above`, what is free there; None: the root."""
        if above is None:
            return self.quota - self.used
        if self.borrowing is not None:
            above = min(above, self.quota - self.kept - self.used_above + self.borrowing)
        return max(0, self.kept - self.used) + above


def _below_queue(queue: Manifest, resource: str, flavor: str) -> _Share:
    used = _used(queue, resource, flavor=flavor)
    return replace(_quotas(queue, resource).get(flavor, NO_QUOTA), used=used)


def _below_cohort(name: str, resource: str, flavor: str, queues: Queues) -> _Share:
    members = [
        *(_below_queue(each, resource, flavor) for each in queues.above.values() if _parent(each) == name),
        *(
            _below_cohort(child, resource, flavor, queues)
            for child, each in queues.cohorts.items()
            if _parent(each) == name
        ),
    ]
    own = _quotas(queues.cohorts.get(name, NO_COHORT), resource).get(flavor, NO_QUOTA)
    lent, used = sum(each.quota - each.kept for each in members), sum(each.used_above for each in members)
    return replace(own, quota=own.quota + lent, used=used)


NO_COHORT: Manifest = {}
NO_QUOTA = _Share(quota=0, used=0)


def _quotas(each: Manifest, resource: str) -> dict[str, _Share]:
    """Return the quotas of a ClusterQueue or Cohort, by flavor."""
    return {
        flavor["name"]: _Share(
            quota=_whole(quota.get("nominalQuota", 0)),
            used=0,
            borrowing=_limit(quota.get("borrowingLimit")),
            lending=_limit(quota.get("lendingLimit")),
        )
        for group in (each.get("spec") or {}).get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for quota in flavor.get("resources") or ()
        if quota["name"] == resource
    }


def _limit(quantity: object) -> int | None:
    return None if quantity is None else _whole(quantity)


def _used(queue: Manifest, resource: str, key: str = "total", flavor: str = "") -> int:
    """Return what Workloads have reserved of one flavor, or of all; those that aren't admitted yet count."""
    return sum(
        _whole(each.get(key) or 0)
        for used in queue.get("status", {}).get("flavorsReservation") or ()
        for each in used.get("resources") or ()
        if each["name"] == resource and flavor in {"", used["name"]}
    )


def _whole(quantity: object) -> int:
    return int(any_amount(str(quantity)))
