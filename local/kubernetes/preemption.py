"""The scheduler's preemption: nominate a node for a pod, and delete pods of a lower priority there.

As in kubernetes' pkg/scheduler/framework/plugins/defaultpreemption, without PodDisruptionBudgets.
"""

from collections.abc import Callable, Mapping

from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.store import Store, place

Fits = Callable[[str, list[Object]], bool]  # whether the pod fits on the node without these pods
ACCOMMODATES = "default-scheduler: preempting to accommodate a higher priority pod"


def ineligible(store: Store, pod: Object) -> str:
    """Return why the pod can't preempt now; "" if it can."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never.."
    node = pod["status"].get("nominatedNodeName")
    for each in store.peek("Pod") if node else ():
        leaving = "deletionTimestamp" in each["metadata"] and each["spec"].get("nodeName") == node
        if leaving and _priority(each) < _priority(pod):
            return "not eligible due to a terminating pod on the nominated node.."
    return ""


def choose(pod: Object, living: Mapping[str, list[Object]], fits: Fits) -> tuple[str, list[Object]] | None:
    """Return a node and the victims there; None if preemption doesn't help.

    Of several nodes, the one with the lowest highest priority of a victim wins, then the one with the fewest.
    """
    found: list[tuple[str, list[Object]]] = []
    for node, here in living.items():
        lower = [each for each in here if _priority(each) < _priority(pod)]
        if lower and fits(node, lower):
            found.append((node, _fewest(node, lower, fits)))
    return min(found, key=lambda one: (max(map(_priority, one[1]), default=0), len(one[1])), default=None)


def evict(store: Store, pod: Object, node: str, victims: list[Object]) -> None:
    uid = pod["metadata"]["uid"]
    for victim in victims:
        if "deletionTimestamp" in victim["metadata"]:
            continue
        status = victim["status"]
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        disrupted |= {"message": ACCOMMODATES, "lastTransitionTime": timestamp()}
        store.set_status(victim, {**status, "conditions": [*status.get("conditions", []), disrupted]})
        store.delete(*place(victim))
        text = f"Preempted by pod {uid} on node {node}"
        store.record_event(victim, "Normal", "Preempted", text, "default-scheduler")


def _fewest(node: str, lower: list[Object], fits: Fits) -> list[Object]:
    """Spare as many as possible, those of the highest priority first."""
    victims = list(lower)
    for each in sorted(lower, key=_priority, reverse=True):
        rest = [one for one in victims if one is not each]
        if fits(node, rest):
            victims = rest
    return victims


def _priority(pod: Object) -> int:
    priority: int = pod["spec"].get("priority", 0)
    return priority
