"""What is read of a repository before anything is built."""

import pytest

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.repos.git import Tip
from bot.sweep.launch.plan import plan
from bot.sweep.launch.resolve import look_up
from tests.bot.factories import COMMIT, SETTINGS

SPACE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters: {lr: {min: 0.1, max: 1}}
"""


class Files:
    """A git with one commit, and names of others `before` it."""

    def __init__(self, files, before=()):
        self.before = before
        self.files = {"sweeps/lr.yaml": SPACE, **files}

    async def resolve(self, url, branch):
        return Tip("refs/heads/main", COMMIT)

    async def prefetch(self, url, commit, paths):
        pass

    async def read(self, url, commit, path, most=0):
        return self.files.get(path)

    async def names(self, url, commit, folder):
        return sorted(path for path in self.files if "/" not in path)

    async def contains(self, url, tip, commit):
        return commit in self.before

    async def subject(self, url, commit):
        return "a change"


async def found(files, **config):
    repository = Repository(name="digits", url="https://git.example/digits.git", **config)
    known = Config(repositories=(repository,), images=("docker.io/pytorch/",))
    request = SweepRequest(branch="main", space="lr")
    order = await look_up(Files(files), repository, request, known, sweep="s", owner="U", request_id="d")
    return order.source.files


@pytest.mark.parametrize(
    ("line", "installed", "algorithm"),
    [
        ("", False, "random"),
        ("", True, "sweepbot"),
        ("algorithm: auto", False, "random"),
        ("algorithm: auto", True, "sweepbot"),
        ("algorithm: tpe", True, "tpe"),
        ("algorithm: random", True, "random"),
    ],
)
async def test_resolve_auto_is_the_search_service_if_it_is_installed(line, installed, algorithm):
    files = Files({"sweeps/lr.yaml": f"{SPACE}{line}\n", "Dockerfile": "FROM x"})
    repository = Repository(name="digits", url="https://git.example/digits.git")
    known = Config(repositories=(repository,), search_service=installed)
    request = SweepRequest(branch="main", space="lr")
    order = await look_up(files, repository, request, known, sweep="s", owner="U", request_id="d")
    assert plan(order, SETTINGS).experiment["spec"]["algorithm"] == {"algorithmName": algorithm}


async def test_resolve_prefers_a_dockerfile_and_reads_what_it_copies():
    files = {"Dockerfile": "FROM x", "uv.lock": "", ".gitmodules": "[submodule]"}
    assert (await found(files)).keys() == {"Dockerfile", ".gitmodules"}
    text = "FROM x\nCOPY a.txt lib /\nCOPY . /app\n"
    files = {"Dockerfile": text, "a.txt": "a", "b.txt": "b", ".dockerignore": "c"}
    assert (await found(files)).keys() == {"Dockerfile", ".dockerignore", "a.txt"}
    with pytest.raises(UserError, match=r"digits has no `docker/train`"):
        await found({"Dockerfile": "FROM x"}, dockerfile="docker/train")


async def test_resolve_reads_referenced_requirements_once():
    files = {"requirements.txt": "-r a.txt\n-c c.txt\n", "a.txt": "-c c.txt\n", "c.txt": "", "other.txt": ""}
    assert list(await found(files)) == ["requirements.txt", "a.txt", "c.txt"]
    files = {"env/train.pip": "-c pins.lock\n", "env/pins.lock": "", "setup.cfg": "[metadata]"}
    there = await found(files, requirements="env/train.pip")
    assert list(there) == ["setup.cfg", "env/train.pip", "env/pins.lock"]
    with pytest.raises(UserError, match=r"digits has no `base\.txt`, which its requirements include"):
        await found({"requirements.txt": "-r base.txt\n"})
    assert "requirements-train.txt" in await found({"requirements-train.txt": ""})
    files = {"requirements-a.txt": "", "requirements-b.txt": ""}
    with pytest.raises(
        UserError, match=r"digits has `requirements-a\.txt` and `requirements-b\.txt`, but no"
    ):
        await found(files)
    assert "requirements-b.txt" in await found(files, requirements="requirements-b.txt")
    files = {f"r{n}.txt": f"-r r{n + 1}.txt\n" for n in range(29)} | {"r29.txt": ""}
    assert len(await found(files | {"requirements.txt": "-r r0.txt\n"})) == 31
    files |= {"r29.txt": "-r r30.txt\n", "r30.txt": ""}
    with pytest.raises(UserError, match=r"`requirements\.txt` in digits can include at most 30 files"):
        await found(files | {"requirements.txt": "-r r0.txt\n"})


async def test_resolve_of_a_prebuilt_image_reads_no_build_files_if_it_is_allowed():
    assert await found({"sweeps/lr.yaml": f"{SPACE}image: pytorch/pytorch:2.7\n", "uv.lock": ""}) == {}
    with pytest.raises(UserError, match=r"image: evil/pytorch isn't allowed \(resolved to docker\.io/evil/"):
        await found({"sweeps/lr.yaml": f"{SPACE}image: evil/pytorch\n"})


async def test_resolve_keeps_the_previewed_commit_while_the_branch_has_it():
    seen, known = "5ee2" * 10, Config(repositories=(Repository(name="d", url="https://git.example/d.git"),))
    request = SweepRequest(branch="main", space="lr", commit=seen)

    async def source(git):
        who = {"sweep": "s", "owner": "U", "request_id": "d"}
        return (await look_up(git, known.repositories[0], request, known, **who)).source

    files = {"Dockerfile": "FROM x"}
    found = await source(Files(files, before=[seen]))
    assert (found.ref, found.commit) == ("refs/heads/main", seen)
    with pytest.raises(
        UserError, match="branch=main was force-pushed after the preview and no longer contains 5ee25ee2"
    ):
        await source(Files(files))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            "{metric: loss, goal: minimize}",
            "[{metric: loss, goal: minimize}, {metric: ms, goal: minimize}]",
            "a list of objectives",
        ),
        ("lr: {", "opt: [a, b], lr: {if: opt=a, ", "`if:`"),
    ],
)
async def test_resolve_names_what_needs_the_search_service(old, new, what):
    assert old in SPACE
    files = Files({"sweeps/lr.yaml": SPACE.replace(old, new), "Dockerfile": "FROM x"})
    repository = Repository(name="digits", url="https://git.example/digits.git")
    request = SweepRequest(branch="main", space="lr")
    keys = {"sweep": "s", "owner": "U", "request_id": "d"}
    with pytest.raises(UserError) as refused:
        await look_up(files, repository, request, Config(repositories=(repository,)), **keys)
    assert str(refused.value) == (
        f"{what} needs Sweepbot's search service; this sweep's algorithm is random. Remove {what}, or leave "
        "out the algorithm."
    )
    installed = Config(repositories=(repository,), search_service=True)
    await look_up(files, repository, request, installed, **keys)
