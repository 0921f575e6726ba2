"""Measure unused quota of Kueue's queues, and Workloads that wait for it. Pure.

A sweep yields to Workloads of its own ClusterQueue, and to those of its cohort as far as its ClusterQueue
borrows: its nominal quota is its own. Kueue's API v1beta2 names the cohort `cohortName`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.core.pace import CapacityRequest, FreeCapacity
from bot.measure.capacity.nodes import WAIT_THRESHOLD
from k8s.kueue import Workload, fits_quota
from k8s.nodes.gpu_pods import GpuPod, is_placeholder
from k8s.objects import Manifest
from k8s.quantities import any_amount
from k8s.trial_kinds import JOB_LABEL


@dataclass(frozen=True, kw_only=True)
class Queues:
    """Kueue's queues, and the Workloads of the sweeps' namespaces."""

    cluster_queue: Mapping[tuple[str, str], str]  # by namespace and LocalQueue
    above: Mapping[str, Manifest]  # ClusterQueues by name
    workloads: tuple[Workload, ...]


def read_queues(
    local: Iterable[Manifest], above: Iterable[Manifest], workloads: Iterable[Workload]
) -> Queues:
    return Queues(
        cluster_queue={
            (q["metadata"]["namespace"], q["metadata"]["name"]): q["spec"]["clusterQueue"] for q in local
        },
        above={q["metadata"]["name"]: q for q in above},
        workloads=tuple(workloads),
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
    size = request.gpus * request.pods
    old = [w for w in queues.workloads if _waits(w, now)]
    mine = [w for w in queues.workloads if w.sweep == request.sweep and not w.finished]
    rank = max((w.priority for w in mine), default=0)
    others = [w for w in old if w.sweep not in {request.sweep, *yielding} and w.priority >= rank and w.gpus]
    queue = own["metadata"]["name"]
    near = [w for w in others if queues.cluster_queue.get((w.namespace, w.queue)) == queue]
    far = [w for w in others if w not in near and _cohort_of(w, queues) == _cohort(own) != ""]
    requested = sum(w.gpus for w in near) + min(
        _used(own, request.resource, "borrowed"), sum(w.gpus for w in far)
    )
    who = max([*near, *far], key=lambda w: w.gpus, default=None) if requested else None
    short = max(0, requested - max(0, free))
    held = sum(w.devices.get(request.resource, 0) for w in _held_for(request, queues))
    left = 0 if requested else max(0, (free + held) // size)
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
    return None if above is None else _quota(above, resource) is not None


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
    return old and fits_quota(workload) and not is_placeholder(workload.job)


def _cohort_of(workload: Workload, queues: Queues) -> str:
    name = queues.cluster_queue.get((workload.namespace, workload.queue), "")
    return _cohort(queues.above[name]) if name in queues.above else ""


def _cohort(queue: Manifest) -> str:
    return str(queue["spec"].get("cohortName") or queue["spec"].get("cohort") or "")


def _unused(queue: Manifest, resource: str, queues: Queues) -> int | None:
    """Return the GPUs of a ClusterQueue's quota, and of what it can borrow, that are unused."""
    quota = _quota(queue, resource)
    if quota is None:
        return None
    nominal, borrowing, kept = quota
    used = _used(queue, resource)
    if not (cohort := _cohort(queue)):
        return nominal - used
    members = [each for each in queues.above.values() if _cohort(each) == cohort]
    free = max(0, kept - used) + sum(_lent(each, resource) for each in members)
    return free if borrowing is None else min(free, nominal + borrowing - used)


def _lent(queue: Manifest, resource: str) -> int:
    """Return how many GPUs a ClusterQueue adds to those that its cohort has free; below 0, it borrows."""
    nominal, _, kept = _quota(queue, resource) or (0, None, 0)
    return nominal - max(kept, _used(queue, resource))


def _quota(queue: Manifest, resource: str) -> tuple[int, int | None, int] | None:
    """Return nominal quota, borrowing limit, and what is never lent, of all flavors; None without any."""
    found = [
        each
        for group in queue["spec"].get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for each in flavor.get("resources") or ()
        if each["name"] == resource
    ]
    if not found:
        return None
    limits = [each.get("borrowingLimit") for each in found]
    borrowing = None if None in limits else sum(_whole(each) for each in limits)
    nominal = [_whole(each.get("nominalQuota", 0)) for each in found]
    lending = [_whole(each.get("lendingLimit", own)) for each, own in zip(found, nominal, strict=True)]
    kept = sum(max(0, own - lent) for own, lent in zip(nominal, lending, strict=True))
    return sum(nominal), borrowing, kept


def _used(queue: Manifest, resource: str, key: str = "total") -> int:
    return sum(
        _whole(each.get(key) or 0)
        for flavor in queue.get("status", {}).get("flavorsUsage") or ()
        for each in flavor.get("resources") or ()
        if each["name"] == resource
    )


def _whole(quantity: object) -> int:
    return int(any_amount(str(quantity)))
