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
        self.own = {name: (flavor, quota, limit) for name, flavor, quota, limit, _ in quotas(queue)}
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

    def admission(self, workload: Object) -> Object:
        """Return what the status of an admitted Workload names."""
        flavors = {name: flavor for name, (flavor, _, _) in self.own.items()}
        sets = [
            {
                "name": pods["name"],
                "count": pods["count"],
                "flavors": {n: flavors[n] for n in _requests(pods)},
            }
            for pods in workload["spec"]["podSets"]
        ]
        return {"clusterQueue": self.name, "podSetAssignments": sets}

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

    def used(self, resource: str, without: tuple[str, ...], queue: str) -> float:
        """Return the use of one queue."""
        left = [w for w, at in self.admitted if at == queue and w["metadata"]["uid"] not in without]
        return sum(requests(w).get(resource, 0) for w in left)

    def _most(self, resource: str) -> float:
        _, quota, limit = self.own[resource]
        total = sum(lent for _, lent, _ in self._members(resource)) + self._kept(resource)
        return total if limit is None else min(total, quota + limit)

    def _short(self, resource: str, requested: float, without: tuple[str, ...]) -> float:
        used = self.used(resource, without, self.name)
        lent = sum(
            lent - max(0.0, self.used(resource, without, queue) - kept)
            for queue, lent, kept in self._members(resource)
        )
        free = lent + max(0.0, self._kept(resource) - used)
        _, quota, limit = self.own[resource]
        return requested - (free if limit is None else min(free, quota + limit - used))

    def _kept(self, resource: str) -> float:
        return sum(kept for queue, _, kept in self._members(resource) if queue == self.name)

    def _members(self, resource: str) -> Iterator[tuple[str, float, float]]:
        """Return the queues of the cohort, with what each lends, and what it keeps by its lendingLimit."""
        for each in self.cohort:
            for name, _, quota, _, lending in quotas(each):
                lent = quota if lending is None or len(self.cohort) == 1 else min(quota, lending)
                if name == resource:
                    yield each["metadata"]["name"], lent, quota - lent


def quotas(queue: Object) -> Iterator[tuple[str, str, float, float | None, float | None]]:
    """Return resource, flavor, nominal quota, borrowing limit, and lending limit of the first flavor."""
    for group in queue["spec"].get("resourceGroups", []):
        flavor = group["flavors"][0]
        for each in flavor["resources"]:
            given = (each.get(key) for key in ("borrowingLimit", "lendingLimit"))
            borrowing, lending = (None if limit is None else amount(str(limit)) for limit in given)
            yield each["name"], flavor["name"], amount(str(each["nominalQuota"])), borrowing, lending


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
