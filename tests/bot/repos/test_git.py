"""Reading a repository over smart HTTP, as from GitHub."""

import asyncio
import os
import subprocess
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from bot.config.policy import Config
from bot.config.repositories import Repository
from bot.core.errors import UserError
from bot.core.masking import Mask
from bot.repos.git import Git, GitUnavailableError, Tip, _failure, logins
from local import git_server

ME = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", "2026-11-21T10:00:00Z"))
}


class Repo:
    """A bare repository `acme/digits.git` on a git host, and the folder it is pushed from."""

    def __init__(self, folder: Path) -> None:
        self.work, self.bare = folder / "work", folder / "served" / "acme" / "digits.git"
        self.bare.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", str(self.bare), at=folder)
        self.git("init", "--quiet", "-b", "main", str(self.work), at=folder)

    def git(self, *arguments: str, at: Path | None = None) -> str:
        command = ["git", *arguments]
        environment = {"PATH": os.environ["PATH"]} | ME
        run = subprocess.run(command, cwd=at or self.work, env=environment, check=True, capture_output=True)
        return run.stdout.decode().strip()

    def commit(self, message: str, files: dict[str, str | bytes]) -> str:
        for path, content in files.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self, *refs: str) -> None:
        self.git("push", "--quiet", str(self.bare), *refs)


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
    return Git(tmp_path / "cache", timeout=20)


async def test_branch_is_resolved_to_its_commit(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"a.txt": "a"})
    repo.push("main:refs/heads/fix/loss")
    assert await git.resolve(url, "fix/loss") == Tip("refs/heads/fix/loss", commit)


async def test_annotated_tag_is_resolved_to_its_commit(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"a.txt": "a"})
    repo.git("tag", "-a", "-m", "First", "v1")
    repo.git("tag", "light")
    repo.push("main", "v1", "light")
    assert await git.resolve(url, "v1") == Tip("refs/tags/v1", commit)
    assert await git.resolve(url, "light") == Tip("refs/tags/light", commit)


async def test_branch_precedes_a_tag_of_the_same_name(repo: Repo, url: str, git: Git) -> None:
    repo.commit("Old", {})
    repo.git("tag", "release")
    new = repo.commit("New", {})
    repo.push("main:refs/heads/release", "refs/tags/release")
    assert await git.resolve(url, "release") == Tip("refs/heads/release", new)


async def test_unknown_branch_is_reported_with_similar_names(repo: Repo, url: str, git: Git) -> None:
    repo.commit("Begin", {})
    repo.push("main", "main:refs/heads/a/main", "main:refs/heads/fix-loss")
    with pytest.raises(
        UserError, match=r"branch=fix-los doesn't exist in .*digits\.git\. Did you mean fix-loss\?"
    ):
        await git.resolve(url, "fix-los")
    with pytest.raises(UserError, match=r"Commit hashes aren't supported; use a branch or tag\."):
        await git.resolve(url, "0123abc")


async def test_file_is_read_at_its_commit(repo: Repo, url: str, git: Git) -> None:
    old = repo.commit("Old space, password=hunter2", {"sweeps/lr.yaml": "lr: ä\n"})
    new = repo.commit("New space", {"sweeps/lr.yaml": "lr: 2\n"})
    repo.push("main")
    assert await git.read(url, new, "sweeps/lr.yaml") == "lr: 2\n"
    assert await git.read(url, old, "sweeps/lr.yaml") == "lr: ä\n"  # no branch ends there
    assert await git.subject(url, old) == "Old space, password=***"


async def test_between_lists_added_and_dropped_commits(repo: Repo, url: str, git: Git) -> None:
    base = repo.commit("Begin", {"a.txt": "a"})
    old = repo.commit("Drop <me>, password=hunter22", {"a.txt": "b"})
    repo.push("main")
    repo.git("reset", "--quiet", "--hard", base)
    new = [repo.commit(f"Add {number}", {"a.txt": str(number)}) for number in range(17)][-1]
    repo.push("+main", f"{old}:refs/heads/old")
    found = await git.between(url, old, new)
    assert (found.added.count, len(found.added.shown), found.added.shown[0][1]) == (17, 15, "Add 16")
    assert found.dropped.shown == ((old[:8], "Drop <me>, password=***"),)
    assert (await git.between(url, base, base)).added.count == 0


