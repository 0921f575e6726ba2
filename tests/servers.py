"""Servers that tests start: one that ends instead of listening fails its test at once, with its output."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.free_port import is_free

START_SECONDS = 200  # on a busy machine
LAST_CHARACTERS = 3000  # of the output


@contextmanager
def running(
    command: Sequence[object], port: int, log: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server from when it listens on this port of 127.0.0.1 to the end of the block."""
    words = [str(word) for word in command]
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=cwd, stdout=output, stderr=output)
    try:
        _wait_until_listening(process, port, log)
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while is_free(port):
        fail_if_ended(process, log)
        if time.monotonic() > end:
            pytest.fail(f"{process.args[0]} doesn't listen after {START_SECONDS} s.\n{_end_of(log)}")
        time.sleep(0.02)


def fail_if_ended(process: subprocess.Popen[bytes], log: Path) -> None:
    if (code := process.poll()) is not None:
        pytest.fail(f"{process.args[0]} ended with exit code {code}.\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-LAST_CHARACTERS:]
