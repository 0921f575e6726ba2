"""A cluster with Kubeflow Trainer, and what it runs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from local import trainer
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers
from tests.local.training_jobs import JobWorld, Object, started

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


class World(JobWorld):
    kind = "TrainJob"

    def of(self, kind: str = "") -> Object:
        """The TrainJob `train`, or the JobSet or Job of it; empty if it isn't there."""
        return (self.store.get(kind, "default", "train-node-0") or {}) if kind == "Job" else super().of(kind)

    def called(self, pod: Object) -> str:
        return str(pod["spec"]["hostname"])

    def stops(self) -> None:
        """End the pods that are being deleted, as the kubelet does."""
        for pod in self.store.list("Pod"):
            if "deletionTimestamp" in pod["metadata"]:
                place = "Pod", "default", pod["metadata"]["name"]
                self.store.patch(*place, {"status": {"phase": "Failed"}}, subresource="status")
                self.store.delete(*place, grace=0)

    def set_suspended(self, value: bool) -> None:
        self.store.patch("TrainJob", "default", "train", {"spec": {"suspend": value}})


@pytest.fixture
async def world(wait_until: Callable[..., Any]) -> AsyncIterator[World]:
    store = Store()
    trainer.install(store)
    async with started(trainer.Trainer(store), Controllers(store)):
        yield World(store, wait_until)
