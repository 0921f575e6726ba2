"""Evaluate answers of Slack, Redis, and the cluster: the faults of real clusters, one row each."""

from pathlib import Path

import pytest
import yaml

from bot.core.finding import Level
from bot.measure.sources import promql
from bot.measure.sources.cpu_use import CPU, RAM
from bot.operate.check_cluster import (
    DEFAULT_CLASS,
    OLD_DEFAULT_CLASS,
    evaluate_build_namespace,
    evaluate_namespace,
    granted,
    katib_crds,
    katib_deployments,
    katib_webhook,
    storage_class,
)
from bot.operate.check_gpus import (
    device_plugins,
    exporters,
    gpu_checks,
    gpu_nodes,
    unreachable_kubelet,
)
from bot.operate.check_services import GROUPS_SCOPE, SCOPES, mlflow, scopes
from bot.operate.check_state import (
    METRIC_QUERIES,
    cpu_use,
    dns,
    eviction,
    hosts_to_resolve,
    monitoring,
    persistence,
    prometheus,
    redis_version,
)
from bot.platform.config.policy import parse_config
from k8s.katib.training import INJECTION_LABEL
from k8s.objects import GPU
from tests.cases import cases

AOF = {"aof_enabled": 1, "aof_last_write_status": "ok"}
MYSQL = {"livenessProbe": {"initialDelaySeconds": 10}}


def a_node(name="gpu-1", capacity=4, allocatable=4, ready="True", **spec):
    status = {"capacity": {GPU: str(capacity)}, "allocatable": {GPU: str(allocatable)}}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": spec, "status": {**status, "conditions": conditions}}


def a_workload(name, status, image="", **container):
    spec = {"template": {"spec": {"containers": [{"name": name, "image": image, **container}]}}}
    return {"metadata": {"name": name, "namespace": "kubeflow"}, "spec": spec, "status": status}


def katib(**ready):
    names = {"katib-controller": 1, "katib-db-manager": 1} | {
        n.replace("_", "-"): r for n, r in ready.items()
    }
    return [a_workload(name, {"readyReplicas": n} if n else {}) for name, n in names.items() if n is not None]


def a_class(name, mark=None, annotation=DEFAULT_CLASS):
    return {"metadata": {"name": name, "annotations": {annotation: mark} if mark else {}}}


def hooks(bundle="Y2E=", **config):
    service = {"name": "katib-controller", "namespace": "kubeflow"}
    return {"webhooks": [{"clientConfig": {"caBundle": bundle, "service": service}, **config}]}


EXTERNAL = {"webhooks": [{"clientConfig": {"url": "https://10.0.0.7:8443/mutate-pod?timeout=10s"}}]}
READY, TERMINATING = (
    {"endpoints": [{"conditions": {"ready": True}}]},
    {"endpoints": [{"conditions": {"ready": False}}]},
)
PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"


@pytest.mark.parametrize("mode", ["socket", "http"])
def test_scopes_equal_those_of_the_app_manifest(mode):
    manifest = Path(__file__).parents[3] / "deploy" / "slack" / f"manifest-{mode}.yaml"
    asked = yaml.safe_load(manifest.read_text())["oauth_config"]["scopes"]["bot"]
    assert sorted(asked) == sorted([*SCOPES, GROUPS_SCOPE])


