"""A cluster with Kubeflow Trainer; a test plays the kubelet by writing pod statuses."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from local import trainer
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers

Object = dict[str, Any]
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def training_runtime(name: str = "torch", namespace: str = "default", **job: Any) -> Object:
    """A runtime whose pods never restart; `job` changes the spec of its Job."""
    main = {"name": "node", "image": "x", "env": [{"name": "OWN", "value": "1"}]}
    pod = {"metadata": {"labels": {"app": "bot"}}, "spec": {"restartPolicy": "Never", "containers": [main]}}
    spec = {"backoffLimit": 0, "template": pod, **job}
    replicated = {"name": "node", "template": {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": spec}}
    template = {"metadata": {"labels": {"team": "vision"}}, "spec": {"replicatedJobs": [replicated]}}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
    made = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template}
    return {**head, "metadata": {"name": name, "namespace": namespace}, "spec": made}


def train_job(name: str = "train", nodes: int = 3, **spec: Any) -> Object:
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}
    trainer_ = {"numNodes": nodes, "command": ["train"], "args": ["--lr=1"]}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    meta = {"name": name, "namespace": "default"}
    return {**head, "metadata": meta, "spec": {"runtimeRef": reference, "trainer": trainer_, **spec}}


class World:
    def __init__(self, store: Store, wait_until: Callable[..., Any]) -> None:
        self.store, self.wait_until = store, wait_until

    def of(self, kind: str) -> Object:
        """The TrainJob `train`, or the JobSet or Job of it; empty if it isn't there."""
        name = "train-node-0" if kind == "Job" else "train"
        return self.store.get(kind, "default", name) or {}

    def pods(self) -> dict[str, str]:
        """The phases of the pods that aren't being deleted, by hostname."""
        found = [pod for pod in self.store.list("Pod") if "deletionTimestamp" not in pod["metadata"]]
        return {pod["spec"]["hostname"]: pod["status"]["phase"] for pod in found}

    def names(self, kind: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(kind, "default")]

    async def has(self, *hostnames: str) -> None:
        await self.wait_until(lambda: sorted(self.pods()) == sorted(hostnames), f"the pods are {hostnames}")

    async def runs(self, *hostnames: str) -> None:
        """Report these pods as running on a node."""
        await self.wait_until(lambda: set(hostnames) <= self.pods().keys(), "the pods are there")
        for hostname in hostnames:
            self.store.patch("Pod", "default", self.name(hostname), {"spec": {"nodeName": "n1"}})
            self.becomes(hostname, "Running")

    def becomes(self, hostname: str, phase: str) -> None:
        patch = {"status": {"phase": phase}}
        self.store.patch("Pod", "default", self.name(hostname), patch, subresource="status")

    def name(self, hostname: str) -> str:
        pods = [pod for pod in self.store.list("Pod") if "deletionTimestamp" not in pod["metadata"]]
        return next(str(pod["metadata"]["name"]) for pod in pods if pod["spec"]["hostname"] == hostname)

    def stops(self) -> None:
        """End the pods that are being deleted, as the kubelet does."""
        for pod in self.store.list("Pod"):
            if "deletionTimestamp" in pod["metadata"]:
                place = "Pod", "default", pod["metadata"]["name"]
                self.store.patch(*place, {"status": {"phase": "Failed"}}, subresource="status")
                self.store.delete(*place, grace=0)

    def set_suspended(self, value: bool) -> None:
        self.store.patch("TrainJob", "default", "train", {"spec": {"suspend": value}})

    def conditions(self, kind: str = "TrainJob") -> list[tuple[str, str, str]]:
        found = self.of(kind).get("status", {}).get("conditions", [])
        return [(each["type"], each["status"], each["reason"]) for each in found]

    def message(self, type_: str, kind: str = "TrainJob") -> str:
        found = self.of(kind)["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == type_)

    async def until(self, type_: str, state: str = "True") -> None:
        def reached() -> bool:
            return (type_, state) in [condition[:2] for condition in self.conditions()]

        await self.wait_until(reached, f"the TrainJob's {type_} is {state}")

    def events(self) -> list[tuple[str, str]]:
        found = self.store.list("Event")
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in found]


@pytest.fixture
async def world(wait_until: Callable[..., Any]) -> AsyncIterator[World]:
    store = Store()
    trainer.install(store)
    parts = trainer.Trainer(store), Controllers(store)
    for part in parts:
        part.start()
    yield World(store, wait_until)
    for part in parts:
        await part.close()
