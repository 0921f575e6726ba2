"""The controllers of Deployments and ReplicaSets, for Deployments whose template doesn't change."""

import hashlib
import json

from local.kubernetes.apiserver.kinds import Object, Refused, clone
from local.kubernetes.apiserver.store import Store, owner, place
from local.kubernetes.controllers.garbage import dependents, owners
from local.kubernetes.controllers.loop import ControllerLoop

HASH = "pod-template-hash"
COST = "controller.kubernetes.io/pod-deletion-cost"
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
ENDED = ("Succeeded", "Failed")
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Deployments(ControllerLoop):
    """Scale every Deployment of the store, or of one namespace; start it only where all of them can run."""

    def __init__(self, store: Store, namespace: str = "") -> None:
        self._store, self._namespace = store, namespace

    async def _run(self) -> None:
        async for type_, changed in self._store.subscribe("Deployment", "ReplicaSet", "Pod"):
            if self._namespace not in ("", changed["metadata"]["namespace"]):
                continue
            obj = changed if type_ == "DELETED" else self._store.get(*place(changed))
            if obj and obj["kind"] == "Deployment" and type_ != "DELETED":
                self._sync_deployment(obj)
            elif obj and obj["kind"] == "ReplicaSet" and type_ != "DELETED":
                self._sync_replica_set(obj)
            for above in owners(self._store, obj) if obj else ():
                if above["kind"] == "ReplicaSet":
                    self._sync_replica_set(above)
                elif above["kind"] == "Deployment":
                    self._sync_deployment(above)

    def _sync_deployment(self, found: Object) -> None:
        name, namespace = _name(found), found["metadata"]["namespace"]
        below = self._store.get("ReplicaSet", namespace, name)
        if below is None:
            below = self._store.create(_replica_set(found, name))
        elif below["spec"]["replicas"] != found["spec"]["replicas"]:
            replicas = {"spec": {"replicas": found["spec"]["replicas"]}}
            below = self._store.patch("ReplicaSet", namespace, name, replicas)
        keys = ("replicas", "readyReplicas", "availableReplicas")
        status = {key: below["status"][key] for key in keys if key in below["status"]}
        self._store.set_status(found, status | {"observedGeneration": found["metadata"]["generation"]})

    def _sync_replica_set(self, found: Object) -> None:
        pods = [pod for pod in dependents(self._store, found, ["Pod"]) if _is_active(pod)]
        missing = found["spec"]["replicas"] - len(pods)
        for _ in range(missing):
            self._create(found)
        for pod in sorted(pods, key=_rank)[: max(0, -missing)]:
            self._store.delete(*place(pod))
            self._event(found, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        left = [pod for pod in dependents(self._store, found, ["Pod"]) if _is_active(pod)]
        ready = sum(map(_is_ready, left))
        status = {"replicas": len(left), "observedGeneration": found["metadata"]["generation"]}
        status |= {"readyReplicas": ready, "availableReplicas": ready} if ready else {}
        self._store.set_status(found, status)

    def _create(self, found: Object) -> None:
        template, meta = found["spec"]["template"], found["metadata"]
        place_ = {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": clone(template["spec"])}
        pod["metadata"] = {**template["metadata"], **place_, "ownerReferences": [owner(found)]}
        try:
            made = self._store.create(pod)
        except Refused as refused:
            return self._event(found, "Warning", "FailedCreate", f"Error creating: {refused}")
        return self._event(found, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    def _event(self, about: Object, type_: str, reason: str, message: str) -> None:
        self._store.record_event(about, type_, reason, message, "replicaset-controller")


def _name(deployment: Object) -> str:
    digest = hashlib.sha256(json.dumps(deployment["spec"]["template"], sort_keys=True).encode()).digest()
    return f"{deployment['metadata']['name']}-{''.join(ALPHABET[byte % 27] for byte in digest[:10])}"


def _replica_set(deployment: Object, name: str) -> Object:
    spec, label = deployment["spec"], {HASH: name.rpartition("-")[2]}
    template = clone(spec["template"])
    template["metadata"]["labels"] |= label
    meta = {
        "name": name,
        "namespace": deployment["metadata"]["namespace"],
        "labels": template["metadata"]["labels"],
        "ownerReferences": [owner(deployment)],
    }
    selector = {"matchLabels": spec["selector"]["matchLabels"] | label}
    below = {"replicas": spec["replicas"], "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": below}


def _is_active(pod: Object) -> bool:
    return pod["status"].get("phase") not in ENDED and "deletionTimestamp" not in pod["metadata"]


def _is_ready(pod: Object) -> bool:
    said = pod["status"].get("conditions", [])
    return any((c["type"], c["status"]) == ("Ready", "True") for c in said)


def _rank(pod: Object) -> tuple[bool, int, bool, int]:
    """Return the order of deletion, as ActivePodsWithRanks in kubernetes' pkg/controller, without ages."""
    cost = int(pod["metadata"].get("annotations", {}).get(COST, 0))
    return "nodeName" in pod["spec"], PHASES.get(pod["status"].get("phase", ""), 1), _is_ready(pod), cost
