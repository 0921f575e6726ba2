"""Keep the unfinished pods of all namespaces in memory by a watch, as the scheduler counts them."""

import logging
from collections.abc import Callable, Collection

from k8s.api.cache import Cache
from k8s.nodes.scheduling import ScheduledPod, read_scheduled
from k8s.objects import Manifest

log = logging.getLogger(__name__)


class WatchedPods(Cache):
    """`on_change` is called for pods that wait for GPUs, and for pods of Deployments with GPUs."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__("Pod", "", lambda _: None)
        self._changed = on_change
        self._pods: dict[str, ScheduledPod] = {}

    @property
    def pods(self) -> Collection[ScheduledPod]:
        return self._pods.values()

    def key(self, obj: Manifest) -> str:
        return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"

    def put(self, obj: Manifest) -> None:
        key, before = self.key(obj), self._pods.get(self.key(obj))
        found = _read(obj)
        if found is None:
            return self.remove(key)
        self._pods[key] = found
        if found != before and (_matters(found) or (before and _matters(before))):
            self._changed()
        return None

    def remove(self, key: str) -> None:
        if (before := self._pods.pop(key, None)) and _matters(before):
            self._changed()

    def retain(self, keys: set[str]) -> None:
        for gone in self._pods.keys() - keys:
            self.remove(gone)


def _read(obj: Manifest) -> ScheduledPod | None:
    try:
        return read_scheduled(obj)
    except ValueError as error:
        log.warning("can't read the requests of pod %s: %s", obj["metadata"]["name"], error)
        return None


def _matters(pod: ScheduledPod) -> bool:
    return bool(pod.gpus) and (not pod.node or bool(pod.deployment))
