"""Each example as a trial runs it: its pod's command and variables, in a folder that its user can't write."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.core.request import SweepRequest
from bot.platform.config.limits import Limits
from bot.sweep.launch.plan import plan
from bot.sweep.spaces.space import parse_space
from k8s.katib.training import COLLECTOR_VARIABLE
from tests.bot.factories import ORDER, SETTINGS

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACES = sorted(file for file in EXAMPLES.glob("*/sweeps/*.yaml") if (file.parents[1] / "train.py").exists())
KATIB = "/var/log/katib"
FASTER = {"digits": " --epochs=1", "checkpoints": " --steps=2 --pause=0"}
# Root without this right is bound by a folder's mode; another user couldn't read a Python below /root.
AS_USER = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
FAILURE = {"crash": "unknown optimizer"}


@pytest.fixture
def machine() -> Iterator[Path]:
    """`app`, `tmp`, and Katib's volume `katib`; only the last two can be written by any user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    for name in ("tmp", "katib"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    yield folder
    for each in folder.rglob("*"):
        each.chmod(0o755)
    shutil.rmtree(folder)


def container(file: Path) -> dict:
    """Return the training's container in the manifest of the sweep with this space."""
    request = SweepRequest(branch="main", space=file.stem)
    space = parse_space(file.read_text(), file.name, request, Limits())
    experiment = plan(replace(ORDER, request=request, space=space), SETTINGS).experiment
    template = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    [found] = template["spec"]["containers"]
    values = {each.name: str([*each.values, each.min][0]) for each in space.parameters}
    line = re.sub(
        r"\$\{trialParameters\.(\w+)\}", lambda match: values.get(match[1], "trial-1"), found["args"][0]
    )
    faster = line.replace("train.py", f"train.py{FASTER.get(file.parents[1].name, '')}").replace("=120", "=0")
    return found | {"args": [faster.replace("$$", "$")]}


@pytest.mark.slow
@pytest.mark.parametrize("file", SPACES, ids=lambda file: f"{file.parents[1].name}-{file.stem}")
def test_example_trains_as_the_pods_user_who_cannot_write_its_folder(file, machine):
    pod, app = container(file), machine / "app"
    assert pod["securityContext"]["runAsNonRoot"]
    shutil.copytree(file.parents[1], app)
    script = app / "train.py"
    script.write_text(script.read_text().replace('"/tmp', f'"{machine / "tmp"}'))
    for each in (app, *app.rglob("*")):
        each.chmod(0o555 if each.is_dir() else 0o444)
    own = {each["name"]: each["value"] for each in pod["env"] if not each["name"].startswith("MLFLOW")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**own, "PATH": path, COLLECTOR_VARIABLE: "0", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [*AS_USER, *pod["command"], pod["args"][0].replace(KATIB, str(machine / "katib"))],
        cwd=app,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = FAILURE.get(file.stem, "")
    assert (run.returncode, wanted in run.stderr) == (int(bool(wanted)), True), run.stdout + run.stderr
    assert bool(wanted) or list(machine.glob("*/**/*tfevents*"))
