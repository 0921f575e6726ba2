"""The conditions and the finalizer that all of Katib's objects have.

A condition that changes moves to the end of the list, and some suggestion services read only the last one.
"""

from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.store import Store, place


def conditions_of(obj: Object, *types: str) -> list[Object]:
    """Return the types of these conditions that are True."""
    found: list[Object] = obj.get("status", {}).get("conditions", [])
    return [one for one in found if one.get("status") == "True" and one.get("type") in types]


def is_true(obj: Object, *types: str) -> bool:
    return bool(conditions_of(obj, *types))


def mark(obj: Object, type_: str, reason: str, message: str, value: str = "True") -> None:
    conditions = obj["status"].get("conditions", [])
    old: Object = next((one for one in conditions if one.get("type") == type_), {})
    if (old.get("status"), old.get("reason")) != (value, reason):
        since = old.get("lastTransitionTime", timestamp()) if old.get("status") == value else timestamp()
        new = {"type": type_, "status": value, "reason": reason, "message": message}
        unmark(obj, type_)
        obj["status"]["conditions"] += [new | {"lastUpdateTime": timestamp(), "lastTransitionTime": since}]


def unmark(obj: Object, *types: str) -> None:
    conditions = obj["status"].get("conditions", [])
    obj["status"]["conditions"] = [one for one in conditions if one.get("type") not in types]


def begin(obj: Object) -> None:
    obj["status"].setdefault("startTime", timestamp())
    mark(obj, "Created", f"{obj['kind']}Created", f"{obj['kind']} is created")


def finish(obj: Object, type_: str, reason: str, message: str) -> None:
    """Set a final condition; Running becomes False and keeps its reason."""
    for running in conditions_of(obj, "Running"):
        mark(obj, "Running", running.get("reason", ""), running.get("message", ""), "False")
    mark(obj, type_, reason, message)


def finalizing(store: Store, obj: Object, finalizer: str) -> bool:
    """Add the finalizer to a new object, remove it from a deleted one, and return whether it did either."""
    meta = obj["metadata"]
    deleted, held = "deletionTimestamp" in meta, meta.get("finalizers", [])
    if deleted == (finalizer in held):
        left = [one for one in held if one != finalizer] if deleted else [*held, finalizer]
        store.patch(*place(obj), {"metadata": {"finalizers": left or None}})
        return True
    return deleted
