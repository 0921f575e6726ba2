"""`sweepbot setup`: what it says of a cluster and asks, and that its directory installs Sweepbot."""

import asyncio
import base64
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from importlib.metadata import PathDistribution

import pytest
import yaml

from bot import __version__, setup_command
from bot.core.errors import UserError
from bot.operate.setup.answers import Answers
from bot.operate.setup.cluster import address, suggested_config
from bot.operate.setup.files import Secrets, files
from bot.operate.setup.secrets import LOGINS
from bot.platform.config import package
from bot.platform.registry.auth import login
from k8s.nodes.devices import read_devices, with_devices
from k8s.objects import GPU
from local import cluster_fixtures
from local.kubernetes.apiserver.api import TOKEN, serve
from local.kubernetes.apiserver.kinds import KINDS
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.kubelet import _register
from local.world import commit, git, publish
from tests.bot.sweep.launch.test_cluster_choice import node
from tests.deploy.kustomize import DEPLOY, apply, one, render
from tests.scenarios.dra_drivers import example_class, example_slices, nvidia_classes, nvidia_slices

ROOT = DEPLOY.parent
PARTS = ("overlays/small", "doctor", "usage", "isolation")
ANSWERS = {
    "registry": "http://registry.registry.svc:5000/team",
    "repositories": ["https://git.example/acme/Digits.git", "https://git.example/other/digits"],
    "mlflow": "https://mlflow.example",
    "admins": ["U012ABC"],
}
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
LOGIN = {"REGISTRY_USERNAME": "robot$ci", "REGISTRY_PASSWORD": "p:\"'`$(id) ü"}


@pytest.fixture
async def server(tmp_path):
    store = Store()
    for name, gpus in (("gpu-1", 4), ("gpu-2", 2), ("cpu-1", 0)):
        _register(store, name, gpus)
    own = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    for name, taints in (("gpu-1", [TAINT, own]), ("gpu-2", [TAINT, CORDON])):
        store.patch("Node", "", name, {"spec": {"taints": taints}})
    cluster_fixtures.install(store, ["gpu-1"])
    for name, port in (("registry", 5000), ("mlflow", 80), ("prometheus-operated", 9090)):
        store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        meta, spec = {"name": name, "namespace": name}, {"ports": [{"port": port}]}
        store.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    found = await serve(store)
    found.kubeconfig(tmp_path / "kubeconfig")
    yield found
    await found.close()


async def run(folder, *words, typed="", **env):
    """Run the command as a person does, who types this; `folder` is beside a kubeconfig."""
    command = [sys.executable, "-m", "bot", "setup", str(folder), "--base", str(ROOT), *words]
    return await asyncio.to_thread(
        subprocess.run,
        command,
        input=typed,
        env=os.environ | {"PYTHONPATH": str(ROOT), "KUBECONFIG": str(folder.parent / "kubeconfig")} | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """`await setup(folder, *words, typed="")`: as `run`, in this process; the only words are `answered`."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    def said(folder, typed, _option=None, answers=None):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code, error = 0, ""
        with redirect_stdout(io.StringIO()) as out:
            try:
                code = setup_command.run_setup(arguments(folder, str(ROOT), answers))
            except UserError as refused:
                code, error = refused.exit_code, f"{refused}\n"
        return Namespace(returncode=code, stdout=out.getvalue(), stderr=error)

    async def answer(folder, *words, typed=""):
        return await asyncio.to_thread(said, folder, typed, *words)

    return answer


@pytest.fixture
def write(tmp_path, monkeypatch, capsys):
    """`write(folder, **changed)`: what is printed as the folder is written, without a cluster."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def written(folder, base=str(ROOT), options=None, **changed):
        _, answers = answered(tmp_path, **changed)
        assert setup_command.run_setup(arguments(folder, base, answers, **(options or {}))) == 0
        return capsys.readouterr().out

    return written


def arguments(folder, base, answers, **options):
    given = {"sealed_secrets": False, "external_secrets": None, "apply": None} | options
    return Namespace(folder=str(folder), base=base, answers=answers, **given)


def answered(folder, **changed):
    """Write a file of answers, and return the options that name it."""
    file = folder / "answers.yaml"
    file.write_text(yaml.safe_dump(ANSWERS | changed))
    return "--answers", str(file)


def secrets(folder, **values):
    """Return what the script prints, by namespace and name."""
    done = subprocess.run(
        ["sh", folder / "secrets.sh"], env=os.environ | values, capture_output=True, text=True, check=True
    )
    found = list(yaml.safe_load_all(done.stdout))
    return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in found}


