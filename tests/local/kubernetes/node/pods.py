"""A store with a kubelet, and the containers of its pods."""

import asyncio
from pathlib import Path

from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.kubelet import Kubelet

PYTHON = "python:3.11-slim"


class KubernetesClient:
    """A store with a kubelet, and questions about its pods."""

    def __init__(self, folder: Path, registry: str = "127.0.0.1:1", nodes=None, builtins=None) -> None:
        self.store = Store()
        nodes = {"gpu-1": 2, "gpu-2": 2} if nodes is None else nodes
        self.kubelet = Kubelet(self.store, nodes, registry, builtins or {}, folder, retry=0.05)
        self.kubelet.start()

    def run(self, name: str, *containers: dict, **spec) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"team": "vision"}},
            "spec": {"restartPolicy": "Never", "containers": list(containers)} | spec,
        }
        self.store.create(pod)

    def pod(self, name: str) -> dict:
        return self.store.get("Pod", "default", name)

    def state(self, name: str, container: int = 0) -> dict:
        statuses = self.pod(name)["status"].get("containerStatuses")
        return statuses[container]["state"] if statuses else {}

    def log(self, name: str, container: str = "main", tail: int | None = None) -> str:
        return self.kubelet.logs("default", name, container, tail)

    def events(self, name: str) -> list[tuple[str, str]]:
        events = [event for event in self.store.list("Event") if event["involvedObject"]["name"] == name]
        return [(event["reason"], event["message"]) for event in events]

    async def until(self, question, what: str):
        """Wait for a fact: call `question()` after every change in the store."""
        async with asyncio.timeout(200):
            while not (answer := question()):  # noqa: ASYNC110 - logs and processes send no notice
                await asyncio.sleep(0.01)
        assert answer, what
        return answer

    async def phase(self, name: str, *wanted: str) -> str:
        def request() -> str | None:
            phase = self.pod(name)["status"]["phase"]
            return phase if phase in wanted else None

        return await self.until(request, f"{name} becomes {wanted}")

    async def waiting_for(self, name: str, reason: str) -> dict:
        def request() -> dict | None:
            waiting = self.state(name).get("waiting", {})
            return waiting if waiting.get("reason") == reason else None

        return await self.until(request, f"{name} waits with {reason}")


def sh(script: str, name: str = "main", image: str = PYTHON, **more) -> dict:
    return {"name": name, "image": image, "command": ["sh", "-c"], "args": [script], **more}


def gpu(count: int) -> dict:
    return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}
