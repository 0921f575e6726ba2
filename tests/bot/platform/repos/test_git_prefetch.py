"""How much is downloaded from a repository: only the files that are read, in few requests."""

import os
from pathlib import Path

import pytest
from aiohttp import web

from bot.platform.repos.git import Git
from local import git_server
from tests.bot.platform.repos.pushed_repo import Repo


async def test_read_downloads_only_the_file(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Data", {"big.bin": os.urandom(500_000), "sweeps/lr.yaml": "lr: 1\n"})
    repo.push("main")
    await git.read(url, commit, "sweeps/lr.yaml")
    assert size(git.cache) < 200_000


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods of the requests that the host has received."""
    found, environment = [], git_server._environment

    def noted(folder: Path, request: web.Request, length: int) -> dict[str, str]:
        found.append(request.method)
        return environment(folder, request, length)

    monkeypatch.setattr(git_server, "_environment", noted)
    return found


async def test_prefetch_fetches_all_files_in_one_request(
    repo: Repo, url: str, git: Git, requests: list[str]
) -> None:
    paths = [f"{n}.txt" for n in range(20)]
    repo.commit("Begin", {path: path for path in paths} | {"big.bin": os.urandom(500_000)})
    repo.push("main")
    commit = (await git.resolve(url, "main")).commit
    await git.prefetch(url, commit, [*paths, "none.txt"])
    assert [await git.read(url, commit, path) for path in paths] == paths
    assert await git.read(url, commit, "none.txt") is None
    assert requests == ["GET", "POST"] * 3  # the branch, the commit with its trees, the files
    assert size(git.cache) < 200_000


async def test_prefetch_of_a_later_commit_fetches_only_changed_files(
    repo: Repo, url: str, git: Git, requests: list[str]
) -> None:
    first = repo.commit("Begin", {"a.txt": "a", "b.txt": "b"})
    repo.push("main")
    await git.prefetch(url, first, ["a.txt", "b.txt"])
    second, third = repo.commit("Go on", {"a.txt": "c"}), repo.commit("Go on", {"c.txt": "c"})
    repo.push("main")
    for commit, asked in ((second, 4), (third, 2), (third, 0)):
        requests.clear()
        await git.prefetch(url, commit, ["a.txt", "b.txt"])
        assert len(requests) == asked
        assert await git.read(url, commit, "a.txt") == "c"


async def test_reads_after_a_prefetch_list_no_paths_again(
    repo: Repo, url: str, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.commit("Begin", {"a.txt": "a", "b/c.txt": "c"})
    repo.push("main")
    await git.prefetch(url, commit, ["a.txt", "b/c.txt", "none.txt"])
    commands, run = [], git._run

    async def noted(url: str, *arguments: str | Path, most: int = 0) -> bytes:
        commands.append(str(arguments[2]))
        return await run(url, *arguments)

    monkeypatch.setattr(git, "_run", noted)
    assert [await git.read(url, commit, path) for path in ("a.txt", "b/c.txt", "none.txt")] == [
        "a",
        "c",
        None,
    ]
    assert commands == ["cat-file"] * 2, "one for each file that is there"
    assert [await git.names(url, commit, "b") for _ in range(2)] == [["c.txt"]] * 2, "no directory is kept"
    assert await git.read(url, commit, "b/d.txt") is None
    assert commands[2:] == ["ls-tree"] * 3


async def test_prefetch_of_no_paths_asks_for_nothing(git: Git, requests: list[str]) -> None:
    await git.prefetch("https://git.example/x.git", "0" * 40, [])
    assert requests == []


async def test_read_works_without_partial_clone(
    repo: Repo, url: str, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(git_server.CONFIG, "uploadpack.allowFilter", "false")
    commit = repo.commit("Data", {"big.bin": os.urandom(500_000), "sweeps/lr.yaml": "lr: 1\n"})
    repo.push("main")
    await git.prefetch(url, commit, ["sweeps/lr.yaml"])
    assert await git.read(url, commit, "sweeps/lr.yaml") == "lr: 1\n"
    assert size(git.cache) > 500_000  # everything came, which is what a server without filters does


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
