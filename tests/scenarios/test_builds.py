"""Builds as the person in Slack lives them: each way to make an image, each way it fails."""

import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from local.world import EXAMPLES, NAMESPACE, commit, publish, world
from tests.scenarios.local_world import SPACE, TRAINING, Instance, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKEN = "planted-t0ken-9c1e"
TINY = SPACE.format(flags="", parallel=1, trials=2)
BASE = "FROM python:3.11-slim\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("builds")
    async with world(folder, mlflow_url) as here:
        made = Instance(here)
        program = TRAINING.replace('os.environ["HOLD"]', repr(str(made.hold)))
        made.commit("Train in a blink", {"tiny.py": program, "sweeps/tiny.yaml": TINY})
        for name in ("private", "locked"):
            publish(EXAMPLES / "requirements", folder / "work" / name, folder / "git" / f"{name}.git")
            (folder / "git" / f"{name}.git" / "password").write_text(f"bot:{TOKEN}")
            _secret(here.store, f"git-{name}", TOKEN if name == "private" else "of-yesterday")
            here.env |= {
                f"GIT_{k}_GIT_{name.upper()}": v for k, v in (("USERNAME", "bot"), ("PASSWORD", TOKEN))
            }
        _allow(Path(here.env["SWEEPBOT_CONFIG"]), here.env["IMAGE_REGISTRY"])
        await here.start_bot("all")
        yield made


def _secret(store, name: str, password: str) -> None:
    data = {
        k: base64.b64encode(v.encode()).decode() for k, v in (("username", "bot"), ("password", password))
    }
    meta = {"name": name, "namespace": NAMESPACE}
    store.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def _allow(file: Path, registry: str) -> None:
    """Two repositories with a password, and images that need no build."""
    text = file.read_text()
    url = re.search(r"http://[^/]+", text)[0]
    known = "".join(f"  {x}: {{url: {url}/{x}.git, secret: git-{x}}}\n" for x in ("private", "locked"))
    file.write_text(
        text.replace("repositories:\n", f"repositories:\n{known}") + f"images: [{registry}/sweepbot/]\n"
    )


def change(instance: Instance, repository: str, files: dict[str, str], message: str = "Change") -> str:
    for name, text in files.items():
        path = instance.here.git / repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return commit(instance.here.git / repository, message)


@pytest.mark.parametrize("repository", ["uv", "requirements"])
async def test_repository_without_a_dockerfile_runs_and_rebuilds_code_only(instance, repository):
    ask = f"repo={repository} branch=main space=lr trials=1"
    first = await instance.sweep(ask)
    await first.shows("Image: dependencies built in", "code built in")
    await first.posts("Finished:", "1 trial done")
    again = await instance.sweep(ask)
    await again.shows("Image reused")
    made = change(instance, repository, {"note.txt": "a line"})
    third = await instance.sweep(ask)
    await third.shows("Image: dependencies reused, code built in")
    assert len(instance.builds(made)) == 1
    await third.posts("Finished:")


async def test_dockerfile_with_code_last_is_split_and_prebuilt_image_used_unchanged(instance):
    first = await instance.sweep("repo=digits branch=main space=tiny trials=1")
    await first.shows("Image: dependencies built in", "code built in")
    await first.posts("Finished:")
    made = instance.commit("Another line of code")
    again = await instance.sweep("repo=digits branch=main space=tiny trials=1")
    await again.shows("Image: dependencies reused, code built in")
    assert len(instance.builds(made)) == 1
    (pod,) = [p for p in first.objects("Pod") if "katib.kubeflow.org/trial" in p["metadata"]["labels"]]
    image = next(c["image"] for c in pod["spec"]["containers"] if "@sha256" in c["image"])
    ready = await instance.sweep(f"repo=digits branch=main space=tiny trials=1 image={image}")
    await ready.shows("✓ Prebuilt image")
    await ready.posts("Finished:")


async def test_image_that_is_not_allowed_opens_the_form_with_the_reason(instance):
    text = "repo=digits branch=main space=tiny trials=1 image=python:3.11"
    assert await instance.types(text) == ""
    reason = str(instance.slack.modals("ada")[-1]["blocks"][0])
    assert "image=python:3.11 isn't allowed (resolved to " in reason


async def test_outdated_lockfile_is_reported_ephemerally(instance):
    project = (instance.here.git / "uv" / "pyproject.toml").read_text()
    change(
        instance, "uv", {"pyproject.toml": project.replace("dependencies = [", 'dependencies = ["scipy", ')}
    )
    reply = await instance.answer("repo=uv branch=main space=lr")
    assert "`uv.lock` of uv is out of date: it lacks `scipy` of `pyproject.toml`." in reply


