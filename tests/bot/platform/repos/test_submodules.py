"""Submodules: a repository's credentials are sent to no other host, however the file spells it."""

import pytest

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.repos.git import Tip
from bot.platform.repos.submodules import MAX_SUBMODULES, modules
from bot.sweep.launch.resolve import look_up
from tests.bot.factories import COMMIT
from tests.cases import cases

HOST = "https://git.example"
URL = f"{HOST}/acme/digits.git"
SPACE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters: {lr: {min: 0, max: 1}}
"""


def module(url, path="lib"):
    return f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n'


class Repositories:
    """Their `.gitmodules`, by URL; each submodule is pinned to the commit of its path."""

    def __init__(self, modules):
        self.modules, self.asked = modules, []

    def with_login(self, url, *, like):
        assert like == URL
        return self

    async def resolve(self, url, branch):
        return Tip("refs/heads/main", COMMIT)

    async def prefetch(self, url, commit, paths):
        pass

    async def read(self, url, commit, path, most=0):
        self.asked.append(url)
        return {"sweeps/lr.yaml": SPACE, "Dockerfile": "FROM x", ".gitmodules": self.modules.get(url)}.get(
            path
        )

    async def subject(self, url, commit):
        return "a change"

    async def submodule(self, url, commit, path):
        return path


async def checked(modules, *, private=True):
    secret = "git-digits" if private else None
    git, repository = Repositories(modules), Repository(name="digits", url=URL, secret=secret)
    known, request = Config(repositories=(repository,)), SweepRequest(branch="main", space="lr")
    await look_up(git, repository, request, known, sweep="s", owner="U", request_id="d")
    return set(git.asked)


@pytest.mark.parametrize(
    ("url", "there"),
    [
        (f"{HOST}/acme/lib.git", f"{HOST}/acme/lib.git"),
        ("../lib.git", f"{HOST}/acme/lib.git"),
        ("../../other/lib", f"{HOST}/other/lib"),
        ("./inside.git", f"{HOST}/acme/digits.git/inside.git"),
    ],
)
async def test_submodule_on_the_same_host_is_allowed_and_checked(url, there):
    assert there in await checked({URL: module(url)})


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/acme/lib.git",
        "http://git.example/acme/lib.git",
        "https://git.example:8443/acme/lib.git",
        "https://git.example.evil.org/lib.git",
        "https://git.example@evil.org/lib.git",
        "https://ada:pw@git.example/lib.git",
        "//evil.example/lib.git",
        "git@evil.example:lib.git",
        "ssh://git.example/lib.git",
        "lib.git",
        "file:///etc",
        "https://git.example/a/../../x",
    ],
)
async def test_submodule_on_another_host_is_rejected_before_the_build(url):
    with pytest.raises(UserError, match=r"isn't on https://git\.example\. The build would send the git cred"):
        await checked({URL: module(url)})


async def test_submodules_are_checked_once_up_to_their_limit():
    inner = f"{HOST}/acme/lib.git"
    with pytest.raises(UserError, match=r"names `https://evil\.example/x`, which isn't on"):
        await checked({URL: module("../lib.git"), inner: module("https://evil.example/x")})
    assert URL in await checked({URL: module("https://other.example/x")}, private=False)
    await checked({URL: module(URL), "x": ""})
    most = "".join(module(f"../lib-{n}.git", f"lib-{n}") for n in range(MAX_SUBMODULES))
    await checked({URL: most})
    many = most + module("../last.git", "last")
    with pytest.raises(UserError, match="has too many submodules; the limit is 30"):
        await checked({URL: many})
    with pytest.raises(UserError, match="has too many submodules; the limit is 30"):
        await checked({URL: module("../lib.git", "lib") * (MAX_SUBMODULES + 1)})
    text = '# ours\n[submodule "a"]\n\tpath = a\n\turl = ../a\n\tbranch = main\n\tignore = dirty\n'
    assert modules(text) == [("a", "../a")]


@cases(
    "text",
    [
        '[submodule "a"] url = https://evil.example/x\n',
        '[submodule "a"]\npath = a\nurl = ../a\nurl = https://evil.example/x\n',
        '[submodule "a"]\npath = a\nurl = "https://evil.example/x"\n',
        '[submodule "a"]\npath = a\nurl = ../a\\\nb\n',
        '[SubModule "a"]\npath = a\nurl = ../a\n',
        "url = ../a\n",
        '[submodule "a"]\npath = a\n',
        '[include]\npath = x\n[submodule "a"]\npath = a\nurl = ../a\n',
    ],
)
def test_ambiguous_gitmodules_is_rejected(text):
    with pytest.raises(UserError, match=r"`\.gitmodules`"):
        modules(text)
