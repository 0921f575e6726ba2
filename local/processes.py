"""Child processes of the local world, with output in files; all end with this process."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

STOP = 10.0  # seconds from SIGTERM to SIGKILL
START = 300.0  # seconds for a process to become ready, on a busy machine
LAST_LINES = 15


class EndedError(Exception):
    """A process exited unexpectedly; the message names it and shows its last lines."""


class Processes:
    """Each process has its own process group, so that its children end with it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> None:
        """Start a process without proxy settings: all services are on this machine."""
        ours = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *command, env={**ours, **(env or {})}, stdout=log, stderr=log, start_new_session=True
            )

    def process(self, name: str) -> asyncio.subprocess.Process:
        return self._running[name]

    async def says(self, name: str, pattern: str) -> str:
        """Wait for a pattern in the output and return its first group. Raises EndedError, TimeoutError."""
        async with asyncio.timeout(START):
            while not (found := re.search(pattern, self._log(name))):
                self.check()
                await asyncio.sleep(0.05)
            return found[1]

    def check(self, *, killed: bool = False) -> None:
        """Raise EndedError if a process has exited. `killed`: those that a signal killed are expected to."""
        for name, process in self._running.items():
            code = process.returncode
            if code is not None and not (killed and code < 0):
                raise EndedError(f"{name} ended with exit code {code}.\n{self.last_lines(name)}")

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
