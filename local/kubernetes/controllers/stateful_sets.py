"""The StatefulSet controller and the volume binder, for StatefulSets of up to one pod."""

import asyncio

from local.kubernetes.apiserver.kinds import Object, Refused
from local.kubernetes.apiserver.store import Store, owner, place

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LONGEST_BACKOFF = 600.0  # seconds
ENDED = ("Succeeded", "Failed")


class StatefulSets:
    """Call `changed` after each change. `retry`: seconds until a refused pod is tried again, then doubled."""

    def __init__(self, store: Store, retry: float = 1.0) -> None:
        self._store, self._retry = store, retry
        self._refusals: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def changed(self, obj: Object) -> None:
        namespace = obj["metadata"].get("namespace", "")
        if obj["kind"] == "PersistentVolumeClaim":
            bind(self._store, obj)
        names = [r["name"] for r in obj["metadata"].get("ownerReferences", []) if r["kind"] == "StatefulSet"]
        for name in [obj["metadata"]["name"]] if obj["kind"] == "StatefulSet" else names:
            self.sync(namespace, name)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def sync(self, namespace: str, name: str) -> None:
        found = self._store.get("StatefulSet", namespace, name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        pod = self._store.get("Pod", namespace, f"{name}-0")
        if pod and pod["metadata"].get("ownerReferences", [{}])[0].get("uid") != found["metadata"]["uid"]:
            pod = None  # of a deleted StatefulSet of the same name
        if pod is None and found["spec"]["replicas"]:
            pod = self._create(found)
        elif pod and "deletionTimestamp" not in pod["metadata"]:
            self._remove_if_over(found, pod)
        self._write(found, pod)

    def _create(self, found: Object) -> Object | None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        what = f"create Pod {name}-0 in StatefulSet {name}"
        try:
            pod = self._store.create(_pod(found))
        except Refused as refused:
            if self._store.get("Pod", found["metadata"]["namespace"], f"{name}-0") is None:
                self._event(found, "FailedCreate", f"{what} failed error: {refused}", "Warning")
            self._again(found, min(self._retry * 2.0 ** self._refusals.get(uid, 0), LONGEST_BACKOFF))
            self._refusals[uid] = self._refusals.get(uid, 0) + 1
            return None
        self._refusals.pop(uid, None)
        self._event(found, "SuccessfulCreate", f"{what} successful")
        return pod

    def _remove_if_over(self, found: Object, pod: Object) -> None:
        """Delete the pod of a StatefulSet with 0 replicas, and one that has ended, to replace it."""
        if not found["spec"]["replicas"] or pod["status"].get("phase") in ENDED:
            self._store.delete(*place(pod))
            name = found["metadata"]["name"]
            self._event(found, "SuccessfulDelete", f"delete Pod {name}-0 in StatefulSet {name} successful")

    def _write(self, found: Object, pod: Object | None) -> None:
        ready = _is_ready(pod) if pod else False
        status = {"replicas": int(pod is not None), "availableReplicas": int(ready)}
        status |= {"readyReplicas": 1} if ready else {}
        status |= {"observedGeneration": found["metadata"]["generation"]}
        if self._store.get(*place(found)):
            self._store.set_status(found, status)

    def _event(self, about: Object, reason: str, message: str, type_: str = "Normal") -> None:
        self._store.record_event(about, type_, reason, message, "statefulset-controller")

    def _again(self, found: Object, seconds: float) -> None:
        uid, (_, namespace, name) = found["metadata"]["uid"], place(found)
        if uid in self._timers:
            self._timers[uid].cancel()
        self._timers[uid] = asyncio.get_running_loop().call_later(seconds, self.sync, namespace, name)


def bind(store: Store, claim: Object) -> None:
    """Bind a claim to a new volume, unless its StorageClass doesn't exist."""
    if claim.get("status", {}).get("phase") == "Bound":
        return
    classes = {each["metadata"]["name"]: each["metadata"] for each in store.list("StorageClass")}
    defaults = [n for n, meta in classes.items() if meta.get("annotations", {}).get(DEFAULT_CLASS) == "true"]
    wanted = claim["spec"].get("storageClassName") or next(iter(defaults), "")
    if not wanted:
        text = "no persistent volumes available for this claim and no storage class is set"
        store.record_event(claim, "Normal", "FailedBinding", text, "persistentvolume-controller")
    elif wanted not in classes:
        text = f'storageclass.storage.k8s.io "{wanted}" not found'
        store.record_event(claim, "Warning", "ProvisioningFailed", text, "persistentvolume-controller")
    else:
        store.set_status(claim, {"phase": "Bound", "capacity": claim["spec"]["resources"]["requests"]})


def _pod(found: Object) -> Object:
    name, template = found["metadata"]["name"], found["spec"]["template"]
    own = {"statefulset.kubernetes.io/pod-name": f"{name}-0", "apps.kubernetes.io/pod-index": "0"}
    meta = {
        **template["metadata"],
        "name": f"{name}-0",
        "namespace": found["metadata"]["namespace"],
        "labels": template["metadata"]["labels"] | own,
        "ownerReferences": [owner(found)],
    }
    hostname = {"hostname": f"{name}-0", "subdomain": found["spec"].get("serviceName", "")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"] | hostname}


def _is_ready(pod: Object) -> bool:
    said = pod["status"].get("conditions", [])
    return any((c["type"], c["status"]) == ("Ready", "True") for c in said)
