"""Child processes of the local world: their output goes to files, and none outlives us."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

STOP = 10.0  # seconds between asking a process to end and ending it
START = 180.0  # seconds until one has to say that it is there, on a busy machine
LAST_LINES = 15


class EndedError(Exception):
    """One of them ended by itself; the text says which and shows its last lines."""


class Processes:
    """Each runs in a process group of its own, so that its children end with it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> None:
        """What it talks to is on this machine: no proxy would find it."""
        ours = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *command, env={**ours, **(env or {})}, stdout=log, stderr=log, start_new_session=True
            )

    async def says(self, name: str, pattern: str) -> str:
        """The first group of a pattern in what it has written. Raises EndedError, TimeoutError."""
        async with asyncio.timeout(START):
            while not (found := re.search(pattern, self._log(name))):
                self.check()
                await asyncio.sleep(0.05)
            return found[1]

    def check(self) -> None:
        """Raises EndedError."""
        for name, process in self._running.items():
            if process.returncode is not None:
                raise EndedError(
                    f"{name} ended with exit code {process.returncode}.\n{self.last_lines(name)}"
                )

    def last_lines(self, name: str) -> str:
        return "\n".join(f"{name}: {line}" for line in self._log(name).splitlines()[-LAST_LINES:])

    def _log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(errors="replace")

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
        await asyncio.gather(*(self.stop(name) for name in list(self._running)))
