"""deploy/check-release and deploy/build-image.sh: one version everywhere, and a list of all packages."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    "pyproject.toml",
    "CHANGELOG.md",
    "deploy/check-release",
    "deploy/base/work.yaml",
    "deploy/overlays/replicas/serve.yaml",
    "docs/install.md",
    "tests/releases/0.1.0/redis.json",
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A copy in which 0.1.0 is ready to be tagged."""
    for part in PARTS:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    text = re.sub(
        r'^version = ".*"$', 'version = "0.1.0"', (tmp_path / PARTS[0]).read_text(), flags=re.MULTILINE
    )
    (tmp_path / PARTS[0]).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 - 2026-12-01\n\n- All of it.\n")
    return tmp_path


def checked(root: Path, *tag: str) -> str:
    command = [sys.executable, str(root / "deploy/check-release"), *tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 1) == bool(done.stderr)
    return done.stderr


def test_this_version_is_named_everywhere() -> None:
    assert checked(ROOT) == ""


def test_release_with_one_version_is_accepted(release: Path) -> None:
    assert checked(release, "v0.1.0") == ""


@pytest.mark.parametrize(
    ("part", "old", "new", "why"),
    [
        ("pyproject.toml", '"0.1.0"', '"0.2.0"', "the tag is v0.1.0; pyproject.toml has 0.2.0"),
        ("CHANGELOG.md", "0.1.0 - 2026-12-01", "Unreleased", 'must start with "## 0.1.0 - DATE"'),
        ("deploy/base/work.yaml", "sweepbot:0.1.0", "sweepbot:0.0.9", "work.yaml has image tag 0.0.9"),
        ("docs/install.md", "newTag: 0.1.0", "newTag: 0.0.9", "install.md has image tag 0.0.9"),
    ],
)
def test_release_with_another_version_somewhere_is_rejected(
    release: Path, part: str, old: str, new: str, why: str
) -> None:
    text = (release / part).read_text()
    assert old in text
    (release / part).write_text(text.replace(old, new))
    assert why in checked(release, "v0.1.0")


def test_release_without_its_stored_state_is_rejected(release: Path) -> None:
    (release / "tests/releases/0.1.0/redis.json").unlink()
    assert "python -m tests.releases.state" in checked(release, "v0.1.0")


@pytest.mark.slow
def test_bill_of_materials_lists_every_locked_package(tmp_path: Path) -> None:
    for part in ("pyproject.toml", "requirements/run.txt", "deploy/build-image.sh", "README.md", "LICENSE"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([tmp_path / "deploy/build-image.sh", "--sbom"], env=env, check=True, capture_output=True)
    parts = json.loads((tmp_path / "build/sbom.json").read_text())["components"]
    lock = (ROOT / "requirements/run.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==([^ ;]+)", lock, re.MULTILINE))
    assert {part["name"]: part["version"] for part in parts} == locked
    assert all(part["externalReferences"][0]["hashes"] for part in parts)
