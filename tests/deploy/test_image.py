"""deploy/image-contents: which files go into the image, and which it rejects."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bot.platform.config.settings import Settings
from bot.platform.runtime.probes import ProbeFailedError, Probes
from bot.text.masking import Mask
from handlers.http_server import Http, served

ROOT = Path(__file__).parents[2]
PARTS = (
    "Dockerfile",
    "pyproject.toml",
    "requirements/run.txt",
    "requirements/search.txt",
    "deploy/image-contents",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Of all that the script reads, to be changed."""
    for part in PARTS:
        (tmp_path / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    return tmp_path


def contents(root: Path, *image: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "deploy/image-contents"), *image]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_image_contains_the_product_and_its_runtime() -> None:
    reported = contents(ROOT)
    assert (reported.returncode, reported.stderr) == (0, "")
    assert re.search(r"^base +python:3\.11-slim\S*@sha256:[0-9a-f]{64}$", reported.stdout, re.MULTILINE)
    folders = re.findall(r"^(\w+) +\d+ files", reported.stdout, re.MULTILINE)
    assert folders == ["bot", "handlers", "k8s", "reader"]
    packages = dict(re.findall(r"([\d.]+) MB +(\S+) \d", reported.stdout))
    packages = {name: float(size) for size, name in packages.items()}
    assert packages["mlflow-skinny"] > 1
    assert "mlflow" not in packages


def test_search_image_contains_the_service_alone(copy: Path) -> None:
    reported = contents(ROOT, "search")
    assert (reported.returncode, reported.stderr) == (0, "")
    assert re.findall(r"^(\w+) +\d+ files", reported.stdout, re.MULTILINE) == ["search"]
    packages = set(re.findall(r" MB +(\S+) \d", reported.stdout))
    assert packages > {"grpcio", "protobuf", "optuna", "cmaes", "scipy"}
    assert not packages & {"slack-bolt", "kubernetes", "redis", "mlflow-skinny", "matplotlib"}
    text = (copy / "Dockerfile").read_text()
    (copy / "Dockerfile").write_text(text.replace("COPY search search", "COPY search bot ./"))
    assert contents(copy, "search").stderr == "image-contents: bot is copied\n"
    assert contents(copy).returncode == 0


@pytest.mark.parametrize(
    ("part", "old", "new", "reason"),
    [
        ("Dockerfile", "COPY bot bot", "COPY bot local ./", "local is copied"),
        ("Dockerfile", "COPY bot bot", "COPY . .", ". is copied"),
        ("Dockerfile", "COPY bot bot", "COPY tests bot ./", "tests is copied"),
        ("Dockerfile", "recommends git", "recommends git gcc", "gcc is installed by apt-get"),
        ("Dockerfile", "@sha256:", "#", "the base is not pinned by digest"),
        ("Dockerfile", "FROM ${BASE}\n", "FROM python:3.11\n", "python:3.11 is another base"),
        ("Dockerfile", "pip uninstall --yes", "true", "the base's pip, setuptools and wheel stay"),
        (
            "Dockerfile",
            " /var/cache/apt/*",
            "",
            "apt-get's caches stay, which differ in each build",
        ),
        ("Dockerfile", "USER 10001:10001\n", "", "its user is root"),
        ("Dockerfile", "USER 10001:10001", "USER 0:0", "its user is 0:0"),
        ("requirements/run.txt", "aiohttp==", "pytest==", "pytest is locked"),
        ("requirements/run.txt", "aiohttp==", "mlflow==", "mlflow is locked"),
        ("requirements/run.txt", "aiohttp==", "setuptools==", "setuptools is locked"),
    ],
)
def test_image_with_forbidden_contents_is_rejected(
    copy: Path, part: str, old: str, new: str, reason: str
) -> None:
    text = (copy / part).read_text()
    assert old in text
    (copy / part).write_text(text.replace(old, new))
    reported = contents(copy)
    assert reported.returncode == 1
    assert reported.stderr == f"image-contents: {reason}\n"


def health_command(port: int) -> list[str]:
    """Return the image's, for another port than its own."""
    found = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    python, option, code = json.loads(found[1])
    assert python == "python"
    own = f":{Settings.model_fields['http_port'].default}/"
    assert own in code
    return [sys.executable, option, code.replace(own, f":{port}/")]


@pytest.mark.parametrize("healthy", [True, False])
async def test_image_is_healthy_as_long_as_healthz_says_so(healthy: bool) -> None:
    async def no_refresh() -> None:
        pass

    async def check() -> str:
        if not healthy:
            raise ProbeFailedError("stuck")
        return "turning"

    probes = Probes(lambda: False, Mask())
    probes.vital("work", check)
    async with served(Http(probes, no_refresh), "127.0.0.1", 0) as port:
        process = await asyncio.create_subprocess_exec(*health_command(port), stderr=subprocess.DEVNULL)
        assert await process.wait() == (0 if healthy else 1)
    await probes.close()
