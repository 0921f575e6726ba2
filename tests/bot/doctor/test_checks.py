"""The doctor in a local installation, with the rights that deploy/ gives.

Nothing is found on a healthy one, and every planted fault on a sick one.
"""

import asyncio
import contextlib
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from aiohttp import web
from redis.asyncio import Redis

from bot.config.policy import Config, Repository
from bot.config.settings import Settings
from bot.core.commands import Action, Command
from bot.core.masking import Mask
from bot.core.work_item import DOCTOR
from bot.doctor import checks
from bot.doctor.evaluate_services import SCOPES
from bot.doctor.findings import as_lines
from bot.slack.client import NotInChannelError
from bot.storage.sweeps import Store as Records
from k8s.dcgm import is_exporter
from local import githost, installed, registry, slack
from local.kubernetes import api
from local.kubernetes.kinds import refusal
from local.kubernetes.kubelet import _register
from local.kubernetes.store import Store
from local.redis import redis as redis_server
from local.serving import listen
from local.world import git

DEPLOY = Path(__file__).parents[3] / "deploy"
ACCOUNT = {"name": "sweepbot-work", "namespace": "sweepbot"}
LABEL = "katib.kubeflow.org/metrics-collector-injection"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("git")
    git(folder, "init", "--quiet", "--bare", "digits.git")
    return folder


