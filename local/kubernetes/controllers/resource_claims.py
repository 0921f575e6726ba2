"""The ResourceClaim controller: make the claims of pods from templates, and release those of ended pods.

As in kubernetes' pkg/controller/resourceclaim; here each change of a template is an attempt.
"""

from local.kubernetes.apiserver.kinds import Object, clone, suffix
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers.loop import ControllerLoop

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"  # annotation
ENDED = ("Succeeded", "Failed")


class ResourceClaims(ControllerLoop):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def _run(self) -> None:
        async for type_, obj in self._store.subscribe("Pod", "ResourceClaimTemplate"):
            if type_ != "DELETED" and obj["kind"] == "ResourceClaimTemplate":
                for pod in list(self._store.peek("Pod", obj["metadata"]["namespace"])):
                    self._sync(pod)
            elif type_ != "DELETED" and (current := self._store.find(*place(obj))):
                self._sync(current)

    def _sync(self, pod: Object) -> None:
        if pod["status"].get("phase") in ENDED:
            for each in pod["status"].get("resourceClaimStatuses", ()):
                if self._store.find("ResourceClaim", pod["metadata"]["namespace"], each["resourceClaimName"]):
                    where = pod["metadata"]["namespace"], each["resourceClaimName"]
                    self._store.delete("ResourceClaim", *where)
        elif "deletionTimestamp" not in pod["metadata"]:
            known = {each["name"] for each in pod["status"].get("resourceClaimStatuses", ())}
            for each in pod["spec"].get("resourceClaims", ()):
                if "resourceClaimTemplateName" in each and each["name"] not in known:
                    self._create(pod, each)

    def _create(self, pod: Object, reference: Object) -> None:
        meta, name = pod["metadata"], reference["resourceClaimTemplateName"]
        template = self._store.find("ResourceClaimTemplate", meta["namespace"], name)
        if template is None:
            text = (
                f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
            )
            text = f"PodResourceClaim {reference['name']}: {text}"
            self._store.record_event(pod, "Warning", "FailedResourceClaimCreation", text, "resource_claim")
            return
        made = f"{meta['name']}-{reference['name']}-{suffix()}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        own = clone(template["spec"].get("metadata", {}))
        head = {"name": made, "namespace": meta["namespace"], "labels": own.get("labels", {})}
        head |= {"annotations": own.get("annotations", {}) | {POD_CLAIM: reference["name"]}}
        head |= {"ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}]}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": head}
        self._store.create(claim | {"spec": clone(template["spec"]["spec"])})
        current = self._store.get(*place(pod)) or pod
        made_so_far = current["status"].get("resourceClaimStatuses", [])
        statuses = [*made_so_far, {"name": reference["name"], "resourceClaimName": made}]
        self._store.set_status(current, {**current["status"], "resourceClaimStatuses": statuses})