@cases(
    ("finding", "level", "words", "fix"),
    [
        (scopes(",".join([*SCOPES, "x"])), "ok", "files:write", ""),
        (scopes("commands"), "broken", "and users:read.email", "Reinstall"),
        (
            scopes(",".join(SCOPES), [*SCOPES, GROUPS_SCOPE]),
            "broken",
            "is missing usergroups:read",
            "Reinstall",
        ),
        (redis_version({"redis_version": "6.2.7"}), "ok", "Redis 6.2.7", ""),
        (redis_version({"redis_version": "7.2.4", "valkey_version": "9.1.2"}), "ok", "Valkey 9.1.2", ""),
        (redis_version({"redis_version": "5.0.14"}), "broken", "Redis 5.0.14 is too old", "6.2"),
        (persistence(AOF, ""), "ok", "append-only", ""),
        (persistence(AOF | {"aof_last_write_status": "err"}, ""), "broken", "can't be written", "df -h"),
        (persistence({"aof_enabled": 0}, ""), "broken", "loses everything", "appendonly yes"),
        (persistence({"aof_enabled": 0}, "3600 1"), "broken", "last snapshot", "appendonly yes"),
        (
            persistence({"aof_enabled": 0}, None),
            "broken",
            "after the last snapshot, if any",
            "appendonly yes",
        ),
        (persistence({}, None), "warning", "unknown", "appendonly yes"),
        (eviction({"maxmemory_policy": "noeviction"}), "ok", "noeviction", ""),
        (eviction({"maxmemory_policy": "allkeys-lru"}), "warning", "allkeys-lru", "noeviction"),
        (mlflow("http://mlflow.mlflow.svc:5000", "500 oops"), "broken", "500 oops", "curl"),
        (mlflow("http://m:5000", "302 Found"), "broken", "302", "MLFLOW_TRACKING_URI"),
        (mlflow("http://m:5000", "403 Invalid Host header"), "broken", "403", "allowed-hosts m:5000"),
        (evaluate_namespace("sweeps", None), "broken", "doesn't exist", "kubectl create namespace sweeps"),
        (evaluate_build_namespace("b", {"metadata": {}}), "ok", "builds only", ""),
        (evaluate_build_namespace("b", None), "broken", "doesn't exist", "deploy/builds/rights.yaml"),
        (
            evaluate_build_namespace("b", {"metadata": {"labels": {INJECTION_LABEL: "enabled"}}}),
            "warning",
            "builds can't start while Katib's webhook is unavailable",
            f"kubectl label namespace b {INJECTION_LABEL}-",
        ),
        (evaluate_namespace("sweeps", {"metadata": {}}), "broken", "missing label", "kubectl label"),
        (*katib_deployments(katib(katib_mysql=1)), "ok", "katib-mysql ready in kubeflow", ""),
        (*katib_deployments(katib()), "ok", "katib-controller and katib-db-manager ready", ""),
        (*katib_deployments(katib(katib_db_manager=None)), "broken", "katib-db-manager not found", "install"),
        (*katib_deployments(katib(katib_controller=0)), "broken", "not ready: katib-controller", "describe"),
        (katib_webhook("ValidatingX", hooks(), [READY]), "ok", "katib-controller in kubeflow", ""),
        (katib_webhook("ValidatingX", None, []), "broken", "isn't installed", "install"),
        (
            katib_webhook("MutatingX", EXTERNAL, []),
            "ok",
            "calls https://10.0.0.7:8443/mutate-pod; Sweepbot can't check",
            "",
        ),
        (
            katib_webhook("ValidatingX", hooks(""), [READY]),
            "broken",
            "no CA bundle",
            f"{INJECTION_LABEL}- && kubectl -n kubeflow rollout restart deployment katib-controller && ",
        ),
        (
            katib_webhook("MutatingX", hooks(), [TERMINATING]),
            "broken",
            "no ready endpoints",
            f"katib-controller && kubectl label namespace kubeflow {INJECTION_LABEL}=enabled",
        ),
        (*storage_class([a_class("local-path", "true")]), "ok", "local-path", ""),
        (*storage_class([a_class("oci", "true", OLD_DEFAULT_CLASS)]), "ok", "oci", ""),
        (
            *storage_class([]),
            "broken",
            "no StorageClass exists",
            "install a storage provisioner: docs/install.md, step 4",
        ),
        (*storage_class([a_class("nfs")]), "broken", "none set (nfs)", "kubectl patch storageclass nfs"),
        (*storage_class([a_class("a", "true"), a_class("b", "true")]), "warning", "a and b", '"false"'),
        (
            unreachable_kubelet("gpu-1", "dial tcp 10.0.0.5:10250: i/o timeout"),
            "broken",
            "i/o timeout",
            "10250",
        ),
        (
            unreachable_kubelet("gpu-1", "remote error: tls: internal error"),
            "broken",
            "tls",
            "certificate approve",
        ),
    ],
)
def test_probe_result_gives_one_finding(finding, level, words, fix):
    assert (finding.level, words in finding.text) == (level, True), finding
    assert fix in finding.fix
    assert bool(finding.fix) == (finding.level != "ok")


def test_mysql_killed_by_its_probe_is_reported_with_the_fix():
    [finding] = katib_deployments([*katib(), a_workload("katib-mysql", {}, **MYSQL)])
    assert "liveness probe kills MySQL" in finding.text
    assert "startupProbe" in finding.fix
    [finding] = katib_deployments([*katib(), a_workload("katib-mysql", {}, **MYSQL, startupProbe={})])
    assert "liveness" not in finding.text


@pytest.mark.parametrize(
    ("name", "image", "counts", "level", "words"),
    [
        ("nvidia-device-plugin-daemonset", "x", (2, 2), "ok", "2/2"),
        ("nvdp", PLUGIN, (2, 2), "ok", "nvdp 2/2"),
        ("amdgpu-device-plugin-daemonset", "rocm/k8s-device-plugin", (1, 1), "ok", "1/1"),
        ("nvdp", PLUGIN, (1, 2), "broken", "1/2"),
        ("nvdp", PLUGIN, (0, 0), "broken", "matches no node"),
        ("sriov-device-plugin", "sriov", (2, 2), "broken", "not found"),
    ],
)
def test_device_plugin_is_recognized_and_counted(name, image, counts, level, words):
    status = dict(zip(("numberReady", "desiredNumberScheduled"), counts, strict=True))
    [finding] = device_plugins([a_workload(name, status, image)], [a_node(allocatable=0)])
    assert (finding.level, words in finding.text) == (level, True), finding