class Installed:
    """All that a Sweepbot needs, healthy; tests break one thing and ask the doctor."""

    def __init__(self, folder, redis_url):
        self.folder, self.settings, self.resolve = folder, {"redis_url": redis_url}, None
        self.config = None
        self.store = Store()
        self.redis = Redis.from_url(redis_url)

    async def start(self, stack, repositories):
        self.chat = await slack.serve()
        images = await registry.serve(self.folder / "blobs")
        host = await githost.serve(repositories)
        self.mlflow_status = 200
        app = web.Application()
        app.router.add_get("/api/2.0/mlflow/experiments/search", self._mlflow)
        mlflow = await listen(app)
        self._cluster()
        self.server = await api.serve(self.store)
        self.server.logs = lambda *_: "a line\n"
        self.server.tokens["work"] = f"system:serviceaccount:{ACCOUNT['namespace']}:{ACCOUNT['name']}"
        self.server.kubeconfig(self.folder / "kubeconfig", "work")
        for part in (self.chat, images, host, mlflow, self.server):
            stack.push_async_callback(part.close)
        self.config = Config(repositories=(Repository(name="digits", url=f"{host.url}/digits.git"),))
        self.settings |= {
            "slack_bot_token": self.chat.bot_token,
            "slack_app_token": self.chat.app_token,
            "slack_api_url": self.chat.api_url,
            "image_registry": images.address,
            "image_registry_plain_http": True,
            "mlflow_tracking_uri": mlflow.url,
            "sweepbot_config": "unread",
            "k8s_namespace": "sweeps",
        }

    async def _mlflow(self, _):
        return web.json_response({"experiments": []}, status=self.mlflow_status)

    def _cluster(self):
        names = {"sweeps": {LABEL: "enabled"}, "sweepbot": {}}
        for name, labels in names.items():
            meta = {"name": name, "labels": labels}
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        self.store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": ACCOUNT})
        for folder in ("base", "doctor", "usage"):
            file = DEPLOY / folder / "rights.yaml"
            for obj in yaml.safe_load_all(file.read_text()):
                if obj["kind"] != "ServiceAccount":
                    self.store.create(obj)
        for node in ("gpu-1", "gpu-2"):
            _register(self.store, node, 2)
        installed.install(self.store, ["gpu-1", "gpu-2"])
        for pod in self.store.list("Pod"):
            where = ("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.store.patch(*where, {"status": {"phase": "Running"}}, subresource="status")

    def change(self, kind, name, patch, namespace="", subresource=None):
        self.store.patch(kind, namespace, name, patch, subresource=subresource)

    def node(self, name, **status):
        self.change("Node", name, {"status": status}, subresource="status")

    async def examined(self):
        """The findings that are not ok."""
        settings = Settings(**self.settings)
        self.all = await checks.run(settings, self.config, resolve=self.resolve)
        return [one for one in self.all if one.level != "ok"]


@pytest.fixture
async def here(tmp_path, monkeypatch, redis_url, repositories):
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with contextlib.AsyncExitStack() as stack:
        one = Installed(tmp_path, redis_url)
        stack.push_async_callback(one.redis.aclose)
        await one.start(stack, repositories)
        yield one
        await one.redis.config_set("appendonly", "yes")
        await one.redis.config_set("maxmemory-policy", "noeviction")
        await one.redis.flushall()


async def test_checks_of_a_healthy_installation_finds_only_ok(here):
    assert await here.examined() == []
    guide = (DEPLOY.parent / "docs" / "install.md").read_text()
    assert [one.check for one in here.all] == re.findall(r"^ok       ([^:]+):", guide, re.MULTILINE)


async def slack_token(here):
    here.settings["slack_bot_token"] = "xoxb-of-somebody-else"


async def slack_app_token(here):
    here.settings["slack_app_token"] = "xapp-of-somebody-else"


async def no_app_token(here):
    del here.settings["slack_app_token"]


async def slack_down(here):
    await here.chat.close()


async def redis_forgets(here):
    await here.redis.config_set("appendonly", "no")


async def redis_evicts(here):
    await here.redis.config_set("maxmemory-policy", "allkeys-lru")


async def redis_down(here):
    here.settings["redis_url"] = "redis://127.0.0.1:9/0"


async def api_down(here):
    await here.server.close()


async def api_token(here):
    here.server.tokens.clear()


async def no_kubeconfig(here):
    (here.folder / "kubeconfig").unlink()


async def a_verb_is_missing(here):
    rules = here.store.get("Role", "sweeps", "sweepbot")["rules"]
    kept = [{**rule, "verbs": [v for v in rule["verbs"] if v != "delete"]} for rule in rules]
    here.change("Role", "sweepbot", {"rules": kept}, "sweeps")


async def no_namespace(here):
    here.settings["k8s_namespace"] = "elsewhere"


async def no_label(here):
    here.change("Namespace", "sweeps", {"metadata": {"labels": {LABEL: None}}})


async def no_crd(here):
    here.store.delete("CustomResourceDefinition", "", "trials.kubeflow.org")


async def mysql_in_the_trap(here):
    here.change("Deployment", "katib-mysql", {"status": {"readyReplicas": None}}, "kubeflow")


async def nobody_behind_the_webhook(here):
    name = here.store.list("EndpointSlice")[0]["metadata"]["name"]
    here.change("EndpointSlice", name, {"endpoints": []}, "kubeflow")


async def no_pod_webhook(here):
    here.store.delete("MutatingWebhookConfiguration", "", "katib.kubeflow.org")


async def a_plugin_pod_is_missing(here):
    here.change("DaemonSet", "nvidia-device-plugin-daemonset", {"status": {"numberReady": 1}}, "kube-system")


async def a_gpu_fell_out(here):
    here.node("gpu-2", allocatable={GPU: "1"})


async def a_node_is_gone(here):
    here.node("gpu-2", conditions=[{"type": "Ready", "status": "Unknown"}])


async def two_default_classes(here):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": "nfs", "annotations": annotations}
    here.store.create({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta})


async def registry_down(here):
    here.settings["image_registry_api"] = "127.0.0.1:9"


async def registry_over_https(here):
    here.settings["image_registry_plain_http"] = False


async def git_down(here):
    here.config = Config(repositories=(Repository(name="digits", url="http://127.0.0.1:9/digits.git"),))


async def no_repository(here):
    url = here.config.repositories[0].url.replace("digits", "gone")
    here.config = Config(repositories=(Repository(name="gone", url=url),))


async def mlflow_wants_a_login(here):
    here.mlflow_status = 401


async def mlflow_down(here):
    here.settings["mlflow_tracking_uri"] = "http://127.0.0.1:9"


async def dns_flickers(here):
    answers = iter([True, False] * 3)

    async def resolve(name):
        if not next(answers):
            raise OSError("Temporary failure in name resolution")

    here.settings["image_registry_push"] = "registry.registry.svc:5000"
    here.resolve = resolve


async def kubelet_behind_a_firewall(here):
    def logs(_namespace, pod, *_):
        if pod.endswith("gpu-2"):
            why = 'Get "https://10.0.0.5:10250/containerLogs/": dial tcp 10.0.0.5:10250: i/o timeout'
            raise refusal(500, why)
        return ""

    here.server.logs = logs


async def an_exporter_is_missing(here):
    [pod] = [p for p in here.store.list("Pod") if is_exporter(p) and p["spec"]["nodeName"] == "gpu-2"]
    here.store.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)


