"""A cluster with the Training Operator, and what it runs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from local import training_operator
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers
from tests.local.training_jobs import JobWorld, Object, started


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


class World(JobWorld):
    kind = "PyTorchJob"

    def set_suspended(self, value: bool) -> None:
        self.store.patch("PyTorchJob", "default", "train", {"spec": {"runPolicy": {"suspend": value}}})


@pytest.fixture
async def world(wait_until: Callable[..., Any]) -> AsyncIterator[World]:
    store = Store()
    training_operator.install(store)
    async with started(training_operator.TrainingOperator(store), Controllers(store)):
        yield World(store, wait_until)
