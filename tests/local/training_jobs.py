"""A cluster with an operator of training jobs; a test plays the kubelet by writing pod statuses."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from local.kubernetes.apiserver.store import Store

Object = dict[str, Any]


@asynccontextmanager
async def started(*parts: Any) -> AsyncIterator[None]:
    """Run these controllers."""
    for part in parts:
        part.start()
    try:
        yield
    finally:
        for part in parts:
            await part.close()


class JobWorld:
    """About the job `train` of a kind; pods are called by the names by which they find each other."""

    kind: ClassVar[str]

    def __init__(self, store: Store, wait_until: Callable[..., Any]) -> None:
        self.store, self.wait_until = store, wait_until

    def of(self, kind: str = "") -> Object:
        """The job, or the object of this kind that it has; empty if it isn't there."""
        return self.store.get(kind or self.kind, "default", "train") or {}

    def called(self, pod: Object) -> str:
        return str(pod["metadata"]["name"])

    def pods(self) -> dict[str, str]:
        """The phases of the pods that aren't being deleted."""
        return {name: pod["status"]["phase"] for name, pod in self._alive().items()}

    def _alive(self) -> dict[str, Object]:
        found = [pod for pod in self.store.list("Pod") if "deletionTimestamp" not in pod["metadata"]]
        return {self.called(pod): pod for pod in found}

    def names(self, kind: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(kind, "default")]

    async def has(self, *pods: str) -> None:
        await self.wait_until(lambda: sorted(self.pods()) == sorted(pods), f"the pods are {pods}")

    async def runs(self, *pods: str) -> None:
        """Report these pods as running on a node."""
        await self.wait_until(lambda: set(pods) <= self.pods().keys(), "the pods are there")
        for pod in pods:
            name = self._alive()[pod]["metadata"]["name"]
            self.store.patch("Pod", "default", name, {"spec": {"nodeName": "n1"}})
            self.becomes(pod, "Running")

    def becomes(self, pod: str, phase: str) -> None:
        name = self._alive()[pod]["metadata"]["name"]
        self.store.patch("Pod", "default", name, {"status": {"phase": phase}}, subresource="status")

    def conditions(self, kind: str = "") -> list[tuple[str, str, str]]:
        found = self.of(kind).get("status", {}).get("conditions", [])
        return [(each["type"], each["status"], each["reason"]) for each in found]

    def message(self, type_: str) -> str:
        found = self.of()["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == type_)

    async def until(self, type_: str) -> None:
        def reached() -> bool:
            return (type_, "True") in [condition[:2] for condition in self.conditions()]

        await self.wait_until(reached, f"the {self.kind} is {type_}")

    def events(self) -> list[tuple[str, str]]:
        found = self.store.list("Event")
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in found]
