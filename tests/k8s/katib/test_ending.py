"""How a trial ends when its pod does: the wrapped command under real shells, and on a local node."""

import asyncio
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from k8s.katib.experiment import experiment
from k8s.katib.manifest import grace_of
from k8s.katib.pod_shape import PodShape
from k8s.katib.training import Collector, shell
from local.katib.pods import _wrap
from local.kubernetes.node.container_inputs import expand
from tests.k8s.katib.test_katib import SPEC
from tests.local.kubernetes.node.pods import KubernetesClient, sh

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
TRAINING = """
import multiprocessing, pathlib, signal, sys, time
def loader():
    signal.signal(signal.SIGTERM, lambda *_: print("the loader got SIGTERM", flush=True))
    time.sleep(60)
def save(*_):
    print("checkpoint saved", flush=True)
    pathlib.Path(sys.argv[0]).with_suffix(".ckpt").touch()
    child.kill()
    sys.exit(0)
child = multiprocessing.Process(target=loader)
child.start()
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
for _ in range(600):  # in parts: a signal just before a sleep doesn't interrupt it
    time.sleep(0.1)
"""
DEAF = TRAINING.replace(
    "signal.signal(signal.SIGTERM, save)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
)


def wrapped(command: str, folder: Path) -> str:
    """What the container's `sh -c` is given, with Katib's marker, as Kubernetes expands it."""
    line = shell(command.replace("$", "$$"), "", Collector())
    container = {"command": ["sh", "-c"], "args": [line]}
    _wrap(container, f"{folder}/")
    return expand(container["args"][0], {})


async def started(name: str, command: str, folder: Path) -> asyncio.subprocess.Process:
    argv = [name, *(["sh"] if name == "busybox" else []), "-c", wrapped(command, folder)]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT)


@pytest.fixture
def train(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(TRAINING)
    return f"python3 {file}"


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("before", ["", "cd / && ", "LR=1 ", "exec ", "true; ", "python3 -c 1 && "])
async def test_sigterm_reaches_the_training_only(name, before, train, tmp_path):
    process = await started(name, before + train, tmp_path)
    assert await process.stdout.readline() == b"training\n"
    process.send_signal(signal.SIGTERM)
    output, _ = await process.communicate()
    assert output.decode().splitlines()[0] == "checkpoint saved"
    assert b"loader" not in output
    assert process.returncode == 143  # not 0: a stopped training has not completed
    assert list(tmp_path.glob("*.pid")) == []


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("exec true", 0), ("false", 1), ("sh -c 'exit 7'", 7), ("sh -c 'kill -9 $$'", 137)],
)
async def test_training_that_exits_keeps_its_code_and_marks_only_success(name, command, code, tmp_path):
    process = await started(name, command, tmp_path)
    await process.communicate()
    [*marker] = [file.read_text() for file in tmp_path.glob("*.pid")]
    assert (process.returncode, marker) == (code, [] if code else ["completed\n"])


@pytest.mark.parametrize("program", [TRAINING, DEAF])
async def test_training_on_a_node_has_its_grace_period(program, tmp_path):
    (tmp_path / "train.py").write_text(program)
    cluster = KubernetesClient(tmp_path / "pods")
    try:
        line = wrapped(f"python3 {tmp_path / 'train.py'}", tmp_path)
        cluster.run("trial", sh(line.replace("$$", "$$$$")), terminationGracePeriodSeconds=1)
        await cluster.until(lambda: "training" in cluster.log("trial"), "it trains")
        cluster.store.delete("Pod", "default", "trial")
        await cluster.until(lambda: cluster.pod("trial") is None, "it is gone")
        assert (tmp_path / "train.ckpt").exists() == (program is TRAINING)
    finally:
        await cluster.kubelet.close()


def test_grace_period_follows_space_then_cluster_then_kubernetes():
    shape = PodShape(grace_seconds=60)
    graces = [
        grace_of(experiment(replace(SPEC, grace_seconds=own, shape=each)))
        for own, each in [(None, PodShape()), (None, shape), (120, shape)]
    ]
    assert graces == [30, 60, 120]
