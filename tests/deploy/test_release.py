"""deploy/check-release and deploy/build-image.sh: one version everywhere, and a list of all packages."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PARTS = (
    "pyproject.toml",
    "CHANGELOG.md",
    "bot/__init__.py",
    "deploy/check-release",
    "deploy/base/work.yaml",
    "deploy/overlays/replicas/serve.yaml",
    "deploy/search/katib-config.yaml",
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


def test_version_option_prints_the_version_of_the_release() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bot", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert done.stdout == f"sweepbot {version}\n"


def test_make_alone_prints_each_target() -> None:
    # Inside another make, as in `make test`, make also prints which directory it enters and leaves.
    command = ["make", "--no-print-directory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    printed = [line.split()[:2] for line in done.stdout.splitlines()]
    assert sorted(each for _, each in printed) == sorted({*phony[1].split()} - {"stories", "samples"})


def test_release_with_one_version_is_accepted(release: Path) -> None:
    assert checked(release, "v0.1.0") == ""


@pytest.mark.parametrize(
    ("part", "old", "new", "why"),
    [
        ("pyproject.toml", '"0.1.0"', '"0.2.0"', "the tag is v0.1.0; pyproject.toml has 0.2.0"),
        ("CHANGELOG.md", "0.1.0 - 2026-12-01", "Unreleased", 'must start with "## 0.1.0 - DATE"'),
        ("deploy/base/work.yaml", "sweepbot:0.1.0", "sweepbot:0.0.9", "work.yaml has version 0.0.9"),
        ("docs/install.md", "newTag: 0.1.0", "newTag: 0.0.9", "install.md has version 0.0.9"),
        ("bot/__init__.py", '"0.1.0"', '"0.0.9"', "bot/__init__.py has version 0.0.9"),
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


ACTIONS = [ROOT / "action.yml", ROOT / "deploy" / "ci" / "action.yml"]
WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), *ACTIONS]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflow_runs_only_pinned_actions_and_valid_shell(file: Path) -> None:
    whole = yaml.safe_load(file.read_text())
    steps = [step for job in whole.get("jobs", {"": whole.get("runs")}).values() for step in job["steps"]]
    assert all(re.search("@[0-9a-f]{40}$", step["uses"]) for step in steps if "uses" in step)
    for step in steps:
        script = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
        subprocess.run(["bash", "-n", "-c", script], check=True)
        assert "github.event" not in step.get("run", ""), "others write it"


def test_gitlab_template_runs_valid_shell_with_a_command_that_exists() -> None:
    [job] = yaml.safe_load((ROOT / "deploy" / "ci" / "gitlab.yml").read_text()).values()
    for line in job["script"]:
        subprocess.run(["bash", "-n", "-c", line], check=True)
    words = job["script"][-1].split()
    assert words[:2] == ["sweepbot", "ci"]
    options = subprocess.run(
        [sys.executable, "-m", "bot", "ci", "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert all(word in options for word in words if word.startswith("--"))


def test_release_publishes_every_image_of_the_dockerfile() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    named = re.findall(r"^FROM \S+ AS (?!build)(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert set(re.findall(r"--target (\S+)", text)) == set(named)
    assert f"uv=={(re.search('UV_VERSION := (.*)', (ROOT / 'Makefile').read_text()) or [''])[1]}\n" in text
