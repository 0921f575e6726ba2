"""One fault each in a healthy installation, with the finding and the fix that the doctor reports."""

from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from k8s.nodes.dcgm import is_exporter
from local.kubernetes.apiserver.kinds import refusal
from tests.bot.operate.installation import LABEL

GPU = "nvidia.com/gpu"


async def slack_token(here):
    here.settings["slack_bot_token"] = "xoxb-of-another-app"


async def slack_app_token(here):
    here.settings["slack_app_token"] = "xapp-of-another-app"


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


async def mysql_killed_by_its_probe(here):
    unready = {"status": {"readyReplicas": None}}
    here.change("Deployment", "katib-mysql", unready, "kubeflow", subresource="status")


async def webhook_without_backend(here):
    name = here.store.list("EndpointSlice")[0]["metadata"]["name"]
    here.change("EndpointSlice", name, {"endpoints": []}, "kubeflow")


async def no_pod_webhook(here):
    here.store.delete("MutatingWebhookConfiguration", "", "katib.kubeflow.org")


async def a_plugin_pod_is_missing(here):
    here.change("DaemonSet", "nvidia-device-plugin-daemonset", {"status": {"numberReady": 1}}, "kube-system")


async def gpu_is_unavailable(here):
    here.node("gpu-2", allocatable={GPU: "1"})


async def node_is_gone(here):
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


async def mlflow_needs_credentials(here):
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


async def exporters_are_forbidden(here):
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


async def a_sweep_of_a_newer_version(here):
    await here.redis.sadd("sweepbot:active", "lr-brave-otter")
    await here.redis.hset("sweepbot:sweep:lr-brave-otter", "record", '{"schema":99,"id":"lr-brave-otter"}')


# Those of a list are planted together: none hides or causes another.
FAULTS = [
    [
        (slack_token, "Slack token", "broken", "invalid_auth", "SLACK_BOT_TOKEN"),
        (
            redis_forgets,
            "Redis persistence",
            "broken",
            "append-only file is off",
            "CONFIG SET appendonly yes",
        ),
        (
            a_quarantined_sweep,
            "quarantine",
            "warning",
            "lr-brave-otter, since 2025-11-21",
            "/sweep release lr-brave",
        ),
        (a_verb_is_missing, "RBAC in sweeps", "broken", "missing delete jobs", "deploy/base/rights.yaml"),
        (no_crd, "Katib CRDs", "broken", "trials.kubeflow.org", "docs/install.md"),
        (a_plugin_pod_is_missing, "GPU device plugin", "broken", "1/2", "describe daemonset"),
        (two_default_classes, "default StorageClass", "warning", "local-path and nfs", "kubectl patch"),
        (registry_down, "registry", "broken", "127.0.0.1:9 (IMAGE_REGISTRY_API, used by the bot)", "curl"),
        (git_down, "git digits", "broken", "127.0.0.1", "git ls-remote"),
        (mlflow_needs_credentials, "MLflow", "broken", "401", "curl"),
        (kubelet_behind_a_firewall, "kubelet logs", "broken", "gpu-2 unreachable", "10250"),
    ],
    [
        (slack_app_token, "Slack app token", "broken", "invalid_auth", "SLACK_APP_TOKEN"),
        (redis_evicts, "Redis eviction", "warning", "allkeys-lru", "maxmemory-policy noeviction"),
        (
            a_sweep_of_a_newer_version,
            "newer sweeps",
            "broken",
            "lr-brave-otter was stored by a newer",
            "deploy the",
        ),
        (no_label, "namespace sweeps", "broken", "missing label", "kubectl label namespace sweeps"),
        (mysql_killed_by_its_probe, "Katib deployments", "broken", "liveness probe", "startupProbe"),
        (gpu_is_unavailable, "GPU nodes", "warning", "gpu-2: 1 of 2 GPUs not allocatable", "nvidia-smi"),
        (prometheus_down, "Prometheus", "broken", "doesn't answer", "PROMETHEUS_URL"),
        (
            registry_over_https,
            "registry",
            "broken",
            "serves http, not https",
            "IMAGE_REGISTRY_PLAIN_HTTP=true",
        ),
        (no_repository, "git gone", "broken", "Check that the repository exists", "git ls-remote"),
        (mlflow_down, "MLflow", "broken", "127.0.0.1:9", "curl"),
    ],
    [
        (no_app_token, "Slack app token", "broken", "SLACK_APP_TOKEN isn't set", "Basic Information"),
        (no_pod_webhook, "Katib mutating webhook", "broken", "isn't installed", "docs/install.md"),
        (node_is_gone, "GPU nodes", "warning", "gpu-2: not ready", "kubectl describe node gpu-2"),
        (dns_flickers, "DNS", "warning", "registry.registry.svc resolved 3 of 5 times", "kube-dns"),
    ],
    [
        (slack_down, "Slack token", "broken", "unreachable", "curl"),
        (redis_down, "Redis", "broken", "unreachable", "kubectl"),
        (api_down, "Kubernetes API", "broken", "is unreachable", "kubectl version"),
    ],
    [
        (api_token, "Kubernetes API", "broken", "rejects Sweepbot's credentials", "KUBECONFIG"),
    ],
    [
        (no_kubeconfig, "Kubernetes API", "broken", "can't connect", "KUBECONFIG"),
    ],
]
