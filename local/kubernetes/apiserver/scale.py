"""The subresource `scale` of Deployments."""

from local.kubernetes.apiserver.kinds import KINDS, Cause, Object, conflict, invalid, not_found
from local.kubernetes.apiserver.objects import merge_patch
from local.kubernetes.apiserver.store import Store

SCALED = ("Deployment",)


def read(store: Store, kind: str, namespace: str, name: str) -> Object:
    """Return the Scale. Raises Refused 404."""
    if not (found := store.get(kind, namespace, name)):
        raise not_found(KINDS[kind], name)
    meta, labels = found["metadata"], found["spec"]["selector"]["matchLabels"]
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    wanted, there = found["spec"]["replicas"], found["status"].get("replicas", 0)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in keys},
        "spec": {"replicas": wanted} if wanted else {},  # zero is left out
        "status": {"replicas": there, "selector": selector},
    }


def patch(store: Store, kind: str, namespace: str, name: str, change: Object) -> Object:
    """Apply a JSON merge patch to the Scale. Raises Refused 404, 409, or 422."""
    before = read(store, kind, namespace, name)
    after = merge_patch(before, change)
    if after["metadata"].get("resourceVersion") not in (None, before["metadata"]["resourceVersion"]):
        raise conflict(KINDS[kind], name)
    replicas = after.get("spec", {}).get("replicas", 0)
    if replicas < 0:
        cause = Cause.value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("Scale.autoscaling", {"name": name, "group": "autoscaling", "kind": "Scale"}, [cause])
    store.patch(kind, namespace, name, {"spec": {"replicas": replicas}})
    return read(store, kind, namespace, name)
