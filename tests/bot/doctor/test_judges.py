"""From what Slack, Redis and the cluster say to findings: the faults of real clusters, one row each."""

from pathlib import Path

import pytest
import yaml

from bot.doctor import judge_cluster, judge_services
from bot.doctor.findings import Level
from bot.gpus import promql
from k8s.objects import GPU

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


def a_class(name, mark=None):
    return {"metadata": {"name": name, "annotations": {judge_cluster.DEFAULT_CLASS: mark} if mark else {}}}


def hooks(bundle="Y2E=", **config):
    service = {"name": "katib-controller", "namespace": "kubeflow"}
    return {"webhooks": [{"clientConfig": {"caBundle": bundle, "service": service}, **config}]}


OUTSIDE = {"webhooks": [{"clientConfig": {"url": "https://10.0.0.7:8443/mutate-pod?timeout=10s"}}]}
READY, GOING = (
    {"endpoints": [{"conditions": {"ready": True}}]},
    {"endpoints": [{"conditions": {"ready": False}}]},
)
PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"


@pytest.mark.parametrize("mode", ["socket", "http"])
def test_the_scopes_are_those_that_the_app_asks_for(mode):
    manifest = Path(__file__).parents[3] / "deploy" / "slack" / f"manifest-{mode}.yaml"
    asked = yaml.safe_load(manifest.read_text())["oauth_config"]["scopes"]["bot"]
    assert sorted(asked) == sorted(judge_services.SCOPES)