def gpu_operator(here):
    here.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})


async def exporters_may_not_be_asked(here):
    """As with the GPU operator, where they live in another namespace."""
    gpu_operator(here)
    for pod in [pod for pod in here.store.list("Pod") if is_exporter(pod)]:
        here.store.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)
        meta = {key: pod["metadata"][key] for key in ("name", "labels")}
        spec = {key: pod["spec"][key] for key in ("nodeName", "containers")}
        here.store.create({**pod, "metadata": meta | {"namespace": "gpu-operator"}, "spec": spec})
        here.change("Pod", meta["name"], {"status": {"phase": "Running"}}, "gpu-operator", "status")


async def prometheus_down(here):
    here.settings["prometheus_url"] = "http://127.0.0.1:9"


async def a_quarantined_sweep(here):
    await here.redis.hset("sweepbot:queue:quarantine", "lr-brave-otter", "1763728000000 MemoryError: ")


FAULTS = [
    (slack_token, "Slack token", "broken", "invalid_auth", "SLACK_BOT_TOKEN"),
    (slack_app_token, "Slack app token", "broken", "invalid_auth", "SLACK_APP_TOKEN"),
    (no_app_token, "Slack app token", "broken", "SLACK_APP_TOKEN isn't set", "Basic Information"),
    (slack_down, "Slack token", "broken", "unreachable", "curl"),
    (redis_forgets, "Redis persistence", "broken", "append-only file is off", "CONFIG SET appendonly yes"),
    (redis_evicts, "Redis eviction", "warning", "allkeys-lru", "maxmemory-policy noeviction"),
    (
        a_quarantined_sweep,
        "quarantine",
        "warning",
        "lr-brave-otter, since 2025-11-21",
        "/sweep release lr-brave",
    ),
    (redis_down, "Redis", "broken", "unreachable", "kubectl"),
    (api_down, "Kubernetes API", "broken", "is unreachable", "kubectl version"),
    (api_token, "Kubernetes API", "broken", "Unauthorized", "KUBECONFIG"),
    (no_kubeconfig, "Kubernetes API", "broken", "can't connect", "KUBECONFIG"),
    (a_verb_is_missing, "RBAC in sweeps", "broken", "missing delete jobs", "deploy/base/rights.yaml"),
    (no_label, "namespace sweeps", "broken", "missing label", "kubectl label namespace sweeps"),
    (no_crd, "Katib CRDs", "broken", "trials.kubeflow.org", "docs/install.md"),
    (mysql_in_the_trap, "Katib deployments", "broken", "liveness probe", "startupProbe"),
    (no_pod_webhook, "Katib mutating webhook", "broken", "not installed", "docs/install.md"),
    (a_plugin_pod_is_missing, "GPU device plugin", "broken", "1/2", "describe daemonset"),
    (a_gpu_fell_out, "GPU nodes", "warning", "gpu-2: 1 of 2 GPUs not allocatable", "nvidia-smi"),
    (a_node_is_gone, "GPU nodes", "warning", "gpu-2: not ready", "kubectl describe node gpu-2"),
    (prometheus_down, "Prometheus", "broken", "doesn't answer", "PROMETHEUS_URL"),
    (two_default_classes, "default StorageClass", "warning", "local-path and nfs", "kubectl patch"),
    (registry_down, "registry", "broken", "127.0.0.1:9 (IMAGE_REGISTRY_API, used by the bot)", "curl"),
    (registry_over_https, "registry", "broken", "serves http, not https", "IMAGE_REGISTRY_PLAIN_HTTP=true"),
    (git_down, "git digits", "broken", "127.0.0.1", "git ls-remote"),
    (no_repository, "git gone", "broken", "Check that the repository exists", "git ls-remote"),
    (mlflow_wants_a_login, "MLflow", "broken", "401", "curl"),
    (mlflow_down, "MLflow", "broken", "127.0.0.1:9", "curl"),
    (dns_flickers, "DNS", "warning", "registry.registry.svc resolved 3 of 5 times", "kube-dns"),
    (kubelet_behind_a_firewall, "kubelet logs", "broken", "gpu-2 unreachable", "10250"),
]