@pytest.mark.parametrize("status", [None, {"numberReady": 0, "desiredNumberScheduled": 0}])
def test_gpus_that_no_known_plugin_provides_are_no_error(status):
    plugins = [a_workload("nvdp", status, PLUGIN)] if status else []
    [finding] = device_plugins(plugins, [a_node(), a_node("gpu-2"), a_node("cpu", 0, 0)])
    found = "no known DaemonSet, but 2 nodes with allocatable GPUs"
    assert (finding.level, finding.text) == ("ok", found)


def test_plugin_helper_without_matching_nodes_is_no_error():
    plugin = a_workload("nvdp", {"numberReady": 2, "desiredNumberScheduled": 2}, PLUGIN)
    helper = a_workload("nvdp-mps-control-daemon", {"desiredNumberScheduled": 0}, PLUGIN)
    assert [f.text for f in device_plugins([helper, plugin], [a_node()])] == ["nvdp 2/2"]


@cases(
    ("nodes", "found"),
    [
        ([a_node(), a_node("gpu-2")], [("ok", "8 GPUs on 2 nodes")]),
        ([a_node(), a_node("cpu", 0, 0)], [("ok", "4 GPUs on 1 node")]),
        ([a_node("cpu", 0, 0)], [("broken", f"no node has {GPU}")]),
        ([a_node(allocatable=3)], [("warning", "gpu-1: 1 of 4 GPUs not allocatable")]),
        ([a_node(allocatable=0), a_node("gpu-2")], [("warning", "gpu-1: 4 of 4 GPUs not allocatable")]),
        ([a_node(ready="Unknown"), a_node("gpu-2")], [("warning", "gpu-1: not ready")]),
        ([a_node(unschedulable=True), a_node("gpu-2")], [("warning", "gpu-1: cordoned")]),
        # With no usable GPU left, it is the installation that is broken.
        (
            [a_node(ready="False"), a_node("gpu-2", unschedulable=True)],
            [("broken", "gpu-1: not ready"), ("broken", "gpu-2: cordoned")],
        ),
    ],
)
def test_nodes_report_unavailable_gpus(nodes, found):
    assert [(f.level, f.text) for f in gpu_nodes(nodes)] == found


@pytest.mark.parametrize(("pool", "levels"), [("{gpus: 8}", ["ok"]), ("{cpu: 8}", ["broken", "broken"])])
async def test_autoscaled_gpus_can_be_away(pool, levels):
    """Its DaemonSet matches no node while the pool is scaled to zero."""
    kinds = {"Node": [a_node("cpu", 0, 0)], "DaemonSet": [a_workload("nvdp", {}, PLUGIN)]}

    class Scaled:
        async def list(self, kind, _namespace):
            return kinds.get(kind, [])

    repositories = "repositories: {d: {url: https://git.example/d.git}}\n"
    pools = parse_config(f"{repositories}pools: {{h100: {pool}}}\n", "config.yaml").pools
    found = [one for check in gpu_checks(pools).values() for one in await check(Scaled())]
    assert [each.level for each in found] == levels


def a_mig_node(**sizes):
    """A node whose GPUs are all divided (MIG strategy `mixed`)."""
    node = a_node("mig-1", 0, 0)
    for each in ("capacity", "allocatable"):
        node["status"][each] |= {"nvidia.com/mig-3g.40gb": "4", "nvidia.com/mig-1g.10gb": "2"}
    node["status"]["allocatable"] |= sizes
    return node


def test_node_with_mig_slices_only_has_gpus():
    [found] = gpu_nodes([a_mig_node()])
    assert (found.level, found.text) == ("ok", "6 GPUs on 1 node")
    [found] = gpu_nodes([a_node(), a_mig_node(**{"nvidia.com/mig-1g.10gb": "1"})])
    assert found.text == "mig-1: 1 of 6 GPUs not allocatable"
    [found] = exporters([], [a_mig_node()])
    assert found.text == "no dcgm-exporter on mig-1; GPU use there is unknown"


class Answers:
    """A cluster with these CustomResourceDefinitions, in which this can be done to pods."""

    def __init__(self, crds=(), verbs=()):
        self.crds, self.verbs = dict(crds), verbs

    async def get(self, ref):
        return self.crds.get(ref.name.partition(".")[0])

    async def create(self, review):
        return {"status": {"allowed": review["spec"]["resourceAttributes"]["verb"] in self.verbs}}


