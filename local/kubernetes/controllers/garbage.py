"""The garbage collector: delete or orphan dependents of deleted owners, by propagation policy."""

import contextlib
from collections.abc import Iterator, Sequence

from local.kubernetes.apiserver.kinds import Object, Refused
from local.kubernetes.apiserver.store import Store, place

OWNED = (
    "Pod",
    "Job",
    "PyTorchJob",
    "TrainJob",
    "TrainingRuntime",
    "JobSet",
    "Workload",
    "Trial",
    "Suggestion",
    "Experiment",
    "ConfigMap",
    "Secret",
    "StatefulSet",
    "ReplicaSet",
    "Service",
    "Ingress",
    "ResourceClaim",
)
BLOCKS = "foregroundDeletion"
ORPHANS = "orphan"


def collect(store: Store, type_: str, obj: Object) -> None:
    """React to one change of any object."""
    finalizers = obj["metadata"].get("finalizers", [])
    if type_ == "DELETED":
        for dependent in dependents(store, obj):
            _delete_unowned(store, dependent)
        for owner in owners(store, obj):
            _release(store, owner)
    elif "deletionTimestamp" not in obj["metadata"]:
        _delete_unowned(store, obj)
    elif ORPHANS in finalizers:
        for dependent in dependents(store, obj):
            _disown(store, dependent, obj)
        without_finalizer(store, obj, ORPHANS)
    elif BLOCKS in finalizers:
        for dependent in dependents(store, obj):
            below = "Foreground" if dependents(store, dependent) else "Background"
            store.delete(*place(dependent), propagation=below)
        _release(store, obj)


def without_finalizer(store: Store, obj: Object, finalizer: str) -> None:
    """Remove one finalizer; removing the last one completes a deletion."""
    left = [name for name in obj["metadata"].get("finalizers", []) if name != finalizer]
    store.patch(*place(obj), {"metadata": {"finalizers": left or None}})


def _references(obj: Object) -> list[Object]:
    references: list[Object] = obj["metadata"].get("ownerReferences", [])
    return references


def dependents(store: Store, owner: Object, kinds: Sequence[str] = OWNED) -> list[Object]:
    """Return the store's own objects: don't change them."""
    found, namespace = store.owned_by(owner["metadata"]["uid"]), owner["metadata"].get("namespace")
    inside = [obj for obj in found if namespace in (None, obj["metadata"].get("namespace"))]
    return [obj for kind in kinds for obj in inside if obj["kind"] == kind]


def owners(store: Store, obj: Object) -> Iterator[Object]:
    """Yield the store's own objects: don't change them."""
    for reference in _references(obj):
        owner = store.find(reference["kind"], obj["metadata"].get("namespace", ""), reference["name"])
        if owner and owner["metadata"]["uid"] == reference["uid"]:
            yield owner


def _delete_unowned(store: Store, obj: Object) -> None:
    references = _references(obj)
    if references and not any(store.exists(reference["uid"]) for reference in references):
        store.delete(*place(obj))


def _disown(store: Store, dependent: Object, owner: Object) -> None:
    left = [ref for ref in _references(dependent) if ref["uid"] != owner["metadata"]["uid"]]
    store.patch(*place(dependent), {"metadata": {"ownerReferences": left or None}})


def _release(store: Store, owner: Object) -> None:
    """Complete a Foreground deletion once there are no dependents.

    A webhook can refuse the update; the real collector then tries again for ever, here at the next change.
    """
    if BLOCKS in owner["metadata"].get("finalizers", []) and not dependents(store, owner):
        with contextlib.suppress(Refused):
            without_finalizer(store, owner, BLOCKS)
