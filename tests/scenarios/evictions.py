"""What an eviction does to a pod, as `kubectl drain` asks for one."""

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store, place


def evict(store: Store, pod: Object) -> None:
    """Add the condition, and delete the pod; its kubelet then ends it by SIGTERM."""
    why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    conditions = [
        *pod["status"].get("conditions", []),
        {"type": "DisruptionTarget", "status": "True", **why},
    ]
    store.patch(*place(pod), {"status": {"conditions": conditions}}, subresource="status")
    store.delete(*place(pod))
