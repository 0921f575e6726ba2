"""Reading a repository over smart HTTP, as from GitHub."""

import asyncio
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bot.core.errors import UserError
from bot.platform.repos.git import Commit, Git, Tip
from bot.platform.repos.git_commands import GitUnavailableError, _failure
from bot.text.masking import Mask
from tests.bot.platform.repos.pushed_repo import Repo
from tests.cases import cases


async def test_branch_and_annotated_tag_are_resolved_to_their_commit(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"a.txt": "a"})
    repo.push("main:refs/heads/fix/loss")
    assert await git.resolve(url, "fix/loss") == Tip("refs/heads/fix/loss", commit)
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


async def test_branch_that_one_replica_lacks_is_resolved_by_the_next(
    repo: Repo, url: str, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.commit("Begin", {})
    repo.push("main:refs/heads/b44")
    run, late = git._run, [b""]

    async def lagging(*arguments: Any, **limits: Any) -> bytes:
        return late.pop() if late else await run(*arguments, **limits)

    monkeypatch.setattr(git, "_run", lagging)
    assert await git.resolve(url, "b44") == Tip("refs/heads/b44", commit)


async def test_unknown_branch_is_reported_with_similar_names(repo: Repo, url: str, git: Git) -> None:
    repo.commit("Begin", {})
    repo.push("main", "main:refs/heads/a/main", "main:refs/heads/fix-loss")
    with pytest.raises(
        UserError, match=r"branch=fix-los doesn't exist in .*digits\.git\. Did you mean fix-loss\?"
    ):
        await git.resolve(url, "fix-los")
    with pytest.raises(UserError, match=r"Commit hashes aren't supported; use a branch or tag\."):
        await git.resolve(url, "0123abc")


async def test_names_and_subjects_are_one_line_with_any_line_break(repo: Repo, url: str, git: Git) -> None:
    old = repo.commit("Begin", {})
    new = repo.commit("One\u2028two", {"a.txt": "a"})
    repo.push("main", "main:refs/heads/a\u2028b", "main:refs/heads/c\u0085d")
    assert sorted(await git.branches(url)) == ["a\u2028b", "c\u0085d", "main"]
    [(short, subject)] = (await git.between(url, old, new)).added.shown
    assert (short, subject) == (new[:8], "One\u2028two")
    token = "hf_" + "a" * 30  # the limit is amid it
    commit = repo.commit("Begin " * 49 + token + " Begin" * 15_000, {"a.txt": "a"})
    repo.push("main")
    subject = await git.subject(url, commit)
    assert (len(subject), "hf_" in subject) == (300, False)


async def test_commits_of_an_author_named_like_a_password_have_their_subject(
    repo: Repo, url: str, git: Git
) -> None:
    old = repo.commit("Begin", {})
    repo.commit("Refactor", {"a.txt": "a"})
    repo.git("commit", "--quiet", "--amend", "--no-edit", "--author=password= <ada@example.org>")
    new = repo.git("rev-parse", "HEAD")
    repo.push("main")
    assert await git.commits(url, old, new) == (old, [Commit(new, "password=", "Refactor")])


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
    lost = repo.git("commit-tree", "-m", "Lost", f"{base}^{{tree}}")
    with pytest.raises(UserError, match=rf"no longer has {lost[:8]}: a force-push removed it\.$"):
        await git.between(url, new, lost)


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


async def test_file_is_read_at_its_commit_and_missing_or_binary_ones_are_told(
    repo: Repo, url: str, git: Git
) -> None:
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
    old = repo.commit("Old space, password=hunter2", {"sweeps/lr.yaml": "lr: ä\n"})
    new = repo.commit("New space", {"sweeps/lr.yaml": "lr: 2\n"})
    repo.push("main")
    assert await git.read(url, new, "sweeps/lr.yaml") == "lr: 2\n"
    assert await git.read(url, old, "sweeps/lr.yaml") == "lr: ä\n"  # no branch ends there
    assert await git.subject(url, old) == "Old space, password=***"
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


async def test_repository_with_sha256_commits_is_a_user_error(repo: Repo, url: str, git: Git) -> None:
    shutil.rmtree(repo.bare)
    repo.git("init", "--quiet", "--bare", "--object-format=sha256", str(repo.bare), at=repo.work)
    tree = repo.git("hash-object", "-t", "tree", "-w", "/dev/null", at=repo.bare)
    commit = repo.git("commit-tree", "-m", "Begin", tree, at=repo.bare)
    repo.git("update-ref", "refs/heads/main", commit, at=repo.bare)
    with pytest.raises(UserError, match="SHA-256 commits"):
        await git.resolve(url, "main")


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


@cases(
    ("stderr", "kind"),
    [
        ("fatal: Authentication failed for 'https://x/y.git/'", UserError),
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", UserError),
        ("remote: Not Found\nfatal: repository 'https://x/y.git/' not found", UserError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 403", UserError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 451", UserError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 429", GitUnavailableError),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 503", GitUnavailableError),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", GitUnavailableError),
        ("fatal: early EOF\nfatal: fetch-pack: invalid index-pack output", GitUnavailableError),
        ("", GitUnavailableError),
    ],
)
def test_only_permanent_failures_are_user_errors(stderr: str, kind: type[Exception]) -> None:
    assert type(_failure("https://x/y.git", stderr)) is kind


def test_redirect_to_a_login_page_is_a_user_error_without_its_address() -> None:
    stderr = "\n".join(
        (
            "fatal: unable to update url base from redirection:",
            "  asked for: https://x/y.git/info/refs?service=git-upload-pack",
            "   redirect: https://login.example/signin?ticket=abc",
        )
    )
    found = _failure("https://x/y.git", stderr)
    assert type(found) is UserError
    assert str(found) == (
        "https://x/y.git: unable to update url base from redirection. Check that the repository exists and "
        "Sweepbot has read access."
    )


def test_reason_of_the_other_side_is_the_failures() -> None:
    stderr = (
        "fatal: detected dubious ownership in repository\nfatal: Could not read from remote repository.\n"
    )
    assert str(_failure("file:///x", stderr)) == "file:///x: detected dubious ownership in repository"


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


async def test_submodule_is_pinned_to_a_commit(repo: Repo, url: str, git: Git) -> None:
    first = repo.commit("Begin", {"a.txt": "a"})
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{first},lib")
    repo.git("commit", "--quiet", "-m", "Add it")
    commit = repo.git("rev-parse", "HEAD")
    repo.push("main")
    assert await git.submodule(url, commit, "lib") == first
    with pytest.raises(UserError, match=r"names a\.txt, which isn't a submodule"):
        await git.submodule(url, commit, "a.txt")


async def test_file_size_is_checked_before_reading(repo: Repo, url: str, git: Git) -> None:
    commit = repo.commit("Begin", {"uv.lock": b"\0" * 8_000_000, "a.txt": "a"})
    repo.push("main")
    assert await git.read(url, commit, "a.txt") == "a"
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"^uv.lock has 8,000,000 bytes; the limit is 1,048,576"):
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


@pytest.mark.timeout(30)
async def test_git_that_prints_on_and_on_is_killed(git: Git) -> None:
    """Each time: asyncio's pipe was full as it was killed in about one of ten, and its end never came."""
    for _ in range(40):
        with pytest.raises(UserError, match="git's output exceeds 1 MiB"):
            await git._run("url", "-c", "alias.on=!yes", "on", most=2**20)


async def test_git_has_a_memory_limit(git: Git) -> None:
    limit = await git._run("url", "-c", "alias.limit=!ulimit -v", "limit")
    assert int(limit) == 524_288