@pytest.mark.parametrize(
    ("finding", "level", "said", "fix"),
    [
        (judge_services.scopes(",".join([*judge_services.SCOPES, "x"])), "ok", "files:write", ""),
        (judge_services.scopes("commands"), "broken", "and users:read.email", "Reinstall"),
        (judge_services.redis_version({"redis_version": "6.2.7"}), "ok", "Redis 6.2.7", ""),
        (
            judge_services.redis_version({"redis_version": "7.2.4", "valkey_version": "9.1.2"}),
            "ok",
            "Valkey 9.1.2",
            "",
        ),
        (
            judge_services.redis_version({"redis_version": "5.0.14"}),
            "broken",
            "Redis 5.0.14 is too old",
            "6.2",
        ),
        (judge_services.persistence(AOF, ""), "ok", "append-only", ""),
        (
            judge_services.persistence(AOF | {"aof_last_write_status": "err"}, ""),
            "broken",
            "can't be written",
            "df -h",
        ),
        (judge_services.persistence({"aof_enabled": 0}, ""), "broken", "keeps nothing", "appendonly yes"),
        (
            judge_services.persistence({"aof_enabled": 0}, "3600 1"),
            "broken",
            "last snapshot",
            "appendonly yes",
        ),
        (
            judge_services.persistence({"aof_enabled": 0}, None),
            "broken",
            "at most a snapshot",
            "appendonly yes",
        ),
        (judge_services.persistence({}, None), "warning", "unknown", "appendonly yes"),
        (judge_services.eviction({"maxmemory_policy": "noeviction"}), "ok", "noeviction", ""),
        (
            judge_services.eviction({"maxmemory_policy": "allkeys-lru"}),
            "warning",
            "allkeys-lru",
            "noeviction",
        ),
        (judge_services.mlflow("http://mlflow.mlflow.svc:5000", "500 oops"), "broken", "500 oops", "curl"),
        (
            judge_services.mlflow("http://m:5000", "403 Invalid Host header"),
            "broken",
            "403",
            "allowed-hosts m:5000",
        ),
        (
            judge_cluster.rights("sweeps", {"list pods": True}, "kubectl apply -f it"),
            "ok",
            "all 1 of them",
            "",
        ),
        (
            judge_cluster.rights("sweeps", {"list pods": True, "get pods/log": False}, "kubectl apply -f it"),
            "broken",
            "get pods/log",
            "apply -f",
        ),
        (
            judge_cluster.namespace("sweeps", None),
            "broken",
            "does not exist",
            "kubectl create namespace sweeps",
        ),
        (judge_cluster.build_namespace("b", {"metadata": {}}), "ok", "for builds alone", ""),
        (judge_cluster.build_namespace("b", None), "broken", "does not exist", "deploy/builds/rights.yaml"),
        (
            judge_cluster.build_namespace(
                "b", {"metadata": {"labels": {judge_cluster.INJECTION: "enabled"}}}
            ),
            "warning",
            "builds stop whenever Katib's webhook is away",
            f"kubectl label namespace b {judge_cluster.INJECTION}-",
        ),
        (judge_cluster.namespace("sweeps", {"metadata": {}}), "broken", "lacks the label", "kubectl label"),
        (judge_cluster.katib_deployments(katib(katib_mysql=1)), "ok", "katib-mysql ready in kubeflow", ""),
        (judge_cluster.katib_deployments(katib()), "ok", "katib-controller and katib-db-manager ready", ""),
        (
            judge_cluster.katib_deployments(katib(katib_db_manager=None)),
            "broken",
            "katib-db-manager not found",
            "install",
        ),
        (
            judge_cluster.katib_deployments(katib(katib_controller=0)),
            "broken",
            "not ready: katib-controller",
            "describe",
        ),
        (
            judge_cluster.katib_webhook("ValidatingX", hooks(), [READY]),
            "ok",
            "katib-controller in kubeflow",
            "",
        ),
        (judge_cluster.katib_webhook("ValidatingX", None, []), "broken", "not installed", "install"),
        (
            judge_cluster.katib_webhook("MutatingX", OUTSIDE, []),
            "ok",
            "calls https://10.0.0.7:8443/mutate-pod; Sweepbot can't check",
            "",
        ),
        (
            judge_cluster.katib_webhook("ValidatingX", hooks(""), [READY]),
            "broken",
            "no certificate",
            "rollout restart",
        ),
        (
            judge_cluster.katib_webhook("MutatingX", hooks(), [GOING]),
            "broken",
            "nobody answers",
            "rollout restart",
        ),
        (judge_cluster.storage_class([a_class("local-path", "true")]), "ok", "local-path", ""),
        (
            judge_cluster.storage_class([]),
            "broken",
            "the cluster has no StorageClass",
            "install a storage provisioner: docs/install.md, step 2",
        ),
        (
            judge_cluster.storage_class([a_class("nfs")]),
            "broken",
            "none of nfs is",
            "kubectl patch storageclass nfs",
        ),
        (
            judge_cluster.storage_class([a_class("a", "true"), a_class("b", "true")]),
            "warning",
            "a and b",
            '"false"',
        ),
        (
            judge_cluster.kubelet("gpu-1", "dial tcp 10.0.0.5:10250: i/o timeout"),
            "broken",
            "i/o timeout",
            "10250",
        ),
        (
            judge_cluster.kubelet("gpu-1", "remote error: tls: internal error"),
            "broken",
            "tls",
            "certificate approve",
        ),
    ],
)
def test_one_answer_one_finding(finding, level, said, fix):
    assert (finding.level, said in finding.found) == (level, True), finding
    assert fix in finding.fix
    assert bool(finding.fix) == (finding.level != "ok")


def test_a_mysql_that_its_own_probe_kills_is_told_with_the_probe_that_helps():
    mysql = a_workload("katib-mysql", {}, **MYSQL)
    finding = judge_cluster.katib_deployments([*katib(), mysql])
    assert "liveness probe kills it" in finding.found
    assert "startupProbe" in finding.fix
    patient = a_workload("katib-mysql", {}, **MYSQL, startupProbe={})
    assert "liveness" not in judge_cluster.katib_deployments([*katib(), patient]).found


