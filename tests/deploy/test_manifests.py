"""The overlays as kubectl renders them: accepted by an API server, and consistent with the program."""

import json
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient

from bot.platform.config.policy import parse_config
from bot.platform.config.settings import Settings
from handlers import http_server
from local.kubernetes.apiserver.api import TOKEN, serve
from local.kubernetes.apiserver.kinds import KINDS, Kind, Object, clone
from local.kubernetes.apiserver.schema import Decoding
from local.kubernetes.apiserver.store import Store
from tests.deploy.kustomize import DEPLOY, KUBECTLS, apply, of, one, render, secret, variables, workloads

OVERLAYS = {
    "small": {"sweepbot-work": ("all", 1)},
    "replicas": {"sweepbot-serve": ("serve", 2), "sweepbot-work": ("work", 3)},
}
ROOT = DEPLOY.parent
# Settings whose default suits the manifests.
DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


rendered = cache(render)


@pytest.fixture
def objects(overlay: str) -> list[Object]:
    return clone(rendered(DEPLOY / "overlays" / overlay))


def pod(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object) -> Object:
    (found,) = pod(workload)["containers"]
    return dict(found)


def bots(objects: list[Object]) -> list[Object]:
    return of(objects, "Deployment")


def unhashed(text: str) -> str:
    """kustomize's versions hash a ConfigMap's data differently."""
    return re.sub(r"(sweepbot-(?:settings|config))-[a-z0-9]{10}", r"\1", text)


def reported(objects: list[Object]) -> list[str]:
    for obj in objects:
        obj["metadata"] = {key: value for key, value in obj["metadata"].items() if value}
    return sorted(unhashed(json.dumps(obj, sort_keys=True)) for obj in objects)


def test_manifests_render_alike_with_every_kubectl(overlay: str) -> None:
    if len(KUBECTLS) < 2:
        pytest.skip("name two kubectls, of different versions: KUBECTL=one:two")
    first, *others = [reported(render(DEPLOY / "overlays" / overlay, kubectl)) for kubectl in KUBECTLS]
    assert all(other == first for other in others)


async def test_manifests_are_accepted_by_an_api_server(objects: list[Object]) -> None:
    server = await serve(Store())
    try:
        await apply([*objects, secret()], server.url, TOKEN)
    finally:
        await server.close()
    for obj in objects:
        if obj["kind"] not in KINDS:
            well_formed(obj)


def well_formed(obj: Object) -> None:
    """By the official client's model: no unknown field, no wrong type, nothing missing that is required."""
    group, _, version = obj["apiVersion"].rpartition("/")
    decoding = Decoding(Kind(obj["kind"], "", group, version))
    decoding.read(obj)
    assert decoding.unknown == []
    ApiClient().deserialize(json.dumps(obj), f"V1{obj['kind']}", "application/json")


def test_secret_is_a_template_and_not_applied(objects: list[Object]) -> None:
    assert of(objects, "Secret") == []
    assert all("..." in value for value in secret()["stringData"].values())


