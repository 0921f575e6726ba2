"""deploy/build-image.sh: its calls of Docker, and how it compares two builds. Needs no Docker."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Writes metadata as BuildKit 0.13 does: the image's digest is one of three. Each build gets the next one.
DOCKER = """#!/bin/sh
echo "$BASE $*" >> builds
digest=$(echo "$DIGESTS" | cut -d ' ' -f "$(wc -l < builds)")
cat > build/metadata.json <<END
{
  "containerimage.config.digest": "sha256:c0",
  "containerimage.descriptor": {
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "digest": "sha256:$digest",
    "size": 1588
  },
  "containerimage.digest": "sha256:$digest",
  "image.name": "docker.io/library/sweepbot:check"
}
END
echo sha256:c0
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in ("deploy/build-image.sh", "pyproject.toml"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    commit = "-c user.name=Ada -c user.email=ada@example.com commit --quiet --allow-empty --message first"
    for arguments in ("init --quiet", commit):
        subprocess.run(["git", *arguments.split()], cwd=tmp_path, check=True)
    return tmp_path


def check(root: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", **env}
    return subprocess.run(
        [root / "deploy/build-image.sh", "--check"], env=env, capture_output=True, text=True, check=False
    )


def test_check_of_two_equal_builds_prints_their_digest(copy: Path) -> None:
    done = check(copy, DIGESTS="aa aa")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sha256:aa\n", "")
    assert (copy / "builds").read_text().count("--no-cache") == 2


def test_check_of_two_different_builds_fails_and_names_both(copy: Path) -> None:
    done = check(copy, DIGESTS="aa bb")
    assert done.returncode == 1
    assert "'sha256:aa' and 'sha256:bb'" in done.stderr


def test_other_base_is_passed_on(copy: Path) -> None:
    base = "mirror.example/python@sha256:1234"
    assert check(copy, DIGESTS="aa aa", BASE=base).returncode == 0
    first = (copy / "builds").read_text().splitlines()[0]
    assert first.startswith(f"{base} buildx build")
    assert "--build-arg BASE " in first


def test_other_base_without_digest_is_rejected_before_any_build(copy: Path) -> None:
    done = check(copy, BASE="mirror.example/python:3.11")
    assert done.returncode == 1
    assert "Set BASE=mirror.example/python:3.11@sha256:..." in done.stderr
    assert not (copy / "builds").exists()
