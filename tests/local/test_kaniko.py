"""Builds from a commit to an image that a node could pull, and every way they fail."""

import asyncio

import aiohttp
import pytest

from local import image_pull as nodes

ANY = {"Accept": nodes.ACCEPT}
FROM_SCRATCH = "FROM scratch\nCOPY . /app\n"
TRAINING = """\
FROM python:3.11-slim
ENV LEVEL=3 \\
    # a comment between continuations
    GREETING="hello you"
WORKDIR /app
COPY requirements.txt .
RUN pip install -q -r requirements.txt
COPY train.py .
CMD ["python", "train.py"]
"""


async def test_build_of_a_commit_is_an_image(kaniko, origin, images, tmp_path):
    commit = origin.commit({"Dockerfile": TRAINING, "requirements.txt": "pip\n", "train.py": "print(1)\n"})
    ended = await kaniko(commit, "--cache=true", "--snapshot-mode=redo")
    assert ended.code == 0, ended.output
    image = await asyncio.to_thread(
        nodes.pull, f"{images.address}/code:1", tmp_path / "rootfs", images.address
    )
    assert image.config["Cmd"] == ["python", "train.py"]
    assert image.config["WorkingDir"] == "/app"
    assert image.config["Env"][1:] == ["LEVEL=3", "GREETING=hello you"]
    assert (tmp_path / "rootfs/app/train.py").read_text() == "print(1)\n"
    assert image.digest == (tmp_path / "digest").read_text()
    assert f"Pushed {images.address}/code@{image.digest}" in ended.output


async def test_build_runs_commands_and_adds_their_files_as_a_layer(kaniko, origin, images, tmp_path):
    run = "RUN echo $LEVEL > made.txt && mkdir -p /opt/tool && touch /opt/tool/x"
    commit = origin.commit({"Dockerfile": f"FROM python:3.11-slim\nENV LEVEL=3\nWORKDIR /app\n{run}\n"})
    assert (await kaniko(commit)).code == 0
    image = await asyncio.to_thread(
        nodes.pull, f"{images.address}/code:1", tmp_path / "rootfs", images.address
    )
    assert (tmp_path / "rootfs/app/made.txt").read_text() == "3\n"
    assert (tmp_path / "rootfs/opt/tool/x").exists()
    assert len(image.layers) == 1


async def test_build_inherits_layers_and_settings_of_its_base(kaniko, origin, images, tmp_path):
    base = origin.commit({"Dockerfile": 'FROM scratch\nENV A=1\nCOPY a.txt /app/\nCMD ["x"]\n', "a.txt": "a"})
    assert (await kaniko(base, to="base:1")).code == 0
    child = f'FROM {images.address}/base:1\nENV B=$A$A\nENTRYPOINT ["y"]\nCOPY b.txt /app/\n'
    commit = origin.commit({"Dockerfile": child, "b.txt": "b"})
    assert (await kaniko(commit)).code == 0
    image = await asyncio.to_thread(
        nodes.pull, f"{images.address}/code:1", tmp_path / "rootfs", images.address
    )
    assert sorted(path.name for path in (tmp_path / "rootfs/app").iterdir()) == ["a.txt", "b.txt"]
    assert image.config == {"Env": ["A=1", "B=11"], "Entrypoint": ["y"]}


async def test_build_of_code_is_reproducible(kaniko, origin, tmp_path):
    ignore = {".dockerignore": ".git\n**/*.log\ndocs/*\n!docs/keep.md\n"}
    files = {
        "a/train.py": "1",
        "a/b.log": "x",
        "docs/drop.md": "x",
        "docs/keep.md": "x",
        "Dockerfile": FROM_SCRATCH,
    }
    digests = set()
    for text in ("one", "two"):
        commit = origin.commit(files | ignore | {"docs/drop.md": text})
        assert (await kaniko(commit, "--reproducible")).code == 0
        digests.add((tmp_path / "digest").read_text())
    assert len(digests) == 1