@pytest.mark.parametrize(
    ("name", "image", "counts", "level", "said"),
    [
        ("nvidia-device-plugin-daemonset", "x", (2, 2), "ok", "2/2"),
        ("nvdp", PLUGIN, (2, 2), "ok", "nvdp 2/2"),
        ("amdgpu-device-plugin-daemonset", "rocm/k8s-device-plugin", (1, 1), "ok", "1/1"),
        ("nvdp", PLUGIN, (1, 2), "broken", "1/2"),
        ("nvdp", PLUGIN, (0, 0), "broken", "fits no node"),
        ("sriov-device-plugin", "sriov", (2, 2), "broken", "there is none"),
    ],
)
def test_the_device_plugin_is_recognised_and_counted(name, image, counts, level, said):
    status = dict(zip(("numberReady", "desiredNumberScheduled"), counts, strict=True))
    [finding] = judge_cluster.device_plugins([a_workload(name, status, image)])
    assert (finding.level, said in finding.found) == (level, True), finding


def test_a_helper_of_the_plugin_that_fits_no_node_is_not_its_fault():
    plugin = a_workload("nvdp", {"numberReady": 2, "desiredNumberScheduled": 2}, PLUGIN)
    helper = a_workload("nvdp-mps-control-daemon", {"desiredNumberScheduled": 0}, PLUGIN)
    assert [f.found for f in judge_cluster.device_plugins([helper, plugin])] == ["nvdp 2/2"]


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([a_node(), a_node("gpu-2")], [("ok", "8 GPUs on 2 nodes")]),
        ([a_node(), a_node("cpu", 0, 0)], [("ok", "4 GPUs on 1 nodes")]),
        ([a_node("cpu", 0, 0)], [("broken", f"no node has {GPU}")]),
        ([a_node(allocatable=3)], [("warning", "1 of 4 GPUs fell out of gpu-1")]),
        ([a_node(allocatable=0), a_node("gpu-2")], [("warning", "4 of 4 GPUs fell out of gpu-1")]),
        ([a_node(ready="Unknown"), a_node("gpu-2")], [("warning", "gpu-1 is not ready")]),
        ([a_node(unschedulable=True), a_node("gpu-2")], [("warning", "gpu-1 is cordoned")]),
        # With no usable GPU left, it is the installation that is broken.
        (
            [a_node(ready="False"), a_node("gpu-2", unschedulable=True)],
            [("broken", "gpu-1 is not ready"), ("broken", "gpu-2 is cordoned")],
        ),
    ],
)
def test_nodes_and_the_gpus_that_fell_out_of_them(nodes, found):
    assert [(f.level, f.found) for f in judge_cluster.gpu_nodes(nodes)] == found


def test_only_served_versions_of_a_crd_count():
    served = {"spec": {"versions": [{"name": "v1beta1", "served": True}]}}
    old = {"spec": {"versions": [{"name": "v1beta1", "served": False}]}}
    assert judge_cluster.katib_crds({"trials": served}).level is Level.OK
    assert "trials, experiments" in judge_cluster.katib_crds({"trials": old, "experiments": None}).found


def test_a_name_that_resolves_now_and_then_is_a_warning_with_counts():
    found = judge_services.dns({"good": 5, "flaky": 3, "gone": 0}, 5)
    assert [(f.level, f.found) for f in found] == [
        ("warning", "flaky was resolved 3 times of 5"),
        ("broken", "gone was resolved 0 times of 5"),
    ]
    assert judge_services.dns({"good": 5}, 5)[0].level is Level.OK


def test_a_pods_series_without_which_nobody_is_warned_are_looked_for() -> None:
    needed = {
        "kube_pod_container_resource_requests",
        "kube_pod_container_state_started",
        "kube_pod_status_phase",
    }
    used = {metric for metric in needed if metric in promql.HELD + promql.STARTED}
    assert used == needed <= judge_services.SERIES.keys()


def test_a_prometheus_without_series_is_no_help():
    finding = judge_services.prometheus("http://prometheus", {"dcgm-exporter": 0, "kube-state-metrics": 4})
    assert (finding.level, finding.found) == (
        Level.BROKEN,
        "has no series of dcgm-exporter: GPU use stays unknown",
    )
    assert judge_services.prometheus("http://prometheus", {"dcgm-exporter": 8}).found == (
        "8 series of dcgm-exporter"
    )
