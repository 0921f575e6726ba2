"""Conditions as apimachinery's meta.SetStatusCondition writes them."""

from local.kubernetes.apiserver.kinds import Object, timestamp


def is_true(status: Object, type_: str) -> Object:
    """Return the condition if it is True; empty if it isn't."""
    wanted = {"type": type_, "status": "True"}.items()
    return next((each for each in status.get("conditions", []) if wanted <= each.items()), {})


def put(status: Object, type_: str, state: str, reason: str, message: str) -> bool:
    """Set the condition in place, and return whether it has changed; its time is that of its last state."""
    conditions: list[Object] = status.setdefault("conditions", [])
    new = {"type": type_, "status": state, "reason": reason, "message": message}
    for index, old in enumerate(conditions):
        if old["type"] == type_:
            since = old["lastTransitionTime"] if old["status"] == state else timestamp()
            conditions[index] = {**new, "lastTransitionTime": since}
            return not new.items() <= old.items()
    conditions.append({**new, "lastTransitionTime": timestamp()})
    return True
