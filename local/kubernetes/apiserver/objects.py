"""Compute an object's next state without the store: merge patches, deletion marks, events, and references."""

import time
from datetime import UTC, datetime, timedelta

from local.kubernetes.apiserver.kinds import KINDS, Kind, Object, suffix, timestamp

Key = tuple[str, str, str]
FINALIZER_OF = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
SERVERS_OWN = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


def merge_patch(old: Object, patch: Object) -> Object:
    """Apply a merge patch (RFC 7386): null removes a key, objects merge, anything else replaces."""
    new = {key: value for key, value in old.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, dict):
            below = old.get(key)
            new[key] = merge_patch(below if isinstance(below, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new


def key_of(kind: str, namespace: str, name: str) -> Key:
    return (kind, namespace if KINDS[kind].namespaced else "", name)


def place(obj: Object) -> Key:
    """Return kind, namespace, and name, as the methods of Store take them."""
    return key_of(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def owner(obj: Object) -> Object:
    """Return an owner reference to this object."""
    named = {"kind": obj["kind"], "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}
    return {"apiVersion": obj["apiVersion"], **named, "controller": True, "blockOwnerDeletion": True}


def owners(obj: Object) -> list[str]:
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences") or []]


def only(obj: Object, *keys: str) -> Object:
    return {key: obj[key] for key in keys if key in obj}


def without(obj: Object, *keys: str) -> Object:
    return {key: value for key, value in obj.items() if key not in keys}


def body(obj: Object) -> Object:
    return without(obj, "metadata", "status")


def fresh(kind: Kind, new: Object) -> Object:
    """Return metadata without server-set fields, and with a name for generateName."""
    meta = without(new["metadata"], *SERVERS_OWN, "managedFields", "selfLink")
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"] + suffix()
    return {**without(new, *(["status"] if kind.has_status else [])), "metadata": meta}


def has_time(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def _grace_of(obj: Object, requested: int | None) -> int:
    """Only bound pods that haven't ended get a grace period [07-pod-terminating, 07-pod-delete-unbound]."""
    if obj["kind"] != "Pod" or not obj["spec"].get("nodeName"):
        return 0
    if obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    period: int = obj["spec"].get("terminationGracePeriodSeconds", 30)
    return period if requested is None else requested


def mark_deleted(kind: Kind, old: Object, propagation: str, grace: int | None) -> Object:
    meta = dict(old["metadata"])
    seconds = _grace_of(old, grace)
    finalizers = meta.get("finalizers", [])
    if "deletionTimestamp" in meta and seconds >= meta["deletionGracePeriodSeconds"]:
        return old
    if "deletionTimestamp" not in meta:
        if propagation in FINALIZER_OF and FINALIZER_OF[propagation] not in finalizers:
            meta["finalizers"] = [*finalizers, FINALIZER_OF[propagation]]
        if kind.has_generation:
            meta["generation"] += 1
    meta["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
    meta["deletionGracePeriodSeconds"] = seconds
    return {**old, "metadata": meta}


def new_event(about: Object, namespace: str, type_: str, reason: str, message: str, component: str) -> Object:
    meta = about["metadata"]
    involved = only(about, "kind", "apiVersion") | only(meta, "namespace", "name", "uid", "resourceVersion")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # Sorting by name keeps the order within a second, as in client-go's tools/record.
        "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": timestamp(),
        "lastTimestamp": timestamp(),
        "count": 1,
        "type": type_,
    }