async def test_contains_is_true_until_the_branch_is_rewritten(repo: Repo, url: str, git: Git) -> None:
    first, seen = repo.commit("Begin", {"a.txt": "a"}), repo.commit("See", {"a.txt": "b"})
    repo.commit("Go on", {"a.txt": "c"})
    repo.git("tag", "-a", "-m", "First", "v1")
    repo.push("main", "v1")
    for name in ("main", "v1"):
        assert await git.contains(url, await git.resolve(url, name), seen)
    repo.git("reset", "--quiet", "--hard", first)
    repo.commit("Otherwise", {"a.txt": "d"})
    repo.push("+main")
    tip = await git.resolve(url, "main")
    assert await git.contains(url, tip, first)
    assert not await git.contains(url, tip, seen)


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
    assert commands == ["cat-file"] * 4, "a size and a content each"
    assert await git.names(url, commit, "b") == ["c.txt"]
    assert await git.read(url, commit, "b/d.txt") is None
    assert commands[4:] == ["ls-tree"] * 2


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


async def test_missing_file_is_none_and_its_folder_can_be_listed(repo: Repo, url: str, git: Git) -> None:
    files: dict[str, str | bytes] = {
        "sweeps/lr.yaml": "",
        "sweeps/depth.yaml": "",
        "sweeps/old/x.yaml": "",
        "*": "star",
    }
    commit = repo.commit("Begin", files)
    repo.push("main")
    assert await git.read(url, commit, "sweeps/lrr.yaml") is None
    assert await git.read(url, commit, "sweeps") is None
    assert await git.read(url, commit, "*.yaml") is None
    assert await git.names(url, commit, "sweeps") == ["depth.yaml", "lr.yaml"]
    assert await git.names(url, commit, "nowhere") == []


async def test_binary_file_is_rejected(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"sweeps/lr.yaml": b"\xff\xfe"})
    repo.push("main")
    with pytest.raises(UserError, match="isn't UTF-8"):
        await git.read(url, commit, "sweeps/lr.yaml")


async def test_concurrent_reads_do_not_disturb_each_other(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {f"{n}.txt": str(n) for n in range(8)})
    repo.push("main")
    texts = await asyncio.gather(*(git.read(url, commit, f"{n}.txt") for n in range(8)))
    assert texts == [str(n) for n in range(8)]


async def test_fetch_recovers_after_a_killed_fetch(repo: Repo, url: str, git: Git) -> None:
    first = repo.commit("Begin", {"a.txt": "a"})
    repo.push("main")
    await git.read(url, first, "a.txt")
    second = repo.commit("Go on", {"a.txt": "b"})
    repo.push("main")
    (cached,) = git.cache.glob("*.git")
    (cached / "shallow.lock").touch()
    with pytest.raises(GitUnavailableError, match=r"shallow\.lock"):
        await git.read(url, second, "a.txt")
    assert await git.read(url, second, "a.txt") == "b"


async def test_missing_repository_is_a_user_error(url: str, git: Git) -> None:
    with pytest.raises(UserError, match=r"not found\. Check that the repository exists"):
        await git.resolve(url.replace("digits", "digitz"), "main")


async def test_unreachable_host_is_retried(git: Git, unused_port: int) -> None:
    with pytest.raises(GitUnavailableError, match="unable to access"):
        await git.resolve(f"http://127.0.0.1:{unused_port}/acme/digits.git", "main")


async def test_host_without_response_times_out_and_git_is_stopped(tmp_path: Path) -> None:
    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(GitUnavailableError, match=r"didn't respond within 0\.3 s"):
        await Git(tmp_path / "cache", timeout=0.3).resolve(f"http://127.0.0.1:{port}/x.git", "main")
    silent.close()


@pytest.mark.parametrize("url", ["file:///etc", "ext::sh -c id", "ssh://host/x", "--upload-pack=id"])
async def test_other_protocols_are_rejected(git: Git, url: str) -> None:
    with pytest.raises((GitUnavailableError, UserError)):
        await git.resolve(url, "main")


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("fatal: Authentication failed for 'https://x/y.git/'", UserError),
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", UserError),
        ("remote: Not Found\nfatal: repository 'https://x/y.git/' not found", UserError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 403", UserError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 503", GitUnavailableError),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", GitUnavailableError),
        ("fatal: early EOF\nfatal: fetch-pack: invalid index-pack output", GitUnavailableError),
        ("", GitUnavailableError),
    ],
)
def test_only_permanent_failures_are_user_errors(stderr: str, kind: type[Exception]) -> None:
    assert type(_failure("https://x/y.git", stderr)) is kind


def test_failure_text_contains_no_passwords() -> None:
    stderr = Mask()("fatal: unable to access 'https://ada:secret@x/y.git/': oops")
    assert (
        str(_failure("https://x/y.git", stderr))
        == "https://x/y.git: unable to access 'https://***@x/y.git/': oops"
    )


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


