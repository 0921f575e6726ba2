"""The image's files, started as the rendered manifests say, finish a sweep.

Only URLs and paths are this machine's: image and volumes are folders, a service is a port. Where possible,
the processes run as the image's user, who can write to the volumes only.
"""

import asyncio
import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from redis.asyncio import Redis

from bot import __version__
from bot.operate.setup.answers import Answers
from bot.operate.setup.files import Base, Secrets, files
from bot.platform.config.policy import parse_config, read_config
from local.kubernetes.apiserver.api import TOKEN as ADMIN
from local.kubernetes.apiserver.kinds import KINDS, Object
from local.processes import Processes
from local.world import TOKEN as WORKER
from local.world import World, commit, world
from tests.deploy.kustomize import DEPLOY, apply, of, one, render, secret, variables
from tests.free_port import free_port

pytestmark = pytest.mark.slow
ROOT = DEPLOY.parent
# Root's own Python can be unreadable for other users.
PYTHON = shutil.which("python3.11", path=os.defpath)
AS_USER = os.getuid() == 0 and PYTHON and shutil.which("setpriv")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
QUICK = """\
command: python train.py --epochs=1
objective: {metric: val_loss, goal: minimize}
algorithm: random
trials: {max: 2, parallel: 2}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
"""
PROGRAMS = ("bot.serve_process", "bot.work_process", "bot.offline_commands", "bot.sweep.charts.picture")
DOCKER = ".dockerconfigjson"
LOGINS = ("sweepbot/registry", "sweeps/registry-push", "sweeps/registry-pull")  # docs/install.md, step 8


@dataclass(frozen=True)
class Image:
    """A folder in the place of "/": what the Dockerfile copies and installs."""

    root: Path

    def command(self, *arguments: str, environment: dict[str, str]) -> list[str]:
        """The entrypoint with these arguments: its user, its variables and the given ones, nothing else."""
        user, group = instruction("USER").split(":")
        become = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"] if AS_USER else []
        own = dict(word.split("=", 1) for word in instruction("ENV").split())
        own["PATH"] = own["PATH"].replace("/opt", f"{self.root}/opt").replace("$PATH", os.defpath)
        words = [f"{name}={value}" for name, value in (own | environment).items()]
        place = f"--chdir={self.root}{instruction('WORKDIR')}"
        return [*become, "env", "-i", place, *words, *json.loads(instruction("ENTRYPOINT")), *arguments]