def by_name(objects):
    return {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects
    }


def settings_of(objects):
    [found] = [name for name in objects if name[2].startswith("sweepbot-settings-")]
    return found


async def test_person_answers_and_gets_a_directory_that_an_api_server_accepts(server, tmp_path, setup):
    folder = tmp_path / "mine"
    lines = [
        "",
        "ftp://x",
        "",
        "https://git.example/acme/digits.git",
        "",
        "ada, U012ABC",
        "U012ABC U034DEF",
        "",
    ]
    done = await setup(folder, typed="\n".join([*lines, ""]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok       GPU nodes: 6 GPUs on 2 nodes\n" in done.stdout
    assert "ok       Prometheus: http://prometheus-operated.prometheus-operated.svc:9090;" in done.stdout
    assert "ok       namespaces: sweepbot and sweeps will be created\n" in done.stdout
    assert "registry [http://registry.registry.svc:5000]: " in done.stdout
    assert "registry_login [secret]: registry_login: must be secret or none\n" in done.stdout
    assert "admins[0]: must be a Slack member ID" in done.stdout
    steps = done.stdout.partition("\nNext:\n")[2].partition("\n\nRun 1 to 4")[0]
    assert len(steps.splitlines()) == 6  # 5 commands, one of them on two lines
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config == {
        "repositories": {"digits": {"url": "https://git.example/acme/digits.git"}},
        "admins": ["U012ABC", "U034DEF"],
        "limits": {"gpus_per_trial": 4},
        "trials": {"tolerations": [TAINT | {"operator": "Exists"}]},
    }
    objects = render(folder)
    settings = one(objects, "ConfigMap", "sweepbot-settings")["data"]
    assert settings["MLFLOW_TRACKING_URI"] == "http://mlflow.mlflow.svc:80"
    assert settings["METRICS_READER_IMAGE"] == f"registry.registry.svc:5000/sweepbot:{__version__}"
    await apply([*objects, *secrets(folder, **TOKENS, **LOGIN).values()], server.url, TOKEN)
    again = await setup(folder, typed="\n".join([*lines, ""]))
    assert again.stdout.count(": unchanged\n") == 3
    assert "ok       namespaces: sweepbot and sweeps exist\n" in again.stdout


async def test_person_without_a_cluster_is_told_so_before_any_question(tmp_path, setup):
    text = yaml.safe_dump(
        {
            "current-context": "gone",
            "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "gone"}}],
            "users": [{"name": "gone", "user": {}}],
            "clusters": [{"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}],
        }
    )
    for kubeconfig in ("", "hunter2: [", text):
        (tmp_path / "kubeconfig").write_text(kubeconfig)
        done = await setup(tmp_path / "mine", typed="http://registry.registry.svc:5000\n")
        assert done.returncode
        assert "broken   Kubernetes API: " in done.stdout
        assert "1/5" not in done.stdout
        assert "hunter2" not in done.stdout + done.stderr
        assert "Set KUBECONFIG to a file with which `kubectl version` succeeds" in done.stderr


@pytest.mark.parametrize(
    ("published", "profiles"),
    [
        (
            ([example_class()], example_slices("n1", 4)),
            {"gpu": {"gpus": 1, "device_class": "gpu.example.com"}},
        ),
        ((nvidia_classes(), nvidia_slices("n1", 4)), None),
    ],
)
def test_gpus_that_only_a_device_class_has_get_a_profile(published, profiles):
    config = suggested_config(with_devices([node("n1", 0)], read_devices(*published)))
    assert (config["limits"], config.get("profiles")) == ({"gpus_per_trial": 4}, profiles)


@pytest.mark.parametrize(
    ("offered", "limit", "resource"),
    [
        (
            {GPU: "0", "nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "4"},
            14,
            "nvidia.com/mig-1g.5gb",
        ),
        ({"nvidia.com/gpu.shared": "40"}, 40, "nvidia.com/gpu.shared"),
        ({GPU: "4", "nvidia.com/mig-1g.5gb": "28"}, 4, ""),
    ],
)
def test_limit_is_of_the_resource_that_trials_request(offered, limit, resource):
    """With the strategy `mixed`, a node offers MIG slices apart from whole GPUs."""
    gpus = node("n1", 0) | {"status": {"capacity": offered, "allocatable": offered}}
    profiles = {"profiles": {"gpu": {"gpus": 1, "resource": resource}}} if resource else {}
    assert suggested_config([gpus, node("cpu", 0)]) == {"limits": {"gpus_per_trial": limit}} | profiles


@pytest.mark.parametrize(
    ("what", "name", "namespace", "port"),
    [
        ("registry", "image-registry", "openshift-image-registry", 5000),
        ("Prometheus", "prometheus-operated", "openshift-monitoring", 9090),
        ("MLflow", "mlflow-minio", "mlflow", 80),
    ],
)
def test_service_that_only_looks_right_is_not_suggested(what, name, namespace, port):
    meta, spec = {"namespace": namespace, "name": name}, {"ports": [{"port": port}]}
    right = {"namespace": "own", "name": f"{what.lower()}-tracking"}
    services = [{"metadata": meta, "spec": spec}, {"metadata": right, "spec": spec}]
    assert address(services, what) == f"{what.lower()}-tracking.own.svc:{port}"
    assert address(services[:1], what) == ""


def test_directory_differs_from_the_base_only_where_the_answers_say(write, tmp_path):
    folder = tmp_path / "git/mine"
    assert "broken   Kubernetes API: can't connect" in write(folder)
    own = by_name(render(folder))
    base = by_name([each for part in PARTS for each in render(DEPLOY / part)])
    old, new = [found.pop(settings_of(found))["data"] for found in (base, own)]
    assert {key: new[key] for key in new if new[key] != old.get(key)} == {
        "IMAGE_REGISTRY": "registry.registry.svc:5000/team",
        "IMAGE_REGISTRY_PLAIN_HTTP": "true",
        "MLFLOW_TRACKING_URI": "https://mlflow.example",
    }
    config = yaml.safe_load(own.pop(("ConfigMap", "sweepbot", "sweepbot-config"))["data"]["config.yaml"])
    del base["ConfigMap", "sweepbot", "sweepbot-config"]
    assert config == {
        "repositories": {
            "digits": {"url": "https://git.example/acme/Digits.git"},
            "other-digits": {"url": "https://git.example/other/digits"},
        },
        "admins": ["U012ABC"],
    }
    for found in (base, own):
        [container] = found["Deployment", "sweepbot", "sweepbot-work"]["spec"]["template"]["spec"][
            "containers"
        ]
        assert container["envFrom"].pop(0)["configMapRef"]["name"].startswith("sweepbot-settings-")
        container["image"] = container["image"].removeprefix("registry.registry.svc:5000/team/")
    assert own == base


def test_repository_that_is_written_in_two_ways_has_one_name():
    both = ("https://git.example/acme/digits.git", "https://git.example/acme/digits")
    found = Answers(registry="ghcr.io/acme", mlflow="http://mlflow", repositories=both)
    assert [*found.named_repositories] == ["digits"]


def test_base_is_pinned_to_the_version_of_the_package(write, tmp_path):
    """From a repository by URL, as kustomize clones it."""
    shutil.copytree(DEPLOY, tmp_path / "source/deploy", ignore=shutil.ignore_patterns("mine"))
    publish(tmp_path / "source", tmp_path / "sweepbot", tmp_path / "origin")
    git(tmp_path / "sweepbot", "tag", f"v{__version__}")
    shutil.rmtree(tmp_path / "sweepbot/deploy")
    commit(tmp_path / "sweepbot", "Move the manifests")
    write(tmp_path / "mine", base=f"file://{tmp_path}/sweepbot/")
    assert (tmp_path / "mine/kustomization.yaml").read_text().count(f"?ref=v{__version__}\n") == len(PARTS)
    assert one(render(tmp_path / "mine"), "Deployment", "sweepbot-work")


def test_registry_without_a_login_needs_no_secrets_of_it(write, tmp_path):
    write(tmp_path / "mine", registry_login="none")
    data = one(render(tmp_path / "mine"), "ConfigMap", "sweepbot-settings")["data"]
    assert {data[key] for key in ("IMAGE_REGISTRY_SECRET", "IMAGE_PUSH_SECRET", "REGISTRY_AUTH_FILE")} == {""}
    assert secrets(tmp_path / "mine", **TOKENS).keys() == {"sweepbot/sweepbot"}


@pytest.mark.parametrize(
    ("registry", "key"),
    [("docker.io/acme", "https://index.docker.io/v1/"), ("ghcr.io/acme", "ghcr.io")],
)
def test_secrets_have_the_values_as_typed(registry, key, write, tmp_path):
    write(tmp_path / "mine", registry=registry)
    found = secrets(tmp_path / "mine", **TOKENS, **LOGIN)
    assert found.keys() == {
        "sweepbot/sweepbot",
        "sweeps/registry-push",
        "sweeps/registry-pull",
        "sweepbot/registry",
    }
    own = {
        name: base64.b64decode(value).decode() for name, value in found["sweepbot/sweepbot"]["data"].items()
    }
    password = own.pop("REDIS_PASSWORD")
    assert own == TOKENS
    assert len(password) == 48
    assert password.isalnum()
    document = base64.b64decode(found["sweepbot/registry"]["data"][".dockerconfigjson"]).decode()
    assert [*json.loads(document)["auths"]] == [key]
    assert login(document, registry) == tuple(LOGIN.values())


def test_external_secrets_make_what_the_script_prints(write, tmp_path):
    """The templates as the operator renders them: Go's `printf`, sprig's `b64enc` and `toJson`."""
    printed = write(tmp_path / "mine", options={"external_secrets": "vault"}, registry="docker.io/acme")
    assert "secrets.sh" not in printed
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]
        for each in render(tmp_path / "mine")
        if each["kind"] == "ExternalSecret"
    }
    assert {spec["secretStoreRef"]["name"] for spec in found.values()} == {"vault"}
    tokens = found.pop(("sweepbot", "sweepbot"))
    assert (tokens["target"], tokens["dataFrom"]) == (
        {"name": "sweepbot"},
        [{"extract": {"key": "sweepbot"}}],
    )
    assert {*found} == {*LOGINS}
    for (_, name), spec in found.items():
        assert (spec["target"]["name"], spec["dataFrom"]) == (
            name,
            [{"extract": {"key": "sweepbot-registry"}}],
        )
        template = spec["target"]["template"]["data"][".dockerconfigjson"]
        auth = json.dumps(base64.b64encode(":".join(LOGIN.values()).encode()).decode())
        document = template.replace('{{ printf "%s:%s" .username .password | b64enc | toJson }}', auth)
        assert login(document, "docker.io/acme") == tuple(LOGIN.values())
    with pytest.raises(UserError, match=r'a ClusterSecretStore; got "\$\(id\)"'):
        write(tmp_path / "other", options={"external_secrets": "$(id)"})


def test_sealed_secrets_are_made_before_the_directory_is_applied(write, tmp_path):
    printed = write(tmp_path / "mine", options={"sealed_secrets": True})
    steps = printed.partition("Next:")[2]
    seal = f"2. sh {tmp_path}/mine/secrets.sh | kubeseal --format yaml > {tmp_path}/mine/sealed.yaml\n"
    assert f"{seal}3. kubectl apply -k {tmp_path}/mine\n4. " in steps
    assert "- sealed.yaml\n" in (tmp_path / "mine/kustomization.yaml").read_text()


TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$*" in
  *port-forward*) echo $$ > {log}.pid; exec sleep 600 ;;
  push*) until [ -e {log}.pid ]; do sleep 0.05; done ;;  # a real build takes longer than the port-forward
  "apply -f -") cat > {log}.secrets ;;
  *"-- sweepbot doctor") echo "0 broken, 0 warnings, 31 ok"; exit ${{DOCTOR:-0}} ;;
