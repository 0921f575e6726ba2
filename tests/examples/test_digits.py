"""The example repository: it trains, it logs what Katib reads, and Sweepbot accepts its spaces."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from bot.core.request import SweepRequest
from bot.core.space import SearchSpace
from bot.platform.config.limits import Limits
from bot.sweep.spaces.metrics import line_filter
from bot.sweep.spaces.space import parse_space

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"


def train(*flags: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    command = [sys.executable, "train.py", *flags]
    return subprocess.run(command, cwd=DIGITS, env=environment, capture_output=True, text=True, check=False)


def scalars(folder: Path) -> dict[str, list[float]]:
    """Every scalar by tag. A record of an event file is a length, its checksum, an Event and its checksum."""
    found: dict[str, list[float]] = {}
    for file in folder.glob("events.out.tfevents.*"):
        content, at = file.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(value.simple_value)
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[float]]]:
    """What two epochs of a good training print, and log."""
    folder = tmp_path_factory.mktemp("good")
    run = train("--lr=0.003", "--epochs=2", "--tensorboard_dir", str(folder))
    assert run.returncode == 0, run.stderr
    return run.stdout, scalars(folder)


def test_training_prints_and_logs_two_epochs_with_the_metrics_of_the_spaces(good: Any) -> None:
    text, logged = good
    printed = re.findall(r"epoch \d/2 val_loss=(\S+) val_accuracy=(\S+)", text)
    assert [f"{loss:.4f}" for loss in logged["val_loss"]] == [loss for loss, _ in printed]
    assert [f"{accuracy:.4f}" for accuracy in logged["val_accuracy"]] == [accuracy for _, accuracy in printed]
    assert len(printed) == 2
    found = re.findall(line_filter(space("printed").strategies), text)
    assert [name for name, _ in found] == ["val_loss", "val_accuracy"] * 2


def test_training_depends_on_the_learning_rate_and_is_repeatable(good: Any, tmp_path: Path) -> None:
    def loss(rate: str, folder: str) -> float:
        train(f"--lr={rate}", "--epochs=2", "--tensorboard_dir", str(tmp_path / folder))
        return scalars(tmp_path / folder)["val_loss"][-1]

    best = good[1]["val_loss"][-1]
    assert best < 0.6 * loss("0.0001", "slow")
    assert best < 0.6 * loss("0.1", "wild")
    assert best == loss("0.003", "again")


def test_training_with_an_unknown_optimizer_fails_with_the_reason_last() -> None:
    run = train("--optimizer=adamw")
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1] == "ValueError: unknown optimizer 'adamw'; choose adam or sgd"


def space(name: str) -> SearchSpace:
    text = (DIGITS / "sweeps" / f"{name}.yaml").read_text()
    return parse_space(text, f"sweeps/{name}.yaml", SweepRequest(branch="main", space=name), Limits())


@pytest.mark.parametrize(
    ("name", "algorithm", "trials", "parallel"),
    [
        ("lr", "auto", 6, 2),
        ("printed", "tpe", 6, 2),
        ("depth", "grid", 6, 2),
        ("crash", "auto", 4, 1),
        ("idle", "auto", 2, 2),
    ],
)
def test_spaces_are_valid(name: str, algorithm: str, trials: int, parallel: int) -> None:
    found = space(name)
    assert (found.algorithm, found.max_trials, found.parallel) == (algorithm, trials, parallel)


def test_space_parameters_are_flags_of_the_program() -> None:
    flags = train("--help").stdout
    for name in ("lr", "printed", "depth", "crash", "idle"):
        for flag in [each.name for each in space(name).parameters] + [*space(name).fixed]:
            assert f"--{flag} " in flags


def test_example_pins_the_versions_of_the_projects_tests() -> None:
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    for line in (DIGITS / "requirements.txt").read_text().splitlines():
        assert re.search(rf"^{re.escape(line)}\b", locked, re.MULTILINE | re.IGNORECASE), line
