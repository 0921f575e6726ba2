"""A registry and a git host that start and stop with a test, and a repository to build from."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import local
from local import git_server, registry
from local.serving import Server

WHO = {
    f"GIT_{role}_{what}": "ada@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True)
class ContainerEnded:
    code: int
    output: str


@dataclass(frozen=True)
class Origin:
    """A bare repository and a working copy of it."""

    bare: Path
    work: Path

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", self.work, *words], check=True, capture_output=True, text=True, env=os.environ | WHO
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str], branch: str = "main") -> str:
        """Write the files, push them to `branch`; the commit's SHA."""
        self.git("checkout", "-q", "-B", branch)
        for name, text in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")
        self.git("push", "-q", "-f", "origin", branch)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
async def images(tmp_path: Path) -> AsyncIterator[Server]:
    server = await registry.serve(tmp_path / "registry")
    yield server
    await server.close()


@pytest.fixture
async def git_host(tmp_path: Path) -> AsyncIterator[Server]:
    server = await git_server.serve(tmp_path / "git")
    yield server
    await server.close()


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    there = Origin(tmp_path / "git" / "team" / "code.git", tmp_path / "work")
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", there.bare], check=True)
    subprocess.run(["git", "clone", "-q", there.bare, there.work], check=True, capture_output=True)
    return there


Executor = Callable[..., Awaitable[ContainerEnded]]


@pytest.fixture
def kaniko(images: Server, git_host: Server, tmp_path: Path) -> Executor:
    """Run the executor with the flags of a build of `commit`; `flags` come after them."""

    async def run(commit: str, *flags: str, branch: str = "main", to: str = "code:1") -> ContainerEnded:
        host = git_host.url.removeprefix("http://")
        usual = [
            f"--context=git://{host}/team/code.git#refs/heads/{branch}#{commit}",
            f"--destination={images.address}/{to}",
            f"--insecure-registry={images.address}",
            f"--digest-file={tmp_path / 'digest'}",
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "local.kaniko",
            *usual,
            *flags,
            env=os.environ | {"GIT_PULL_METHOD": "http"},
            cwd=Path(local.__file__).parents[1],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return ContainerEnded(process.returncode or 0, output.decode())

    return run