esac
"""


@pytest.fixture
def tools(tmp_path):
    """Docker and kubectl, which only write what they are called with into `tools`; environment of a setup."""
    (tmp_path / "bin").mkdir()
    for name in ("docker", "kubectl"):
        (tmp_path / "bin" / name).write_text(TOOL.format(log=tmp_path / "tools"))
        (tmp_path / "bin" / name).chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **TOKENS, **LOGIN}


async def test_person_installs_with_one_command_and_a_first_sweep(server, tmp_path, tools):
    """From a prepared cluster: one command, five decisions, two consents, and `/sweep` in Slack."""
    folder = tmp_path / "mine"
    lines = ["", "", "https://git.example/acme/digits.git", "", "U012ABC", "y", "y", ""]
    done = await run(folder, typed="\n".join(lines), **tools)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"at {server.url}\n" in done.stdout.partition("\n")[0] + "\n"
    assert "0 broken, 0 warnings, 31 ok\n\n5. in Slack: " in done.stdout
    image = f"localhost:5000/sweepbot:{__version__}"
    assert set((tmp_path / "tools").read_text().splitlines()) == {
        "kubectl -n registry port-forward service/registry 5000:5000",
        f"docker build -t {image} {ROOT}",
        f"docker push {image}",
        f"kubectl apply -k {folder}",
        "kubectl apply -f -",
        "kubectl -n sweepbot rollout status deployment/sweepbot-work",
        "kubectl -n sweepbot exec deployment/sweepbot-work -- sweepbot doctor",
    }
    assert len([*yaml.safe_load_all((tmp_path / "tools.secrets").read_text())]) == 4
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "tools.pid").read_text()), 0)


async def test_installation_stops_at_a_failed_command_and_continues_there(
    server, tmp_path, tools, monkeypatch, capfd
):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name, value in tools.items():
        monkeypatch.setenv(name, value)

    async def installs(first):
        _, answers = answered(tmp_path)
        given = arguments(tmp_path / "mine", str(ROOT), answers, apply=first)
        return await asyncio.to_thread(setup_command.run_setup, given)

    monkeypatch.setenv("DOCTOR", "1")
    assert await installs(2) == 1
    assert (
        "Command 4 failed (exit code 1). Run it and those after it, or `sweepbot setup --apply 4`"
        in capfd.readouterr().err
    )
    calls = (tmp_path / "tools").read_text()
    assert "docker" not in calls
    monkeypatch.delenv("DOCTOR")
    assert await installs(4) == 0
    assert (tmp_path / "tools").read_text().removeprefix(calls).count("apply") == 0
    for number in (0, 7):
        with pytest.raises(UserError, match=rf"^--apply= must be a number from 1 to 4; got {number}\.$"):
            await installs(number)


def test_secrets_are_asked_for_without_showing_them(write, tmp_path):
    write(tmp_path / "mine", registry_login="none")
    child, terminal = pty.fork()
    if not child:
        script = (
            f"unset SLACK_BOT_TOKEN SLACK_APP_TOKEN; exec sh '{tmp_path}/mine/secrets.sh' > '{tmp_path}/out'"
        )
        os.execvp("sh", ["sh", "-c", script])  # noqa: S606
    shown = b""
    for name, value in TOKENS.items():
        while name.encode() not in shown:
            shown += os.read(terminal, 100)
        os.write(terminal, f"{value}\n".encode())
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)
    assert b"xoxb" not in shown
    data = yaml.safe_load((tmp_path / "out").read_text())["data"]
    assert base64.b64decode(data["SLACK_APP_TOKEN"]) == b"xapp-1"


HOSTILE = [
    ({"registry": "ghcr.io/acme\nimages: []"}, "registry: must be at most 300 characters without spaces and"),
    ({"registry": "r" * 10_000}, "registry: must be at most 300 characters"),
    ({"registry": "$(id).example"}, "registry: must be HOST[:PORT][/PREFIX] without scheme or user"),
    ({"registry": "user:secret@host"}, "registry: must be HOST[:PORT][/PREFIX]"),
    ({"registry": None}, "registry: must be text"),
    ({"registry_login": "x: y"}, "registry_login: must be secret or none"),
    ({"repositories": []}, "repositories: must have at least one entry"),
    ({"repositories": ["https://git.example/a b"]}, "repositories[0]: must be the URL of a repository"),
    ({"repositories": [f"https://git.example/{'a' * 10_000}"]}, "repositories[0]: must be at most 300"),
    (
        {"repositories": ["https://u:p@git.example/a"]},
        "repositories[0]: must not contain a user or a password",
    ),
    (
        {"mlflow": 'http://x"\nFOO=bar'},
        "mlflow: must be at most 300 characters without spaces and line breaks",
    ),
    ({"mlflow": "https://u:p@mlflow.example"}, "mlflow: must not contain a user or a password"),
    ({"admins": ["U012ABC]\nguests: true"]}, "admins[0]: must be a Slack member ID"),
    ({"guests": True}, "guests: unknown key."),
]


@pytest.mark.parametrize(("changed", "sentence"), HOSTILE, ids=[f"{n}" for n in range(len(HOSTILE))])
def test_hostile_answers_are_refused_before_anything_is_written(changed, sentence, write, tmp_path):
    with pytest.raises(UserError) as refused:
        write(tmp_path / "mine", **changed)
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 500
    assert not (tmp_path / "mine").exists()


async def test_existing_files_are_replaced_only_after_a_yes(server, tmp_path, setup):
    folder, options = tmp_path / "mine", answered(tmp_path)
    assert (await setup(folder, *options)).returncode == 0
    changed = (folder / "config.yaml").read_text() + "guests: true\n"
    (folder / "config.yaml").write_text(changed)
    refused = await setup(folder, *options)
    assert refused.returncode == 2
    assert f"config.yaml in {folder} would be replaced, so nothing was written." in refused.stderr
    lines = [ANSWERS["registry"], "", " ".join(ANSWERS["repositories"]), ANSWERS["mlflow"], "U012ABC"]
    for answer in ("", "n"):
        kept = await setup(folder, typed="\n".join([*lines, answer, ""]))
        assert kept.stderr.endswith("Nothing was written.\n")
    assert "Replace config.yaml? [y/N]" in kept.stdout
    stopped = await setup(folder, typed="\n".join(lines[:3]))
    assert stopped.stderr.endswith("No answer, so nothing was written.\n")
    assert (folder / "config.yaml").read_text() == changed
    assert (await setup(folder, typed="\n".join([*lines, "y", ""]))).returncode == 0
    assert "guests" not in (folder / "config.yaml").read_text()


async def test_what_a_cluster_has_and_what_the_directory_would_break_is_reported(server, tmp_path, setup):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    meta = {"name": "sweeps", "labels": labels}
    server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    meta = {"name": "localqueues.kueue.x-k8s.io"}
    server.store.create(
        {
            "apiVersion": KINDS["CustomResourceDefinition"].api_version,
            "kind": "CustomResourceDefinition",
            "metadata": meta,
            "spec": {},
        }
    )
    server.store.create(
        {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"}}
    )
    changed = {
        "registry": "http://registry.images.svc:5000",
        "mlflow": "http://mlflow.ml.svc.k8s.example:80",
    }
    done = await setup(tmp_path / "mine", *answered(tmp_path, **changed))
    assert "warning  namespaces: Pod Security changes to baseline in sweeps\n" in done.stdout
    assert "ok       Kueue: installed;" in done.stdout
    assert "ok       ingress: nginx;" in done.stdout
    assert "deploy/isolation closes the way of builds to namespace images:" in done.stdout
    assert "deploy/isolation closes the way of trials to namespace ml:" in done.stdout
    assert "kubectl -n images port-forward service/registry 5000:5000 &" in done.stdout


async def test_caller_without_permissions_gets_no_fault(server, tmp_path, setup):
    server.tokens["nobody"] = "nobody"
    server.kubeconfig(tmp_path / "kubeconfig", "nobody")
    done = await setup(tmp_path / "mine", *answered(tmp_path))
    assert done.returncode == 0
    assert "warning  Katib CRDs: unknown: no permission\n" in done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("base", ["https://x/y?ref=z", "https://x//y", "elsewhere"])
def test_base_that_is_none_is_refused(base, write, tmp_path):
    with pytest.raises(UserError, match="--base"):
        write(tmp_path / "mine", base=base)


def test_package_names_its_repository(tmp_path, monkeypatch):
    """A release's metadata, which the release workflow writes."""
    (tmp_path / "METADATA").write_text(
        "Name: sweepbot\nProject-URL: Repository, https://git.example/x/sweepbot\n"
        f"Project-URL: Documentation, https://x.example/sweepbot/{__version__}\n"
    )
    found = PathDistribution(tmp_path)
    monkeypatch.setattr(package, "metadata", lambda _: found.metadata)
    base = setup_command._base(None, tmp_path)
    assert base.part("doctor") == f"https://git.example/x/sweepbot//deploy/doctor?ref=v{__version__}"
    assert base.source == f"https://git.example/x/sweepbot.git#v{__version__}"
    texts = files(Answers(**ANSWERS), base, Secrets(), {}, sidecars=False)
    runbook = f"- RUNBOOK_URL=https://x.example/sweepbot/{__version__}/operate.html\n"
    assert runbook in texts["kustomization.yaml"]
    (tmp_path / "METADATA").write_text("Name: sweepbot\n")
    with pytest.raises(UserError, match="Add --base"):
        setup_command._base(None, tmp_path)
