"""A cluster with the Training Operator; a test plays the kubelet by writing pod statuses."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from local import training_operator
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers

Object = dict[str, Any]


def pytorch_job(name: str = "train", workers: int = 2, **policy: Any) -> Object:
    main = {"name": "pytorch", "image": "x", "env": [{"name": "OWN", "value": "1"}]}
    template = {"metadata": {"labels": {"app": "bot"}}, "spec": {"containers": [main]}}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    types = {"Master": 1, "Worker": workers}
    replicas = {
        type_: {"replicas": count, "restartPolicy": "Never", "template": template}
        for type_, count in types.items()
        if count
    }
    spec = {"nprocPerNode": "8", "runPolicy": policy, "pytorchReplicaSpecs": replicas}
    return {**head, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class World:
    def __init__(self, store: Store, wait_until: Callable[..., Any]) -> None:
        self.store, self.wait_until = store, wait_until

    def job(self) -> Object:
        found = self.store.get("PyTorchJob", "default", "train")
        return found or {}

    def pods(self) -> dict[str, str]:
        """The phases of the pods that aren't being deleted, by name."""
        found = [pod for pod in self.store.list("Pod") if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}

    def names(self, kind: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(kind, "default")]

    async def has(self, *names: str) -> None:
        await self.wait_until(lambda: sorted(self.pods()) == sorted(names), f"the pods are {names}")

    async def runs(self, *names: str) -> None:
        """Report these pods as running on a node."""
        await self.wait_until(lambda: set(names) <= self.pods().keys(), "the pods are there")
        for name in names:
            self.store.patch("Pod", "default", name, {"spec": {"nodeName": "n1"}})
            self.becomes(name, "Running")

    def becomes(self, name: str, phase: str) -> None:
        self.store.patch("Pod", "default", name, {"status": {"phase": phase}}, subresource="status")

    def set_suspended(self, value: bool) -> None:
        self.store.patch("PyTorchJob", "default", "train", {"spec": {"runPolicy": {"suspend": value}}})

    def conditions(self) -> list[tuple[str, str, str]]:
        found = self.job().get("status", {}).get("conditions", [])
        return [(each["type"], each["status"], each["reason"]) for each in found]

    def message(self, type_: str) -> str:
        found = self.job()["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == type_)

    async def until(self, type_: str) -> None:
        reached = lambda: type_ in [name for name, state, _ in self.conditions() if state == "True"]  # noqa: E731
        await self.wait_until(reached, f"the job is {type_}")

    def events(self) -> list[tuple[str, str]]:
        found = self.store.list("Event")
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in found]


@pytest.fixture
async def world(wait_until: Callable[..., Any]) -> AsyncIterator[World]:
    store = Store()
    training_operator.install(store)
    parts = training_operator.TrainingOperator(store), Controllers(store)
    for part in parts:
        part.start()
    yield World(store, wait_until)
    for part in parts:
        await part.close()
