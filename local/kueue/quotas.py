"""Quotas of ClusterQueues: what fits, what is borrowed, and who is preempted."""

from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.pods import amount
from local.kubernetes.apiserver.store import Store
from local.kueue.workloads import cluster_queue, is_admitted

UNFIT = "couldn't assign flavors to pod set"


class Quotas:
    """The quota of one ClusterQueue, and that of its cohort."""

    def __init__(self, store: Store, queue: Object | None) -> None:
        assert queue, "only asked for Workloads with a ClusterQueue"  # noqa: S101
        self.name: str = queue["metadata"]["name"]
        cohort = queue["spec"].get("cohort")
        every = [q for q in store.peek("ClusterQueue") if cohort and q["spec"].get("cohort") == cohort]
        self.cohort = every or [queue]
        self.own = {name: (flavor, quota, limit) for name, flavor, quota, limit in quotas(queue)}
        self.admitted = [(w, _queue_of(store, w)) for w in store.peek("Workload") if is_admitted(w)]
        self.preempts = queue["spec"].get("preemption", {}).get("withinClusterQueue") == "LowerPriority"

    def lack(self, workload: Object, without: tuple[str, ...] = ()) -> str:
        """Return why the Workload doesn't fit; "" if it does. `without`: uids of Workloads to ignore.

        What is missing for one pod set doesn't keep the next one from being considered, unless it can never
        be there.
        """
        found: list[str] = []
        considered: dict[str, float] = {}
        for pods in workload["spec"]["podSets"]:
            requested = _requests(pods)
            why, never = self._lack(requested, considered, without)
            found += [f"{UNFIT} {pods['name']}: {why}"] if why else []
            if never:
                break
            considered = {
                key: considered.get(key, 0) + requested.get(key, 0) for key in considered | requested
            }
        return "; ".join(found)

    def _lack(
        self, requested: dict[str, float], considered: dict[str, float], without: tuple[str, ...]
    ) -> tuple[str, bool]:
        """Return why one pod set doesn't fit, and whether it never does."""
        for resource, size in sorted(requested.items()):
            if resource not in self.own:
                return f"resource {resource} unavailable in ClusterQueue", True
            flavor, _, _ = self.own[resource]
            before, most = considered.get(resource, 0.0), self._most(resource)
            short = self._short(resource, before + size, without)
            if before + size > most:
                sizes = f"considered podsets requests ({before:g}) + current podset request ({size:g})"
                why = f"previously {sizes} > maximum capacity ({most:g})"
                return f"insufficient quota for {resource} in flavor {flavor}, {why}", True
            if short > 0:
                why = f"{resource} in flavor {flavor}, {short:g} more needed"
                return f"insufficient unused quota for {why}", False
        return "", False

    def victims(self, workload: Object) -> list[Object]:
        """Return the Workloads to preempt for it: as few as needed, the lowest and newest first."""
        mine = workload["spec"]["priority"]
        lower = [w for w, queue in self.admitted if queue == self.name and w["spec"]["priority"] < mine]
        lower.sort(key=lambda w: (w["spec"]["priority"], _descending(w["metadata"]["creationTimestamp"])))
        for number in range(1, len(lower) + 1) if self.preempts else ():
            chosen = lower[:number]
            if not self.lack(workload, tuple(w["metadata"]["uid"] for w in chosen)):
                return chosen
        return []

    def used(self, resource: str, without: tuple[str, ...] = (), queue: str | None = None) -> float:
        """Return the use of all queues of the cohort, or of one."""
        names = {q["metadata"]["name"] for q in self.cohort} if queue is None else {queue}
        left = [w for w, at in self.admitted if at in names and w["metadata"]["uid"] not in without]
        return sum(requests(w).get(resource, 0) for w in left)

    def _most(self, resource: str) -> float:
        _, quota, limit = self.own[resource]
        total = self._total(resource)
        return total if limit is None else min(total, quota + limit)

    def _total(self, resource: str) -> float:
        found = (each for queue in self.cohort for each in quotas(queue))
        return sum(quota for name, _, quota, _ in found if name == resource)

    def _short(self, resource: str, requested: float, without: tuple[str, ...]) -> float:
        here = requested + self.used(resource, without, self.name) - self._most(resource)
        return max(here, requested + self.used(resource, without) - self._total(resource))


def quotas(queue: Object) -> Iterator[tuple[str, str, float, float | None]]:
    """Return resource, flavor, nominal quota, and borrowing limit of the first flavor."""
    for group in queue["spec"].get("resourceGroups", []):
        flavor = group["flavors"][0]
        for each in flavor["resources"]:
            limit = each.get("borrowingLimit")
            most = None if limit is None else amount(str(limit))
            yield each["name"], flavor["name"], amount(str(each["nominalQuota"])), most


def requests(workload: Object) -> dict[str, float]:
    found: dict[str, float] = {}
    for pods in workload["spec"]["podSets"]:
        for name, size in _requests(pods).items():
            found[name] = found.get(name, 0) + size
    return found


def _requests(pods: Object) -> dict[str, float]:
    """Return what a pod set requests."""
    found: dict[str, float] = {}
    for container in pods["template"]["spec"]["containers"]:
        given = container.get("resources", {})
        for name, size in (given.get("limits", {}) | given.get("requests", {})).items():
            found[name] = found.get(name, 0) + amount(str(size)) * pods["count"]
    return found


def _queue_of(store: Store, workload: Object) -> str:
    queue = cluster_queue(store, workload)
    return str(queue["metadata"]["name"]) if queue else ""


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(each) for each in text)
