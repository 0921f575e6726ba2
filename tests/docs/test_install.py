"""docs/install.md names only what exists, and the configuration it shows is valid."""

import re
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from bot.platform.config.policy import parse_config
from bot.platform.config.settings import Settings
from k8s.rbac import FOR_RECORDS, FOR_TRIALS
from local.processes import Processes
from tests.deploy.kustomize import render
from tests.free_port import free_port

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "install.md").read_text()
WRITTEN = dict(re.findall(r"cat > (deploy/mine/\S+) <<'END'\n(.*?)\nEND\n", GUIDE, re.DOTALL))
MANIFESTS = sorted((ROOT / "examples" / "cluster").glob("*.yaml"))


def test_named_files_exist():
    named = set(re.findall(r"(?<!\w/)\b((?:deploy|examples|docs)/[\w./-]*\w)", GUIDE))
    assert named >= {"deploy/slack/manifest-socket.yaml", "examples/cluster/registry.yaml"}
    assert not [path for path in named if not path.startswith("deploy/mine") and not (ROOT / path).exists()]


def test_named_settings_exist():
    settings = {name.upper() for name in Settings.model_fields} | {"REDIS_PASSWORD"}
    named = set(re.findall(r"\b(?:IMAGE|SLACK|REDIS|MLFLOW|K8S|KATIB)_[A-Z_]+\b", GUIDE))
    assert named <= settings


def test_shown_numbers_of_permissions_are_those_of_the_doctor():
    records, trials = (sum(map(len, each.values())) for each in (FOR_RECORDS, FOR_TRIALS))
    assert f"RBAC in sweeps: {records} of {records} granted" in GUIDE
    operate = (ROOT / "docs" / "operate.md").read_text()
    assert f"RBAC in vision: {trials} of {trials} granted" in operate


def test_shown_configuration_is_valid():
    config = parse_config(WRITTEN["deploy/mine/config.yaml"], "config.yaml")
    assert config.admins == ("U012ABCDEF",)


def test_shown_overlay_renders_with_its_values(tmp_path):
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "deploy" / "mine").mkdir()
    for file, text in WRITTEN.items():
        (tmp_path / file).write_text(text)
    objects = render(tmp_path / "deploy" / "mine")
    [work] = [o for o in objects if (o["kind"], o["metadata"]["name"]) == ("Deployment", "sweepbot-work")]
    [container] = work["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.registry.svc:5000/sweepbot:0.1.0"
    [settings] = [o for o in objects if o["metadata"]["name"].startswith("sweepbot-settings")]
    assert settings["data"]["IMAGE_REGISTRY"] == "registry.registry.svc:5000"
    assert "sweepbot-doctor" in {o["metadata"]["name"] for o in objects if o["kind"] == "ClusterRole"}


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_example_manifests_pin_images_and_serve_the_named_urls(file):
    objects = list(yaml.safe_load_all(file.read_text()))
    images = re.findall(r"image: (\S+)", file.read_text())
    assert all(re.search(r":v?\d+\.\d+", image) for image in images)
    for service in [o for o in objects if o["kind"] == "Service"]:
        name, place = service["metadata"]["name"], service["metadata"]["namespace"]
        assert f"{name}.{place}.svc:{service['spec']['ports'][0]['port']}" in GUIDE


@pytest.mark.slow
async def test_mlflow_manifest_accepts_its_service_name(tmp_path, wait_until):
    [server] = [o for o in yaml.safe_load_all(MANIFESTS[0].read_text()) if o["kind"] == "Deployment"]
    _, *arguments = server["spec"]["template"]["spec"]["containers"][0]["args"]
    port = free_port()
    changed = {"/data": str(tmp_path), "--port=5000": f"--port={port}", "0.0.0.0": "127.0.0.1"}  # noqa: S104
    for old, new in changed.items():
        arguments = [argument.replace(old, new) for argument in arguments]
    command = [sys.executable, "-m", "mlflow", *arguments]
    env = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # its job runner takes half a minute
    processes = Processes(tmp_path)
    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search?max_results=1"

    async def status(host):
        try:
            async with web.get(url, headers={"Host": host}) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def answers():
        processes.check()
        return await status("localhost:1")

    try:
        await processes.start("mlflow", *command, env=env)
        async with aiohttp.ClientSession() as web:
            await wait_until(answers, "MLflow answers", seconds=400)
            hosts = ("mlflow.mlflow.svc:5000", "localhost:5000", "mlflow:5000")
            assert [await status(host) for host in hosts] == [200, 200, 403]
    finally:
        await processes.stop_all()
