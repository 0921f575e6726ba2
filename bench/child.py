"""Measure a process: its start, its CPU time, and its memory. Linux only."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
START_TIMEOUT = 120.0  # seconds, on a busy machine


class Child:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @property
    def cpu(self) -> float:
        """Seconds of CPU time of all threads that run now, by the scheduler's own count."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    @property
    def memory(self) -> float:
        """Resident memory in MB (10^6 bytes)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024 / 1e6

    async def line(self, within: float = START_TIMEOUT) -> str:
        """Return the next line of its output, in so many seconds. Raises RuntimeError when it has ended."""
        output = self.process.stdout
        async with asyncio.timeout(within):
            if not output or not (line := await output.readline()):
                raise RuntimeError("the measured process has ended")
        return line.decode().strip()


@asynccontextmanager
async def child(
    *arguments: str, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[Child]:
    """Run `python ARGUMENTS` in the repository's root; killed at the end of the body. Errors go to ours."""
    process = await asyncio.create_subprocess_exec(
        python, *arguments, cwd=ROOT, env={**_environment(), **(env or {})}, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Child(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def cpu_of(*arguments: str) -> float:
    """Run `python ARGUMENTS` to its end; return the seconds of user and system time it took."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=_environment()) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """Return ours without proxies. Bytecode is kept, as images have it: peers' packages have theirs."""
    unwanted = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "pythondontwritebytecode"}
    return {key: value for key, value in os.environ.items() if key.lower() not in unwanted}
