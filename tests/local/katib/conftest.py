"""A cluster with Katib and nothing else: tests play the Job controller and the collector by hand."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from local.katib import Katib
from local.katib.metrics import Reported
from local.kubernetes.apiserver.store import Store
from tests.settled import settled

Object = dict[str, Any]
RECORDINGS = Path(__file__).parents[2] / "recordings"
COMPLETE = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
FAILED = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


class World:
    def __init__(self) -> None:
        self.store = Store()
        self.katib = Katib(self.store)
        labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "kaniko", "labels": labels},
        }
        self.store.create(namespace)

    def recorded(self, name: str) -> Object:
        return json.loads((RECORDINGS / f"{name}.json").read_text())

    def recorded_experiment(self, name: str = "sweep", **spec: Any) -> Object:
        """The experiment of katib/01-create-intended, changed."""
        body = self.recorded("katib/01-create-intended")["request_body"]
        body["metadata"]["name"] = name
        body["spec"] |= spec
        return body

    async def experiment(self, name: str = "sweep", **spec: Any) -> None:
        self.store.create(self.recorded_experiment(name, **spec))
        await self.settle()

    async def settle(self) -> None:
        """Until every reaction to every change has been seen: nothing here waits for time."""
        await settled()

    def status(self, name: str = "sweep", kind: str = "Experiment") -> Object:
        return self.store.get(kind, "kaniko", name)["status"]

    def conditions(self, name: str = "sweep", kind: str = "Experiment") -> list[tuple[str, str, str]]:
        return [(c["type"], c["status"], c["reason"]) for c in self.status(name, kind).get("conditions", [])]

    def events(self, name: str) -> list[tuple[str, str, str]]:
        about = [one for one in self.store.list("Event") if one["involvedObject"]["name"] == name]
        return [(one["type"], one["reason"], one["message"]) for one in about]

    def trials(self, name: str = "sweep") -> list[str]:
        """Names of the trials in the order in which they were suggested."""
        return [one["name"] for one in self.status(name, "Suggestion")["suggestions"]]

    def jobs(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.store.list("Job")]

    async def job_ends(self, trial: str, end: tuple[str, str, str]) -> None:
        type_, reason, message = end
        conditions = [{"type": type_, "status": "True", "reason": reason, "message": message}]
        patch = {"status": {"conditions": conditions}}
        self.store.patch("Job", "kaniko", trial, patch, subresource="status")
        await self.settle()

    def losses(self, *values: str) -> list[Reported]:
        return [Reported(value, second) for second, value in enumerate(values)]

    async def succeed(self, trial: str, *losses: str) -> None:
        self.katib.metrics.report(trial, self.losses(*losses or ("0.9", "0.31")))
        await self.job_ends(trial, COMPLETE)

    async def fail(self, trial: str) -> None:
        await self.job_ends(trial, FAILED)

    async def patch(self, kind: str, name: str, patch: Object, subresource: str | None = None) -> None:
        self.store.patch(kind, "kaniko", name, patch, subresource=subresource)
        await self.settle()

    async def close_from_client(self, type_: str, reason: str, name: str = "sweep") -> None:
        """What drain and cancel do: our own condition at the end, Running False."""
        before = self.status(name)["conditions"]
        running = [one | {"status": "False"} if one["type"] == "Running" else one for one in before]
        end = {"type": type_, "status": "True", "reason": reason, "message": "by Ada"}
        status = {"conditions": [*running, end], "completionTime": "2026-11-21T13:44:16Z"}
        await self.patch("Experiment", name, {"status": status}, "status")

    async def kill(self, trial: str, *, first: bool = True) -> None:
        """Mark it Killed, at index 0 or as the last condition, then delete its Job."""
        before = self.status(trial, "Trial")["conditions"]
        running = [one | {"status": "False"} if one["type"] == "Running" else one for one in before]
        killed = {"type": "Killed", "status": "True", "reason": "SweepbotKilled", "message": "by Ada"}
        conditions = [killed, *running] if first else [*running, killed]
        await self.patch("Trial", trial, {"status": {"conditions": conditions}}, "status")
        if trial in self.jobs():
            self.store.delete("Job", "kaniko", trial)
        await self.settle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.katib.start()
    yield world
    await world.katib.close()
