"""A repository on a git host that speaks smart HTTP, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.platform.repos.git import Git
from local import git_server
from tests.bot.platform.repos.pushed_repo import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


@pytest.fixture
async def url(repo: Repo) -> AsyncIterator[str]:
    host = await git_server.serve(repo.bare.parent.parent)
    yield f"{host.url}/acme/digits.git"
    await host.close()


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "cache", timeout=200)