def test_guide_shows_how_to_set_values(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    mine = tmp_path / "deploy/mine"
    mine.mkdir()
    guide = (DEPLOY.parent / "docs" / "install.md").read_text()
    (block,) = re.findall(r"mine/kustomization.yaml <<'END'\n(.*?)\nEND\n", guide, re.DOTALL)
    (mine / "kustomization.yaml").write_text(block.replace("mlflow.mlflow.svc", "mlflow.mine"))
    (mine / "config.yaml").write_text("repositories: {mine: {url: https://git.example/mine.git}}")
    for kubectl in KUBECTLS or [""]:
        objects = render(mine, kubectl)
        (bot,) = bots(objects)
        assert container(bot)["image"] == "registry.registry.svc:5000/sweepbot:0.1.0"
        known = variables(container(bot), [*objects, secret()])
        assert known["MLFLOW_TRACKING_URI"] == "http://mlflow.mine:5000"
        assert known["K8S_NAMESPACE"] == "sweeps"
        assert "git.example/mine" in one(objects, "ConfigMap", "sweepbot-config")["data"]["config.yaml"]


def test_changed_configuration_reaches_running_pods(objects: list[Object]) -> None:
    for bot in bots(objects):
        assert mounted(bot)["/etc/sweepbot"]["configMap"]["name"] == "sweepbot-config"  # no hash, no restart
        assert not [each for each in container(bot)["volumeMounts"] if "subPath" in each]


def test_overlays_start_the_named_processes(overlay: str, objects: list[Object]) -> None:
    started = {
        bot["metadata"]["name"]: (container(bot)["args"][0], bot["spec"].get("replicas", 1))
        for bot in bots(objects)
    }
    assert started == OVERLAYS[overlay]


def test_environment_has_all_required_settings(
    objects: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for bot in bots(objects):
        known = variables(container(bot), [*objects, secret()])
        assert set(known) - {"REDIS_PASSWORD"} <= {name.upper() for name in Settings.model_fields}
        for name, value in known.items():
            monkeypatch.setenv(name, value)
        settings = Settings.read()
        assert settings.slack_secret() == "xapp-..."
        assert settings.redis_url == "redis://:...@sweepbot-redis:6379/0"
        assert settings.k8s_namespace == one(objects, "Role")["metadata"]["namespace"]
        one(objects, "Namespace", settings.k8s_namespace)
        file, mounts = settings.sweepbot_config, mounted(bot)
        data = one(objects, "ConfigMap", mounts[str(file.parent)]["configMap"]["name"])["data"]
        assert parse_config(data[file.name], file.name).repositories


def mounted(workload: Object) -> dict[str, Object]:
    volumes = {volume["name"]: volume for volume in pod(workload).get("volumes", [])}
    mounts = container(workload).get("volumeMounts", [])
    return {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in mounts}


def test_written_files_are_on_volumes(objects: list[Object]) -> None:
    home = re.search(r"HOME=(\S+)", (ROOT / "Dockerfile").read_text())
    for bot in bots(objects):
        places = [home[1] if home else ""]
        if container(bot)["args"] != ["serve"]:  # needs no repository
            places.append(str(DEFAULTS["sweepbot_data"]))
        if container(bot)["args"] != ["work"]:  # acknowledges nothing
            places.append(str(DEFAULTS["sweepbot_unconfirmed"]))
        assert {path for path, volume in mounted(bot).items() if "emptyDir" in volume} == set(places)


def test_pods_meet_the_restricted_standard_of_their_namespace(objects: list[Object]) -> None:
    user = re.search(r"^USER (\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert int(user[1]) > 0
    labels = one(objects, "Namespace", "sweepbot")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for workload in workloads(objects):
        assert workload["metadata"]["namespace"] == "sweepbot"
        assert pod(workload)["securityContext"]["runAsNonRoot"] is True
        assert pod(workload)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = container(workload)["resources"]
        assert {"cpu", "memory"} <= set(resources["requests"])
        assert "memory" in resources["limits"]


def test_probes_use_served_paths(objects: list[Object]) -> None:
    source = Path(http_server.__file__).read_text()
    for bot in bots(objects):
        assert container(bot)["ports"] == [{"name": "http", "containerPort": DEFAULTS["http_port"]}]
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container(bot)[probe]["httpGet"]
            assert asked["port"] == "http"
            assert f'"{asked["path"]}"' in source
        assert pod(bot)["terminationGracePeriodSeconds"] == DEFAULTS["shutdown_grace"] + 10


def test_workers_alone_have_a_token_and_permissions(objects: list[Object]) -> None:
    accounts = {obj["metadata"]["name"]: obj for obj in of(objects, "ServiceAccount")}
    assert all(obj["automountServiceAccountToken"] is False for obj in accounts.values())
    (subject,) = one(objects, "RoleBinding")["subjects"]
    for workload in workloads(objects):
        name = pod(workload).get("serviceAccountName")
        assert name is None or name in accounts
        works = container(workload).get("args") in (["work"], ["all"])
        assert (name == subject["name"]) == works
        assert pod(workload).get("automountServiceAccountToken", False) == works
    assert (subject["namespace"], of(objects, "ClusterRole")) == ("sweepbot", [])


def selected(objects: list[Object], selector: Object) -> set[str]:
    wanted = selector.get("matchLabels", {}).items()
    found = [w for w in workloads(objects) if wanted <= w["spec"]["template"]["metadata"]["labels"].items()]
    return {workload["metadata"]["name"] for workload in found}


def test_selectors_match_their_pods(overlay: str, objects: list[Object]) -> None:
    every = {*OVERLAYS[overlay], "sweepbot-redis"}
    for workload in workloads(objects):
        assert selected(objects, workload["spec"]["selector"]) == {workload["metadata"]["name"]}
        for spread in pod(workload).get("topologySpreadConstraints", []):
            assert selected(objects, spread["labelSelector"]) == {workload["metadata"]["name"]}
    service = one(objects, "Service", "sweepbot-redis")
    assert selected(objects, {"matchLabels": service["spec"]["selector"]}) == {"sweepbot-redis"}
    assert selected(objects, one(objects, "NetworkPolicy", "deny-ingress")["spec"]["podSelector"]) == every
    calls = one(objects, "NetworkPolicy", "sweepbot-calls-redis")["spec"]
    assert selected(objects, calls["podSelector"]) == {"sweepbot-redis"}
    (caller,) = calls["ingress"][0]["from"]
    assert selected(objects, caller["podSelector"]) == every - {"sweepbot-redis"}
    for budget in of(objects, "PodDisruptionBudget"):
        assert selected(objects, budget["spec"]["selector"]) == {budget["metadata"]["name"]}


def test_redis_persists_its_data(objects: list[Object]) -> None:
    redis = one(objects, "StatefulSet")
    args = container(redis)["args"]
    options = dict(zip(args[::2], args[1::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    (claim,) = redis["spec"]["volumeClaimTemplates"]
    (mount,) = container(redis)["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (claim["metadata"]["name"], "/data")
    assert re.search(r":\d+\.\d+\.\d+", container(redis)["image"])
    key = container(redis)["env"][0]["valueFrom"]["secretKeyRef"]
    assert key["name"] == secret()["metadata"]["name"]
    assert key["key"] in secret()["stringData"]
    assert options["--requirepass"] == f"$({container(redis)['env'][0]['name']})"


def test_http_service_selects_only_the_serving_pods(objects: list[Object]) -> None:
    added = render(DEPLOY / "http")
    wanted = one(added, "Service", "sweepbot")["spec"]["selector"]
    policy = one(added, "NetworkPolicy", "slack-calls-sweepbot")["spec"]
    assert policy["podSelector"]["matchLabels"] == wanted
    reached = [
        bot
        for bot in bots(objects)
        if wanted.items() <= bot["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert {container(bot)["args"][0] for bot in reached} <= {"serve", "all"}
    assert len(reached) == 1
    ports = {port["name"] for port in container(reached[0])["ports"]}
    assert one(added, "Service", "sweepbot")["spec"]["ports"][0]["targetPort"] in ports
    assert policy["ingress"][0]["ports"][0]["port"] in ports


def test_api_service_reaches_the_same_pods_at_the_documented_port() -> None:
    added, slack = render(DEPLOY / "api"), render(DEPLOY / "http")
    service = one(added, "Service", "sweepbot-api")["spec"]
    policy = one(added, "NetworkPolicy", "scripts-call-sweepbot")["spec"]
    wanted = one(slack, "Service", "sweepbot")["spec"]["selector"]
    assert service["selector"] == policy["podSelector"]["matchLabels"] == wanted
    port = service["ports"][0]["targetPort"]
    assert policy["ingress"][0]["ports"] == [{"port": port}]
    assert f"`SWEEPBOT_API_PORT={port}`" in (DEPLOY.parent / "docs" / "api.md").read_text()
