"""The training's shell line as Katib rewrites it, under real shells, for every source of metrics."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from bot.sweep.spaces.metrics import line_filter
from k8s.katib.training import COLLECTOR_VARIABLE, LOG, Collector, shell
from local.katib.early_stopping import COMMAND
from local.katib.pods import _wrap
from local.kubernetes.node.container_inputs import expand

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
SOURCES = {
    "tensorboard": Collector(),
    "stdout": Collector(kind="File", path=LOG, filter=line_filter(["loss"]), tee=True),
    "file": Collector(kind="File", path="/logs/metrics.txt", filter=line_filter(["loss"])),
    "katib's StdOut": Collector(kind="StdOut", path=LOG),
    "push": Collector(kind="Push"),
}
SAVE = "import signal, sys; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0)));"
TRAIN = (
    "import os, time; print('pid', os.getpid(), flush=True); print('loss=0.5', flush=True); time.sleep(60)"
)


def rewritten(source: str, command: str, folder: Path, *, early_stopping: bool = False) -> str:
    """Return the text that `sh -c` gets after Kubernetes expanded it; the volumes are `folder`."""
    collector = SOURCES[source]
    line = shell(command.replace("$", "$$"), "", collector)
    parent = Path(collector.path).parent if collector.kind in {"File", "StdOut"} else Path(collector.path)
    redirect = [f"1>{collector.path} 2>&1"] if collector.kind == "StdOut" else []
    words = [line, *redirect, *([COMMAND.format(parent)] if early_stopping else [])]
    container = {"command": ["sh", "-c"], "args": [" ".join(words)]}
    if collector.kind != "Push":
        _wrap(container, str(parent))
    text = expand(container["args"][0], {}).replace("sleep 1;", "sleep 0.2;")
    for place in ("/var/log/katib/tfevent", "/var/log/katib", "/logs"):
        text = text.replace(place, str(folder))
    return text


async def started(name: str, text: str, **env: str) -> asyncio.subprocess.Process:
    argv = [name, *(["sh"] if name == "busybox" else []), "-c", text]
    pipe, env = asyncio.subprocess.PIPE, os.environ | env
    return await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=env)


async def output(name: str, text: str, **env: str) -> tuple[int | None, str]:
    process = await started(name, text, **env)
    printed, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, printed.decode()


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def training_of(process, folder: Path, source: str, wait_until) -> int:
    """Return the training's process id, once it has printed it."""
    if source == "katib's StdOut":
        log = folder / "metrics.log"
        await wait_until(lambda: log.exists() and "loss" in log.read_text(), "it trains")
        return int(log.read_text().split()[1])
    return int((await process.stdout.readline()).split()[1])


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("echo loss=0.5", 0),
        ("echo loss=0.5; exit 0", 0),
        ("echo loss=0.5 && false", 1),
        ("echo loss=0.5; exit 7", 7),
        ("echo loss=0.5; kill -9 $$", 137),
    ],
)
async def test_wrapper_keeps_exit_code_and_output(name, source, command, code, tmp_path):
    if "kill" in command:
        command = "echo loss=0.5; sh -c 'kill -9 $$'"
    ended, printed = await output(name, rewritten(source, command, tmp_path))
    marker = [file.read_text() for file in tmp_path.glob("*.pid")]
    assert (ended, marker) == (code, [] if code or source == "push" else ["completed\n"])
    log = tmp_path / "metrics.log"
    assert ("loss=0.5" in printed) == (source != "katib's StdOut"), printed
    if source in {"stdout", "katib's StdOut"}:
        assert log.read_text().splitlines()[0] == "loss=0.5"


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("source", SOURCES)
async def test_wrapper_passes_sigterm_to_the_training_and_exits_with_143(name, source, tmp_path, wait_until):
    process = await started(name, rewritten(source, f'python3 -c "{SAVE}{TRAIN}"', tmp_path))
    await training_of(process, tmp_path, source, wait_until)
    process.send_signal(signal.SIGTERM)
    printed, _ = await asyncio.wait_for(process.communicate(), 30)
    text = (tmp_path / "metrics.log").read_text() if source == "katib's StdOut" else printed.decode()
    assert ("saved" in text, process.returncode, list(tmp_path.glob("*.pid"))) == (True, 143, [])


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("source", ["stdout", "file", "katib's StdOut"])
async def test_early_stopping_finds_one_child_which_is_the_training(name, source, tmp_path, wait_until):
    """As Katib's collector does it: the marker, then SIGTERM to the shell's only child."""
    text = rewritten(source, f'cd / && python3 -c "{TRAIN}"', tmp_path, early_stopping=True)
    process = await started(name, text)
    training = await training_of(process, tmp_path, source, wait_until)
    assert children(process.pid) == [training]
    (tmp_path / f"{process.pid}.pid").write_text("early-stopped")
    os.kill(training, signal.SIGTERM)
    printed, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert (tmp_path / f"{process.pid}.pid").read_text() == "completed\n"
    if source != "katib's StdOut":
        assert "Early Stopped" in printed.decode()


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("training", "given", "slept"),
    [
        ("echo loss=0.5", "", {"tensorboard": 60, "push": 0}),
        ("echo loss=0.5", "90", dict.fromkeys(SOURCES, 90) | {"push": 0}),
        ("sleep 1.1", "1", dict.fromkeys(SOURCES, 0)),  # the collector has had its time
        ("false", "", dict.fromkeys(SOURCES, 0)),
    ],
)
async def test_shell_lasts_until_the_collector_has_started(name, source, training, given, slept, tmp_path):
    """A failed training doesn't: Katib needs no metrics of it."""
    bare = rewritten(source, training.replace("sleep", shutil.which("sleep")), tmp_path)
    text = f"sleep() {{ echo slept $1 >> {tmp_path}/slept; }}; {bare.replace('sleep 0.2;', ':;')}"
    code, _ = await output(name, text, **{COLLECTOR_VARIABLE: given})
    naps = (tmp_path / "slept").read_text().split()[1::2] if (tmp_path / "slept").exists() else []
    wanted = slept.get(source, 20)
    assert (code, len(naps)) == (int(training == "false"), int(bool(wanted)))
    assert not naps or wanted - 10 <= int(naps[0]) <= wanted  # without the training's seconds


@pytest.mark.parametrize("name", SHELLS)
async def test_training_without_tee_fails_at_once(name, tmp_path):
    text = rewritten("stdout", "echo loss=1", tmp_path).replace("command -v tee", "command -v no-such-tee")
    assert (await output(name, text))[0] == 127


@pytest.mark.parametrize("name", SHELLS)
async def test_background_process_with_open_output_does_not_delay_the_exit(name, tmp_path, wait_until):
    process = await started(name, rewritten("stdout", "sleep 600 & echo pid $! loss=0.5", tmp_path))
    line = (await process.stdout.readline()).decode()
    await wait_until(lambda: process.returncode is not None, "the shell has exited")
    os.kill(int(line.split()[1]), signal.SIGKILL)  # it still ran
    await process.communicate()
    assert (process.returncode, "loss=0.5" in line) == (0, True)
