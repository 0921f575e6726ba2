"""The admission plugin Priority: it computes a pod's priority from its PriorityClass.

Messages are those of plugin/pkg/admission/priority in kubernetes.
"""

from collections.abc import Iterable

from local.kubernetes.apiserver.kinds import KINDS, Object, refusal

PREEMPTS = "PreemptLowerPriority"


def admit(pod: Object, classes: Iterable[Object]) -> None:
    """Set a new pod's priority and preemption policy. Raises Refused 403 for an unknown class."""
    spec, known = pod.setdefault("spec", {}), list(classes)
    name = spec.get("priorityClassName") or _default(known)
    found = next((each for each in known if each["metadata"]["name"] == name), None)
    if name and found is None:
        raise _forbidden(pod, f"no PriorityClass with name {name} was found")
    value = found["value"] if found else 0
    if spec.get("priority", value) != value:
        why = "the integer value of priority ({}) must not be provided in pod spec; "
        why += "priority admission controller computed {} from the given PriorityClass name"
        raise _forbidden(pod, why.format(spec["priority"], value))
    spec |= {"priorityClassName": name} if name else {}
    spec |= {"priority": value, "preemptionPolicy": (found or {}).get("preemptionPolicy", PREEMPTS)}


def _default(classes: Iterable[Object]) -> str:
    return next((str(each["metadata"]["name"]) for each in classes if each.get("globalDefault")), "")


def _forbidden(pod: Object, why: str) -> Exception:
    name = pod["metadata"].get("name", "")
    return refusal(403, f'pods "{name}" is forbidden: {why}', "Forbidden", KINDS["Pod"].details(name))
