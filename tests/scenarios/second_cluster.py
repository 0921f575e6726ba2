"""A second whole cluster in processes of its own, which can lose power and come back."""

import json
import os
import signal
import socket
import sys
from http.client import HTTPConnection
from pathlib import Path

from local.cluster import NAMESPACE
from local.kubernetes.apiserver.api import TOKEN
from local.processes import Processes

NAME = "west"


class SecondCluster:
    """`python -m local cluster`. Its port stays reserved while it is down, so that it returns to its URL."""

    def __init__(self, folder: Path, registry: str, processes: Processes) -> None:
        self.folder, self._registry, self._processes = folder, registry, processes
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._port.getsockname()[1]}"
        self._starts = 0

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "bot-kubeconfig"

    async def start(self) -> None:
        """Start it, or restore it with its objects."""
        self._starts += 1
        name, port = f"{NAME}-{self._starts}", self.url.rpartition(":")[2]
        command = [sys.executable, "-m", "local", "cluster", str(self.folder), "--port", port]
        await self._processes.start(name, *command, "--registry", self._registry)
        await self._processes.says(name, f"({self.url})")

    async def lose_power(self) -> None:
        """Kill the API server, the controllers, Katib, the kubelet, and all containers."""
        process = self._processes._running.pop(f"{NAME}-{self._starts}")
        containers = descendants(process.pid)
        assert containers, "no container runs"
        for pid in (process.pid, *containers):
            os.kill(pid, signal.SIGKILL)
        await process.wait()

    def running(self) -> list[str]:
        """Return the pods of trials that run, as its API lists them for its admin."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        pods = json.load(connection.getresponse())["items"]
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

    def close(self) -> None:
        self._port.close()


def descendants(pid: int) -> list[int]:
    """Return the processes below this one, such as its containers."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        children = [int(each) for each in (thread / "children").read_text().split()]
        found += [below for child in children for below in (child, *descendants(child))]
    return found
