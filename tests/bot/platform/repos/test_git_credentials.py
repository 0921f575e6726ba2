"""Private repositories, and which hosts and URLs get the credentials."""

from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.repos.git import Git
from bot.platform.repos.git_commands import logins
from tests.bot.platform.repos.pushed_repo import Repo

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
    git = Git(tmp_path / "cache", {url: ("bot", TOKEN)}, timeout=200)
    assert (await git.resolve(url, "main")).commit == commit
    assert await git.read(url, commit, "a.txt") == "a"
    kept = [file for file in git.cache.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()]
    assert kept == []


async def test_private_repository_without_credentials_is_a_user_error(
    private: Repo, url: str, git: Git, tmp_path: Path
) -> None:
    for one in (git, Git(tmp_path / "other", {url: ("bot", f"old-{TOKEN}")}, timeout=200)):
        with pytest.raises(UserError, match="Sweepbot has read access") as error:
            await one.resolve(url, "main")
        assert TOKEN not in str(error.value)


async def test_credentials_are_used_for_one_host(private: Repo, url: str, tmp_path: Path) -> None:
    private.commit("Begin", {})
    private.push("main")
    other = url.replace("127.0.0.1", "localhost")
    with pytest.raises(UserError):
        await Git(tmp_path / "cache", {url: ("bot", TOKEN)}, timeout=200).resolve(other, "main")


def test_credentials_are_read_from_the_environment_by_secret_name() -> None:
    digits = Repository(name="digits", url="https://x/y.git", secret="git-digits.lab")
    config = Config(repositories=(digits, Repository(name="open", url="https://x/z.git")))
    environment = {"GIT_USERNAME_GIT_DIGITS_LAB": "bot", "GIT_PASSWORD_GIT_DIGITS_LAB": TOKEN}
    assert logins(config, environment) == {"https://x/y.git": ("bot", TOKEN)}
    with pytest.raises(UserError, match=r"^GIT_PASSWORD_GIT_DIGITS_LAB isn't set \(from the Secret git-"):
        logins(config, {"GIT_USERNAME_GIT_DIGITS_LAB": "bot"})


async def test_credentials_can_be_used_for_one_more_url(repo: Repo, url: str, tmp_path: Path) -> None:
    repo.commit("Begin", {})
    repo.push("main")
    (repo.bare / "password").write_text(f"bot:{TOKEN}")
    git = Git(tmp_path / "cache", {"https://git.example/a": ("bot", TOKEN)}, timeout=200)
    with pytest.raises(UserError):
        await git.check_access(url)
    await git.with_login(url, like="https://git.example/a").check_access(url)
    with pytest.raises(UserError):
        await git.with_login(url, like="https://git.example/b").check_access(url)