def instruction(word: str) -> str:
    """The last of its kind."""
    found: list[str] = re.findall(rf"^{word} (.*)", DOCKERFILE, re.MULTILINE)
    return found[-1]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    root = Path(tempfile.mkdtemp(prefix="sweepbot-image-"))
    root.chmod(0o755)
    venv, uv = root / "opt/venv", [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", PYTHON or sys.executable, str(venv)], check=True)
    lock = ["--require-hashes", "--link-mode=copy", str(ROOT / "requirements/run.txt")]
    subprocess.run([*uv, "pip", "sync", "-q", "--python", str(venv / "bin/python"), *lock], check=True)
    for folder in re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE):
        shutil.copytree(ROOT / folder, root / "app" / folder)
    # The image's files are compiled. Here, the first import compiles what the processes use: they can't.
    subprocess.run([venv / "bin/python", "-c", f"import {', '.join(PROGRAMS)}"], cwd=root / "app", check=True)
    yield Image(root)
    shutil.rmtree(root)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Copy the files to where another user can read them."""
    made = Path(tempfile.mkdtemp(prefix="sweepbot-deployed-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@dataclass
class Installation:
    """A user's own overlay beside those of deploy/, rendered and applied to a world's cluster."""

    here: World
    image: Image
    objects: list[Object]
    planted: set[str]
    login: bytes  # to the registry

    @classmethod
    async def make(cls, overlay: str, here: World, image: Image) -> "Installation":
        own = {
            name: f"planted-{secrets.token_hex(8)}" for name in ("REDIS_PASSWORD", "MLFLOW_TRACKING_PASSWORD")
        }
        own |= {"SLACK_BOT_TOKEN": here.slack.bot_token, "SLACK_APP_TOKEN": here.slack.app_token}
        own |= {"SLACK_SIGNING_SECRET": secrets.token_hex(16)}
        async with Redis.from_url(here.env["REDIS_URL"]) as redis:
            await redis.config_set("requirepass", own["REDIS_PASSWORD"])
        filled = {**secret(), "stringData": {**own, "MLFLOW_TRACKING_USERNAME": "sweepbot"}}
        password = f"planted-{secrets.token_hex(8)}"
        logins = [registry_login(here, password, *place.split("/")) for place in LOGINS]
        objects = [*render(mine(overlay, here)), filled]
        await apply([*objects, *logins], here.api.url, ADMIN)
        planted = {*own.values(), WORKER, password}
        return cls(here, image, objects, planted, base64.b64decode(logins[0]["data"][DOCKER]))

    async def start(self) -> None:
        """Start each replica of each Deployment; return once all are ready."""
        probes = []
        for deployment in of(self.objects, "Deployment"):
            spec = deployment["spec"]["template"]["spec"]
            for number in range(deployment["spec"].get("replicas", 1)):
                name = f"{deployment['metadata']['name']}-{number}"
                environment = self.environment(spec, self.here.folder / name)
                command = self.image.command(*spec["containers"][0]["args"], environment=environment)
                await self.here.processes.start(name, *command)
                path = spec["containers"][0]["readinessProbe"]["httpGet"]["path"]
                probes.append(f"http://127.0.0.1:{environment['HTTP_PORT']}{path}")
        await asyncio.gather(*(ready(probe, self.here.processes) for probe in probes))

    def environment(self, spec: Object, folder: Path) -> dict[str, str]:
        """The container's own, with this machine's places for its volumes and for whom it calls."""
        places = {"/etc/sweepbot": folder / "etc", "/var/cache/sweepbot": folder / "cache"}
        places["/var/lib/sweepbot"] = folder / "unconfirmed"
        for place in places.values():
            place.mkdir(parents=True)
            place.chmod(0o777)
        (folder / "registry.json").write_bytes(self.login)
        [config] = [each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each]
        for name, text in one(self.objects, "ConfigMap", config)["data"].items():
            (folder / "etc" / name).write_text(text)
        redis = self.here.env["REDIS_URL"].split("//")[1].split("/")[0].rpartition("@")[2]
        found = variables(spec["containers"][0], self.objects)
        found["SWEEPBOT_CONFIG"] = str(folder / "etc" / Path(found["SWEEPBOT_CONFIG"]).name)
        found["REGISTRY_AUTH_FILE"] = str(folder / "registry.json")
        found |= {"REDIS_URL": found["REDIS_URL"].replace("sweepbot-redis:6379", redis)}
        found |= {"SWEEPBOT_DATA": str(folder / "cache"), "SWEEPBOT_UNCONFIRMED": str(folder / "unconfirmed")}
        found["HTTP_PORT"] = str(free_port())
        if spec.get("automountServiceAccountToken"):
            found["KUBECONFIG"] = str(self.here.folder / "bot-kubeconfig")
        return found

    async def plan(self) -> str:
        spec = of(self.objects, "Deployment")[0]["spec"]["template"]["spec"]
        environment = self.environment(spec, self.here.folder / "plan")
        config = parse_config(
            one(self.objects, "ConfigMap", "sweepbot-config")["data"]["config.yaml"], "config.yaml"
        )
        words = ("plan", "branch=main space=quick", "--repo", config.repositories[0].url)
        command = self.image.command(*words, environment=environment)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        return str(done.stdout + done.stderr)

    def leaks(self, outputs: dict[str, str]) -> list[tuple[str, str]]:
        return [(where, one) for where, text in outputs.items() for one in self.planted if one in text]


def mine(overlay: str, here: World) -> Path:
    """The directory that `sweepbot setup` writes, with this world's addresses and configuration."""
    folder = here.folder / "mine"
    folder.mkdir()
    config = here.env["SWEEPBOT_CONFIG"]
    answers = Answers(
        registry=f"http://{here.env['IMAGE_REGISTRY']}",
        repositories=(read_config(Path(config)).repositories[0].url,),
        mlflow=here.env["MLFLOW_TRACKING_URI"],
    )
    base = Base(os.path.relpath(ROOT, folder), "", __version__)
    for name, text in files(answers, base, Secrets(), {}, sidecars=True).items():
        (folder / name).write_text(text)
    written = yaml.safe_load((folder / "kustomization.yaml").read_text())
    written["resources"][0] = written["resources"][0].replace("small", overlay)
    of_this_world = [f"{key}={here.env[key]}" for key in ("SLACK_API_URL", "KATIB_DB_MANAGER")]
    written["configMapGenerator"][0]["literals"] += of_this_world
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(written))
    shutil.copy(config, folder / "config.yaml")
    return folder