async def test_only_served_crd_versions_count():
    served = {"spec": {"versions": [{"name": "v1beta1", "served": True}]}}
    old = {"spec": {"versions": [{"name": "v1beta1", "served": False}]}}
    kinds = ("experiments", "trials", "suggestions")
    [finding] = await katib_crds(Answers(dict.fromkeys(kinds, served)))
    assert (finding.level, finding.text) == (Level.OK, "3 serve v1beta1")
    [finding] = await katib_crds(Answers({"trials": old, "suggestions": served}))
    assert (finding.level, finding.text) == (
        Level.BROKEN,
        "v1beta1 not served: experiments.kubeflow.org, trials.kubeflow.org",
    )


async def test_missing_permissions_are_named_with_the_command_that_grants_all():
    wanted, apply = {("", "pods"): ("list", "get"), ("", "pods/log"): ("get",)}, "kubectl apply -f it"
    found = await granted(Answers(verbs=("list", "get")), "sweeps", wanted, apply)
    assert (found.check, found.level, found.text) == ("RBAC in sweeps", Level.OK, "3 of 3 granted")
    found = await granted(Answers(verbs=("list",)), "", wanted, apply)
    assert (found.check, found.text) == ("RBAC in all namespaces", "missing get pods, get pods/log")
    assert found.fix == apply


def test_name_that_resolves_intermittently_is_a_warning_with_counts():
    found = dns({"good": 5, "flaky": 3, "gone": 0})
    assert [(f.level, f.text) for f in found] == [
        ("warning", "flaky resolved 3 of 5 times"),
        ("broken", "gone resolved 0 of 5 times"),
    ]
    assert dns({"good": 5})[0].level is Level.OK


def test_dns_resolves_each_sentinel_but_no_address() -> None:
    assert hosts_to_resolve("redis+sentinel://:secret@one,two:26379,10.0.0.1/primary/0") == {"one", "two"}
    assert hosts_to_resolve("unix:///tmp/redis.sock") == hosts_to_resolve("redis://[::1]:6379/0") == set()


def test_series_required_by_idle_warnings_are_checked() -> None:
    needed = {
        "kube_pod_container_resource_requests",
        "kube_pod_container_state_started",
        "kube_pod_status_phase",
    }
    used = {metric for metric in needed if metric in promql.ALLOCATED + promql.POD_STARTED}
    assert used == needed <= METRIC_QUERIES.keys()


@pytest.mark.parametrize(
    ("pods", "alerts", "text"),
    [
        (2, {"SweepbotAbsent", "Watchdog"}, "Prometheus scrapes 2 pods, 1 alert loaded"),
        (2, None, "Prometheus scrapes 2 pods"),
        (2, {"Watchdog"}, "Prometheus has none of Sweepbot's alerts"),
        (0, {"SweepbotAbsent"}, "Prometheus has none of Sweepbot's pods"),
        (0, set(), "Prometheus has none of Sweepbot's pods and alerts"),
    ],
)
def test_monitoring_of_sweepbot_itself(pods, alerts, text):
    finding = monitoring(pods, alerts)
    assert finding.text == text
    assert finding.level is (Level.WARNING if "none" in text else Level.OK)


def test_prometheus_without_series_is_an_error():
    finding = prometheus("http://prometheus", {"dcgm-exporter": 0, "kube-state-metrics": 4})
    assert (finding.level, finding.text) == (Level.BROKEN, "no series from dcgm-exporter; GPU use is unknown")
    finding = prometheus("http://prometheus", {"dcgm-exporter": 0}, labels='cluster="lab"')
    assert finding.fix.endswith('is scraped and up, and that its series have cluster="lab"')
    assert prometheus("http://prometheus", {"dcgm-exporter": 8}).text == ("8 series from dcgm-exporter")
    finding = prometheus("http://prometheus", {"dcgm-exporter": 8}, 2)
    assert finding.level is Level.WARNING
    assert finding.text == "2 pods with GPUs, none named by dcgm-exporter's series; GPU use is unknown"
    finding = prometheus("http://prometheus", {"dcgm-exporter": 8}, clusters=["us", ""])
    assert finding.level is Level.WARNING
    assert finding.text.startswith("GPU nodes of 2 clusters (no name and us); ")
    assert prometheus("http://prometheus", {"dcgm-exporter": 8}, clusters=["us"]).level is Level.OK


def test_prometheus_without_cadvisor_has_no_warnings_about_cpus():
    finding = cpu_use("http://prometheus", {CPU: 8, RAM: 0})
    assert (finding.level, finding.text) == (
        Level.WARNING,
        "no series of container_memory_working_set_bytes; no warnings about CPUs and memory",
    )
    assert cpu_use("http://prometheus", {CPU: 8}).text == "8 series of container_cpu_usage_seconds_total"
