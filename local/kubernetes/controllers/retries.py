"""Reconcile an object again later, as controllers built with controller-runtime do."""

import asyncio
from collections.abc import Callable

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import place

SHORTEST, LONGEST = 0.005, 1000.0  # seconds, as controller-runtime's


class Retries:
    """One timer for each object, which calls `sync` with namespace and name."""

    def __init__(self, sync: Callable[[str, str], None]) -> None:
        self._sync = sync
        self._refusals: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def refused(self, obj: Object) -> None:
        """Try again after a pause that doubles each time until `accepted`."""
        uid = obj["metadata"]["uid"]
        self._refusals[uid] = self._refusals.get(uid, -1) + 1
        self.later(obj, min(SHORTEST * 2.0 ** self._refusals[uid], LONGEST))

    def accepted(self, obj: Object) -> None:
        self._refusals.pop(obj["metadata"]["uid"], None)

    def later(self, obj: Object, seconds: float) -> None:
        uid, (_, namespace, name) = obj["metadata"]["uid"], place(obj)
        if uid in self._timers:
            self._timers[uid].cancel()
        self._timers[uid] = asyncio.get_running_loop().call_later(seconds, self._sync, namespace, name)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