@pytest.mark.parametrize(
    ("plant", "check", "level", "said", "fix"), FAULTS, ids=[f[0].__name__ for f in FAULTS]
)
async def test_checks_of_one_fault_finds_it_with_its_fix(here, plant, check, level, said, fix):
    await plant(here)
    [finding] = await here.examined()
    assert (finding.check, finding.level) == (check, level)
    assert said in finding.found
    assert fix in finding.fix


async def test_missing_exporter_leaves_its_node_without_metrics(here):
    await an_exporter_is_missing(here)
    log, use = await here.examined()
    assert (use.check, use.level) == ("GPU use", "warning")
    assert "dcgm-exporter" in use.fix
    assert "no dcgm-exporter on gpu-2" in use.found
    assert (log.check, log.level, log.found[:14]) == ("kubelet logs", "warning", "gpu-2: unknown")


async def test_exporters_in_another_namespace_need_their_own_roles(here):
    await exporters_may_not_be_asked(here)
    *logs, use = await here.examined()
    assert (use.check, use.level) == ("GPU use", "warning")
    assert "in gpu-operator; GPU use is unknown" in use.found
    assert "deploy/usage" in use.fix
    assert [(log.check, log.level, log.found[:14]) for log in logs] == [
        ("kubelet logs", "warning", "gpu-1: unknown"),
        ("kubelet logs", "warning", "gpu-2: unknown"),
    ]
    assert all("deploy/doctor in gpu-operator" in log.found for log in logs)


async def test_one_fault_can_cause_two_findings(here):
    await nobody_behind_the_webhook(here)
    assert [f.check for f in await here.examined()] == ["Katib validating webhook", "Katib mutating webhook"]


async def test_missing_namespace_is_reported(here):
    await no_namespace(here)
    assert [f.check for f in await here.examined()] == ["RBAC in elsewhere", "namespace elsewhere"]


async def test_every_trial_namespace_is_checked(here):
    here.config = replace(here.config, namespaces=("speech", "vision"))
    rights, *more = await here.examined()
    assert (rights.check, rights.fix) == (
        "RBAC in speech",
        "kubectl -n speech apply -f deploy/namespace/rights.yaml",
    )
    assert "list events" in rights.found
    assert [finding.check for finding in more] == ["RBAC in vision", "namespace vision"]


async def test_missing_scope_is_named(here, monkeypatch):
    all_but_one = [scope for scope in SCOPES if scope != "files:write"]
    monkeypatch.setattr("local.slack.webapi.SCOPES", ",".join(all_but_one))
    [finding] = await here.examined()
    assert (finding.check, finding.found) == ("Slack scopes", "bot token is missing files:write")