FAILURES = {
    "a failing RUN": (
        "FROM python:3.11-slim\nRUN exit 42\n",
        42,
        "failed to execute command: waiting for process to exit: exit status 42",
    ),
    "an unknown instruction": (
        "FROM scratch\n\nFOO bar\n",
        1,
        "parsing dockerfile: dockerfile parse error on line 3: unknown instruction: FOO",
    ),
    "an instruction of the real one only": (
        "FROM scratch\nLABEL a=b\n",
        1,
        "parsing dockerfile: dockerfile parse error on line 2: a local build has no LABEL a=b",
    ),
    "an unknown base": (
        "FROM python:9.9\n",
        1,
        "v2/python/manifests/9.9: MANIFEST_UNKNOWN: manifest unknown; unknown tag=9.9",
    ),
    "a file that is not there": (
        "FROM scratch\nCOPY nope.txt /\n",
        1,
        "lstat /kaniko/buildcontext/nope.txt: no such file or directory",
    ),
    "an empty file": ("\n", 1, "error building image: parsing dockerfile: file with no instructions"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_build_that_fails_has_kanikos_error(case, kaniko, origin, images):
    text, code, message = FAILURES[case]
    ended = await kaniko(origin.commit({"Dockerfile": text}))
    assert ended.code == code
    assert ended.output.splitlines()[-1].startswith("error building image: ")
    assert ended.output.endswith(f"{message}\n")
    async with aiohttp.request("GET", f"http://{images.address}/v2/code/manifests/1", headers=ANY) as answer:
        assert answer.status == 404


NO_BRANCH = 'Error: error resolving source context: couldn\'t find remote ref "refs/heads/nope"'


@pytest.mark.parametrize(
    ("branch", "commit", "message"),
    [
        ("nope", None, NO_BRANCH),
        ("main", "1" * 40, "Error: error resolving source context: object not found"),
    ],
)
async def test_build_of_a_missing_commit_fails(branch, commit, message, kaniko, origin):
    there = origin.commit({"Dockerfile": FROM_SCRATCH})
    ended = await kaniko(commit or there, branch=branch)
    error, *usage = ended.output.splitlines()
    assert (ended.code, error) == (1, message)
    assert (len(usage), usage[0]) == (82, "Usage:"), "as long as the real one's"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--verbose", "Error: unknown flag: --verbose"),
        ("build", 'Error: unknown command "build" for "executor"'),
        ("--push-retry", "Error: flag needs an argument: --push-retry"),
        ("--target=x", "Error: unknown flag: --target"),
        ("--image-format=oci", "Error: a local build makes docker images only"),
        ("--dockerfile=Containerfile", "Error: error resolving dockerfile path: please provide a valid path"),
        ("--git=depth=1", "Error: error resolving source context: a local build has no --git=depth=1"),
    ],
)
async def test_build_rejects_unsupported_flags(flag, message, kaniko, origin):
    ended = await kaniko(origin.commit({"Dockerfile": FROM_SCRATCH}), flag)
    assert ended.code == 1
    assert ended.output.startswith(message)


async def test_build_needs_a_flag_for_a_registry_without_tls(kaniko, origin, images):
    ended = await kaniko(origin.commit({"Dockerfile": FROM_SCRATCH}), "--insecure-registry=", to="x:1")
    assert ended.code == 0, "named once is enough"
    other = f"--destination=localhost:{images.address.split(':')[1]}/x:1"
    ended = await kaniko(origin.commit({}), other)
    assert ended.code == 1
    assert "error checking push permissions" in ended.output
    assert "http: server gave HTTP response to HTTPS client" in ended.output


async def test_build_uses_a_dockerfile_outside_the_context_with_its_ignore_file(
    kaniko, origin, images, tmp_path
):
    made = tmp_path / "gen" / "Dockerfile"
    made.parent.mkdir()
    made.write_text(FROM_SCRATCH)
    made.with_name("Dockerfile.dockerignore").write_text(".git\nsecret.txt\n")
    commit = origin.commit({"train.py": "", "secret.txt": "s", ".dockerignore": "train.py"})
    ended = await kaniko(commit, f"--dockerfile={made}")
    assert ended.code == 0, ended.output
    await asyncio.to_thread(nodes.pull, f"{images.address}/code:1", tmp_path / "rootfs", images.address)
    assert sorted(path.name for path in (tmp_path / "rootfs/app").iterdir()) == [
        ".dockerignore",
        "train.py",
    ]


async def test_build_of_a_private_repository_needs_credentials_in_the_environment(
    kaniko, origin, tmp_path, monkeypatch
):
    commit = origin.commit({"Dockerfile": FROM_SCRATCH})
    (origin.bare / "password").write_text("bot:secret")
    ended = await kaniko(commit)
    assert ended.output.startswith("Error: error resolving source context: authentication required")
    monkeypatch.setenv("GIT_USERNAME", "bot")
    monkeypatch.setenv("GIT_PASSWORD", "secret")
    assert (await kaniko(commit)).code == 0


async def test_build_clones_submodules_if_requested(kaniko, origin, git_host, images, tmp_path):
    library = origin.bare.parent / "library.git"
    origin.git("clone", "-q", "--bare", str(origin.bare), str(library))
    origin.commit({"Dockerfile": FROM_SCRATCH, "own.txt": ""})
    origin.git("push", "-q", str(library), "main")
    add = ("submodule", "add", "-q", f"{git_host.url}/team/library.git", "lib")
    await asyncio.to_thread(origin.git, *add)
    commit = origin.commit({})
    for flags, there in (((), False), (("--git=recurse-submodules=true",), True)):
        assert (await kaniko(commit, *flags)).code == 0
        place = tmp_path / f"rootfs{there}"
        await asyncio.to_thread(nodes.pull, f"{images.address}/code:1", place, images.address)
        assert (place / "app/lib/own.txt").exists() == there


async def test_build_checks_push_permission_first(kaniko, origin, tmp_path):
    commit = origin.commit({"Dockerfile": FROM_SCRATCH})
    assert (await kaniko(commit)).code == 0
    (tmp_path / "registry/repositories/code/read-only").touch()
    ended = await kaniko(commit)
    assert ended.code == 1
    assert ended.output.startswith("error checking push permissions: checking push permission for ")


async def test_build_of_a_folder_needs_no_git(kaniko, origin, images, tmp_path):
    made = tmp_path / "gen" / "Dockerfile"
    made.parent.mkdir()
    made.write_text("FROM python:3.11-slim\nRUN mkdir -p /opt/tool && echo made > /opt/tool/made.txt\n")
    ended = await kaniko("0" * 40, f"--context={made.parent}", f"--dockerfile={made}")
    assert ended.code == 0, ended.output
    await asyncio.to_thread(nodes.pull, f"{images.address}/code:1", tmp_path / "rootfs", images.address)
    assert (tmp_path / "rootfs/opt/tool/made.txt").read_text() == "made\n"