async def test_project_with_commands_is_installed_in_one_job_with_the_reason(instance):
    """`why`, a command of the project itself, trains."""
    project = (
        '[project]\nname = "why"\nversion = "1"\ndependencies = ["tensorboardX==2.6.5", "numpy==2.4.6"]\n'
    )
    scripts = '[project.scripts]\nwhy = "why:main"\n[tool.setuptools]\npy-modules = ["why"]\n'
    body = TRAINING.replace('os.environ["HOLD"]', repr("no"))
    module = "def main():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())
    space = TINY.replace("python tiny.py", "python -c 'import why; why.main()'")
    files = {"pyproject.toml": project + scripts, "why.py": module, "sweeps/why.yaml": space}
    for old in ("uv.lock", "train.py"):
        (instance.here.git / "uv" / old).unlink(missing_ok=True)
    change(instance, "uv", files)
    sweep = await instance.sweep("repo=uv branch=main space=why trials=1")
    await sweep.shows("installed in one Job: `pyproject.toml` has commands ([project.scripts])")
    await sweep.posts("Finished:")


FAILURES = {  # every other cause is in a log of tests/bot/sweep/builds/test_failures.py
    "exit": (
        f"{BASE}RUN echo half done && exit 7\n",
        "`RUN echo half done",
        "failed with exit code 7",
        "half done",
    ),
    "memory": (f"{BASE}RUN kill -9 $PPID\n", "Out of memory"),
}


@pytest.mark.parametrize("why", FAILURES)
async def test_failed_build_shows_reason_fix_and_whole_log(instance, why):
    dockerfile, *words = FAILURES[why]
    instance.commit(f"Break it: {why}", {"Dockerfile": dockerfile}, branch=f"broken-{why}")
    sweep = await instance.sweep(f"repo=digits branch=broken-{why} space=tiny trials=1")
    await sweep.posts(":x: Image build failed for", *words)
    await sweep.shows("Image build failed")
    (file,) = [f for m in instance.slack.messages("sweeps", sweep.parent()["ts"]) for f in m.get("files", [])]
    log = instance.slack.workspace.files[file["id"]]["content"]
    assert b"error building" in log or why == "memory"
    assert b"\x1b" not in log
    assert sweep.objects("Experiment") == []


async def test_missing_package_is_named(instance):
    change(instance, "requirements", {"requirements.txt": "sweepbot-has-no-such-package\n"})
    sweep = await instance.sweep("repo=requirements branch=main space=lr")
    await sweep.posts("Image build failed", "No matching package: sweepbot-has-no-such-package")


async def test_missing_build_files_are_reported_ephemerally(instance):
    (instance.here.git / "requirements" / "requirements.txt").unlink()
    change(instance, "requirements", {"constraints.md": ""})
    reply = await instance.answer("repo=requirements branch=main space=lr")
    assert "requirements can't be built: no Dockerfile" in reply


async def test_registry_that_rejects_pushes_is_reported(instance):
    held = instance.here.folder / "blobs" / "repositories" / "sweepbot+digits" / "read-only"
    held.parent.mkdir(parents=True, exist_ok=True)
    held.touch()
    instance.commit("Change", branch="refused")
    sweep = await instance.sweep("repo=digits branch=refused space=tiny trials=1")
    await sweep.posts("Image build failed", "The registry rejected the push.")
    held.unlink()


async def test_rejected_git_password_is_reported(instance):
    sweep = await instance.sweep("repo=locked branch=main space=lr")
    await sweep.posts("Image build failed", "The git host requires credentials.")
    assert "--cache-ttl" not in str(instance.slack.messages("sweeps", sweep.parent()["ts"])), (
        "no list of flags"
    )


async def test_private_repository_runs_and_its_token_is_only_in_its_secret(instance):
    sweep = await instance.sweep("repo=private branch=main space=lr trials=1")
    await sweep.posts("Finished:")
    files = [f for f in instance.here.folder.rglob("*") if f.is_file() and f.name != "password"]
    leaks = [f for f in files if TOKEN.encode() in f.read_bytes()]
    assert leaks == [], "in images, logs, clones and configuration"
    kinds = ("ConfigMap", "Job", "Pod", "Event", "Experiment", "Trial")
    assert not any(TOKEN in str(instance.here.store.list(kind)) for kind in kinds)
    assert TOKEN not in str(instance.slack.workspace.channels)
    assert await until(lambda: not instance.pods_alive(), "no pod is left")