async def test_doctor_without_its_role_reports_missing_permissions_and_no_faults(here):
    here.store.delete("ClusterRoleBinding", "", "sweepbot-doctor")
    here.store.delete("ClusterRoleBinding", "", "sweepbot-usage")
    found = await here.examined()
    assert {f.found for f in found} == {"unknown: no permission"}
    assert {f.level for f in found} == {"warning"}
    assert {f.fix for f in found} == {"kubectl apply -k deploy/doctor", "kubectl apply -k deploy/usage"}
    assert len(found) == 9


async def test_unreadable_log_is_unknown_not_broken(here):
    here.store.delete("RoleBinding", "dcgm-exporter", "sweepbot-doctor")
    assert [(f.check, f.level) for f in await here.examined()] == [("kubelet logs", "warning")] * 2
    denied = [finding.found for finding in here.all if finding.check == "kubelet logs"]
    assert denied == [
        f"{node}: unknown; no permission to read logs in dcgm-exporter and kube-system"
        for node in ("gpu-1", "gpu-2")
    ]


async def test_logs_of_kube_system_are_not_granted(here):
    assert [finding.check for finding in await here.examined()] == []
    roles = here.store.list("Role", "kube-system")
    assert not any("pods/log" in rule["resources"] for role in roles for rule in role["rules"])


async def test_one_readable_pod_is_enough(here):
    gpu_operator(here)
    for number in range(5):
        meta = {"name": f"device-plugin-{number}", "namespace": "gpu-operator"}
        spec = {"nodeName": "gpu-1", "containers": [{"name": "main", "image": "x"}]}
        here.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        here.change("Pod", meta["name"], {"status": {"phase": "Running"}}, "gpu-operator", "status")
    assert await here.examined() == []


async def test_prometheus_makes_exporter_access_unnecessary(here):
    await exporters_may_not_be_asked(here)
    await prometheus_down(here)
    assert {finding.check for finding in await here.examined()} == {"Prometheus", "kubelet logs"}


async def test_endless_check_is_stopped(here, monkeypatch):
    monkeypatch.setattr(checks, "CHECK_TIMEOUT", 0.5)

    async def silent(_):
        await asyncio.Event().wait()

    here.mlflow_status = None
    monkeypatch.setitem(checks.probe_services.CHECKS, "MLflow", silent)
    [finding] = [f for f in await here.examined() if f.check == "MLflow"]
    assert "no answer within" in finding.found


async def test_findings_contain_no_secrets(here):
    here.settings |= {"slack_bot_token": "xoxb-planted", "slack_app_token": "xapp-planted"}
    here.settings |= {"redis_url": "redis://:planted@127.0.0.1:9/0"}
    await here.examined()
    assert "planted" not in as_lines(here.all)


class Whispers:
    def __init__(self, refuses=()):
        self.heard, self.refuses = [], refuses

    async def post_ephemeral(self, user, text, response_url):
        if user in self.refuses:
            raise NotInChannelError(user)
        self.heard.append((user, text.partition("\n")[0], response_url))


async def test_checks_answers_each_requester_once(here):
    records, slack_ = Records(here.redis), Whispers(refuses={"U2"})
    for user in ("U1", "U2", "U3"):
        await records.add_command(
            str(DOCTOR),
            Command(action=Action.EXAMINE, user=user, user_name="", response_url=f"url-{user}"),
        )
    clients = SimpleNamespace(
        store=records, slack=slack_, settings=Settings(**here.settings), config=here.config, mask=Mask()
    )
    await checks.answer_commands(DOCTOR.key, clients)
    await checks.answer_commands(DOCTOR.key, clients)
    counts = "*Sweepbot doctor:* 0 broken, 0 warnings, 22 ok"
    assert slack_.heard == [("U1", counts, "url-U1"), ("U3", counts, "url-U3")]
    assert await records.commands(str(DOCTOR)) == []