TOKEN = "t0p-s3cr3t-token"


@pytest.fixture
def private(repo: Repo) -> Repo:
    (repo.bare / "password").write_text(f"bot:{TOKEN}")
    return repo


async def test_private_repository_is_read_with_credentials_passed_to_git_only(
    private: Repo, url: str, tmp_path: Path
) -> None:
    commit = private.commit("Begin", {"a.txt": "a"})
    private.push("main")
    git = Git(tmp_path / "cache", {url: ("bot", TOKEN)}, timeout=20)
    assert (await git.resolve(url, "main")).commit == commit
    assert await git.read(url, commit, "a.txt") == "a"
    kept = [file for file in git.cache.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()]
    assert kept == []


async def test_private_repository_without_credentials_is_a_user_error(
    private: Repo, url: str, git: Git, tmp_path: Path
) -> None:
    for one in (git, Git(tmp_path / "other", {url: ("bot", f"old-{TOKEN}")}, timeout=20)):
        with pytest.raises(UserError, match="Sweepbot has read access") as error:
            await one.resolve(url, "main")
        assert TOKEN not in str(error.value)


async def test_credentials_are_used_for_one_host(private: Repo, url: str, tmp_path: Path) -> None:
    private.commit("Begin", {})
    private.push("main")
    other = url.replace("127.0.0.1", "localhost")
    with pytest.raises(UserError):
        await Git(tmp_path / "cache", {url: ("bot", TOKEN)}, timeout=20).resolve(other, "main")


def test_credentials_are_read_from_the_environment_by_secret_name() -> None:
    digits = Repository(name="digits", url="https://x/y.git", secret="git-digits.lab")
    config = Config(repositories=(digits, Repository(name="open", url="https://x/z.git")))
    environment = {"GIT_USERNAME_GIT_DIGITS_LAB": "bot", "GIT_PASSWORD_GIT_DIGITS_LAB": TOKEN}
    assert logins(config, environment) == {"https://x/y.git": ("bot", TOKEN)}
    with pytest.raises(UserError, match=r"^GIT_PASSWORD_GIT_DIGITS_LAB isn't set \(from the Secret git-"):
        logins(config, {"GIT_USERNAME_GIT_DIGITS_LAB": "bot"})


async def test_submodule_is_pinned_to_a_commit(repo: Repo, url: str, git: Git) -> None:
    first = repo.commit("Begin", {"a.txt": "a"})
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{first},lib")
    repo.git("commit", "--quiet", "-m", "Add it")
    commit = repo.git("rev-parse", "HEAD")
    repo.push("main")
    assert await git.submodule(url, commit, "lib") == first
    with pytest.raises(UserError, match=r"names a\.txt, which isn't a submodule"):
        await git.submodule(url, commit, "a.txt")


async def test_credentials_can_be_used_for_one_more_url(repo: Repo, url: str, tmp_path: Path) -> None:
    repo.commit("Begin", {})
    repo.push("main")
    (repo.bare / "password").write_text(f"bot:{TOKEN}")
    git = Git(tmp_path / "cache", {"https://git.example/a": ("bot", TOKEN)}, timeout=20)
    with pytest.raises(UserError):
        await git.check_access(url)
    await git.with_login(url, like="https://git.example/a").check_access(url)
    with pytest.raises(UserError):
        await git.with_login(url, like="https://git.example/b").check_access(url)


async def test_file_size_is_checked_before_reading(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"uv.lock": b"\0" * 40_000_000, "a.txt": "a"})
    repo.push("main")
    assert await git.read(url, commit, "a.txt") == "a"
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"^uv.lock has 40,000,000 bytes; the limit is 1,048,576"):
            await git.read(url, commit, "uv.lock")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


async def test_endless_response_is_cut_off(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {f"folder/{n:0200}": "" for n in range(400)})
    repo.push("main")
    assert len(await git.names(url, commit, "folder")) == 400
    with pytest.raises(UserError, match="git's output exceeds 0 MiB"):
        await git._run(url, "-C", *git.cache.glob("*.git"), "ls-tree", "-r", commit, most=50_000)


async def test_commit_subject_is_one_line(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin " * 15_000, {"a.txt": "a"})
    repo.push("main")
    assert len(await git.subject(url, commit)) == 300


async def test_git_has_a_memory_limit(git: Git) -> None:
    limit = await git._run("url", "-c", "alias.limit=!ulimit -v", "limit")
    assert int(limit) == 524_288
