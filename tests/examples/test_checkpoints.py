"""The example with checkpoints: SIGTERM makes it save, and its next pod resumes from there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bot.core.request import SweepRequest
from bot.platform.config.limits import Limits
from bot.sweep.spaces.space import parse_space

FOLDER = Path(__file__).parents[2] / "examples" / "checkpoints"


def train(folder: Path, *flags: str) -> subprocess.Popen[str]:
    environment = os.environ | {"KATIB_TRIAL_NAME": "trial-1", "PYTHONUNBUFFERED": "1"}
    places = [f"--checkpoints={folder}", f"--tensorboard_dir={folder / 'events'}"]
    command = [sys.executable, "train.py", *places, *flags]
    return subprocess.Popen(command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True)


def test_stopped_training_resumes_from_its_checkpoint(tmp_path):
    (tmp_path / "trial-1").mkdir()
    first = train(tmp_path, "--steps=1000000", "--pause=0.001")
    while not list(tmp_path.glob("events/*tfevents*")):  # its handler is there, and it trains
        assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    message, _ = first.communicate()
    assert "checkpoint saved" in message
    assert first.returncode == 1
    step = int(message.split("step ")[1].split(",")[0])
    again, _ = train(tmp_path, f"--steps={step + 1}").communicate()
    assert f"resumed at step {step}" in again


def test_space_gives_time_to_save():
    request = SweepRequest(branch="main", gpus=1, space="lr")
    space = parse_space((FOLDER / "sweeps" / "lr.yaml").read_text(), "lr.yaml", request, Limits())
    assert space.grace_seconds == 60