def registry_login(here: World, password: str, namespace: str, name: str) -> Object:
    """As `kubectl create secret docker-registry` makes it."""
    auth = base64.b64encode(f"sweepbot:{password}".encode()).decode()
    document = json.dumps({"auths": {here.env["IMAGE_REGISTRY"]: {"auth": auth}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": namespace},
        "data": {DOCKER: base64.b64encode(document.encode()).decode()},
    }


async def ready(url: str, processes: Processes) -> None:
    async with asyncio.timeout(200), aiohttp.ClientSession() as session:
        while True:
            processes.check()
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)


async def sweep(here: World) -> list[str]:
    """The thread of a sweep, once it has ended and its results are posted."""
    answer = await here.slack.command("ada", "sweeps", "/sweep", "branch=main space=quick gpus=1")
    assert answer is not None
    assert answer.startswith("Sweep `")
    with suppress(TimeoutError):
        async with asyncio.timeout(400):
            while not any("results.csv" in text or text.startswith(":x:") for text in thread(here)):
                here.processes.check()
                await asyncio.sleep(0.2)
    return thread(here)


def thread(here: World) -> list[str]:
    parents = here.slack.messages("sweeps")
    return [m["text"] for parent in parents for m in here.slack.messages("sweeps", parent["ts"])]


def everything_said(here: World) -> dict[str, str]:
    """Logs, Slack and the cluster's objects, but for the Secret itself."""
    logs = {path.name: path.read_text() for path in (here.folder / "logs").glob("sweepbot-*.log")}
    slack = {
        "slack": json.dumps(
            [here.slack.workspace.ephemeral_messages, here.slack.messages("sweeps")], default=str
        )
    }
    slack |= {"thread": json.dumps(thread(here))}
    kinds = {kind: json.dumps(here.store.list(kind)) for kind in KINDS if kind != "Secret"}
    return logs | slack | kinds


@pytest.mark.parametrize("overlay", ["small", "replicas"])
async def test_deployed_processes_finish_a_sweep_without_showing_a_secret(
    overlay: str, folder: Path, image: Image, mlflow_url: str
) -> None:
    async with world(folder, mlflow_url) as here:
        (here.git / "digits/sweeps/quick.yaml").write_text(QUICK)
        commit(here.git / "digits", "A space for the hurried")
        installation = await Installation.make(overlay, here, image)
        await installation.start()
        story = await sweep(here)
        outputs = everything_said(here)
        assert any(text.startswith(":white_check_mark: ") for text in story), "\n".join(outputs.values())
        assert "results.csv" in story[-1], story[-1]
        outputs["plan"] = await installation.plan()
        started = sum(
            deployment["spec"].get("replicas", 1) for deployment in of(installation.objects, "Deployment")
        )
        assert len([name for name in outputs if name.endswith(".log")]) == started
        assert '"sweep": "' in "".join(outputs.values())
        assert installation.leaks(outputs) == []
