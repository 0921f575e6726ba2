"""`make demo` as a newcomer meets it: whatever ends it, nothing of it is left behind."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.scenarios.local_world import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in Linux's /proc"),
]

IMPATIENT = (signal.SIGINT, signal.SIGINT, signal.SIGTERM)


class Demo:
    """`folder` is its TMPDIR, by which all its processes are known."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder.parent / "demo.log"

    async def start(self) -> None:
        env = {**os.environ, "TMPDIR": str(self.folder)}
        command = [sys.executable, "-m", "local", "demo"]
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
        await until(lambda: "Ctrl-C stops everything" in self.text(), "the demo is there", self.text)

    def text(self) -> str:
        return self.log.read_text()

    def processes(self) -> dict[int, str]:
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if f"TMPDIR={self.folder}" in (folder / "environ").read_text(errors="replace"):
                    found[int(folder.name)] = words
        return found


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    (folder := tmp_path / "tmp").mkdir()
    demo = Demo(folder)
    await demo.start()
    yield demo
    for process in demo.processes():
        os.kill(process, signal.SIGKILL)


async def test_demo_stops_without_leftovers(demo: Demo) -> None:
    assert len(demo.processes()) > 4
    for number in IMPATIENT:
        demo.process.send_signal(number)
        await asyncio.sleep(0.1)
    assert await demo.process.wait() == 0
    assert demo.processes() == {}
    assert list(demo.folder.iterdir()) == []
    assert "Traceback" not in demo.text()


async def test_process_that_exits_is_reported_with_its_last_lines(demo: Demo) -> None:
    [worker] = [number for number, words in demo.processes().items() if words.endswith("-m bot work ")]
    [log] = demo.folder.glob("*/logs/work.log")
    await until(log.read_text, "the worker has logged something")
    os.kill(worker, signal.SIGKILL)
    assert await demo.process.wait() == 1
    assert re.search(r"^work ended with exit code -9\.\nwork: ", demo.text(), re.MULTILINE)
    assert demo.processes() == {}
