"""`make demo` as a newcomer meets it: whatever ends it, nothing of it is left behind."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from local import demo_full
from local.demo import OwnRepository, run
from local.world import EXAMPLES, git, publish, world
from tests.scenarios.local_world import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in Linux's /proc"),
]

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")
IMPATIENT = (signal.SIGINT, signal.SIGINT, signal.SIGTERM)


class Demo:
    """`folder` is its TMPDIR, by which all its processes are found."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder.parent / "demo.log"

    async def start(self) -> None:
        env = {**os.environ, "TMPDIR": str(self.folder)}
        command = [sys.executable, "-m", "local", "demo"]
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
        await until(self.is_there, "the demo is there", self.text)

    def is_there(self) -> bool:
        assert self.process.returncode is None, self.text()
        return "Ctrl-C stops everything" in self.text()

    def text(self) -> str:
        return self.log.read_text()


def of(folder: Path) -> dict[int, str]:
    """The command lines of all processes with this TMPDIR, by number."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if f"TMPDIR={folder}" in (process / "environ").read_text(errors="replace"):
                found[int(process.name)] = words
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (folder := tmp_path / "tmp").mkdir()
    yield folder
    for process in of(folder):
        os.kill(process, signal.SIGKILL)


def left(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_demo_stops_without_leftovers(folder: Path) -> None:
    demo = Demo(folder)
    await demo.start()
    assert len(of(folder)) > 4
    for number in IMPATIENT:
        demo.process.send_signal(number)
        await asyncio.sleep(0.1)
    assert await demo.process.wait() == 0
    assert of(folder) == {}
    assert left(folder) == []
    assert "Traceback" not in demo.text()


async def test_process_that_exits_is_reported_with_its_last_lines(
    folder: Path, mlflow_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, and with the MLflow of this test run."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("local.demo.world", partial(world, tracking=mlflow_url))
    ends = asyncio.create_task(run([]))

    def worker() -> int | None:
        assert not ends.done(), capsys.readouterr().out
        return next((number for number, words in of(folder).items() if words.endswith("-m bot work ")), None)

    number = await until(worker, "the worker has started")
    [log] = [file for file in left(folder) if file.name == "work.log"]
    await until(log.read_text, "the worker has logged something")
    os.kill(number, signal.SIGKILL)
    assert await ends == 1
    assert re.search(r"^work ended with exit code -9\.\nwork: ", capsys.readouterr().out, re.MULTILINE)
    assert of(folder) == {}


async def test_demo_runs_a_sweep_of_a_repository_of_ones_own(tmp_path, monkeypatch, mlflow_url, capsys):
    """Read where it is, in a worktree, with what is committed there."""
    folder = tmp_path / "demo"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("local.demo.world", partial(world, tracking=mlflow_url))
    publish(EXAMPLES / "digits", tmp_path / "Vision Lab", tmp_path / "bare.git")
    mine = tmp_path / "mine"
    git(tmp_path / "Vision Lab", "worktree", "add", "--quiet", "-b", "try/width", str(mine))
    (mine / "sweeps" / "lr.yaml").rename(mine / "sweeps" / "a-width.yaml")
    git(mine, "add", "--all")
    git(mine, "commit", "--quiet", "-m", "Mine")
    assert await run(["--once", "--repo", str(mine)]) == 0
    printed = capsys.readouterr().out
    assert "Ada in #sweeps: /sweep branch=try/width gpus=1 space=a-width\n" in printed
    assert re.search(r"\| ✓ Image: .*built in", printed)


async def test_demo_of_a_repository_without_a_build_file_ends_with_the_reason(
    tmp_path, monkeypatch, mlflow_url, capsys
):
    mine = tmp_path / "mine"
    (mine / "sweeps").mkdir(parents=True)
    (mine / "sweeps" / "lr.yaml").write_text((EXAMPLES / "digits" / "sweeps" / "lr.yaml").read_text())
    for command in (("init", "--quiet"), ("add", "."), (*AUTHOR, "commit", "--quiet", "-m", "x")):
        git(mine, *command)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("local.demo.world", partial(world, tracking=mlflow_url))
    assert await run(["--once", "--repo", str(mine)]) == 1
    assert "didn't start. mine can't be built: no Dockerfile" in capsys.readouterr().out


async def test_full_demo_runs_a_sweep_through_a_queue(tmp_path, monkeypatch, mlflow_url, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("local.demo.world", partial(world, tracking=mlflow_url))
    assert await run(["--once", "--full"]) == 0
    printed = capsys.readouterr().out
    assert demo_full.TO_TRY in printed
    assert "✓ Submitted, queue research, priority normal" in printed


def test_own_repository_that_cant_be_swept_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="isn't a git repository"):
        OwnRepository.read(tmp_path)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(ValueError, match="isn't a git repository with a branch and a commit"):
        OwnRepository.read(tmp_path)
    git(tmp_path, *AUTHOR, "commit", "--quiet", "--allow-empty", "-m", "x")
    with pytest.raises(ValueError, match=r"has no sweeps/NAME.yaml in a commit"):
        OwnRepository.read(tmp_path)
