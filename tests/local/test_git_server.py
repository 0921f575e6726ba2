"""The requests of Sweepbot and Kaniko to a git server."""

import asyncio
import os
import subprocess

import pytest


@pytest.fixture
def git(git_host, origin, tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", *(word.replace("ORIGIN", f"{git_host.url}/team/code.git") for word in words)]
        quiet = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=quiet)

    async def in_thread(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(run, *words)

    return in_thread


async def test_git_server_lists_branches_without_a_clone(git, origin):
    commit = origin.commit({"a.txt": "a"}, branch="lr-sweep")
    assert (
        await git("ls-remote", "ORIGIN", "refs/heads/lr-sweep")
    ).stdout == f"{commit}\trefs/heads/lr-sweep\n"


async def test_git_server_serves_a_commit_by_sha_without_files(git, origin):
    older = origin.commit({"a.txt": "older"})
    origin.commit({"a.txt": "newer"})
    await git("init", "-q", "there")
    fetched = await git("-C", "there", "fetch", "-q", "--depth=1", "--filter=blob:none", "ORIGIN", older)
    assert fetched.returncode == 0, fetched.stderr
    assert (await git("-C", "there", "rev-parse", "FETCH_HEAD")).stdout.strip() == older


async def test_git_server_accepts_compressed_requests(git, origin):
    """git gzips requests above 1024 bytes; many "have" lines make one."""
    for number in range(25):
        origin.commit({"a.txt": str(number)})
    await git("clone", "-q", "ORIGIN", "there")
    origin.commit({"a.txt": "more"})
    assert (await git("-C", "there", "pull", "-q")).returncode == 0
    assert (await git("-C", "there", "log", "--oneline")).stdout.count("\n") == 26


async def test_git_server_rejects_pushes(git, origin):
    origin.commit({"a.txt": "a"})
    await git("clone", "-q", "ORIGIN", "there")
    assert "403" in (await git("-C", "there", "push", "-q", "origin", "HEAD:refs/heads/mine")).stderr


async def test_git_server_unknown_repository_is_not_found(git, git_host):
    assert "not found" in (await git("ls-remote", f"{git_host.url}/team/nope.git")).stderr
