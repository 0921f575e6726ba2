"""Child processes of the local world: their output goes to files, and none outlives us."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import aiohttp

STOP = 10.0  # seconds between asking a process to end and ending it


class Processes:
    """Each runs in a process group of its own, so that its children end with it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, **(env or {})}, stdout=log, stderr=log, start_new_session=True
            )

    async def stop(self, name: str) -> None:
        process = self._running.pop(name)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def stop_all(self) -> None:
        for name in reversed(list(self._running)):
            await self.stop(name)

    async def first_to_end(self) -> str:
        """Waits until one of them ends by itself, and says which and how."""
        waits = {asyncio.ensure_future(p.wait()): name for name, p in self._running.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            task = done.pop()
            return f"{waits[task]} ended with exit code {task.result()}; see {self._logs / waits[task]}.log"
        finally:
            for task in waits:
                task.cancel()


async def answers(url: str, seconds: float = 60) -> None:
    """Until `url` answers with 200. Raises TimeoutError."""
    async with asyncio.timeout(seconds), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
