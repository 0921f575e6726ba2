"""Pods and nodes as the scheduler counts them."""

import pytest

from k8s.nodes.scheduling import admits, gpu_count, gpu_resource, pod_needs, read_open_node, read_scheduled
from tests.cases import cases

GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True"}


def container(limits=None, **requests):
    return {"name": "main", "resources": {"requests": requests, "limits": limits or {}}}


def a_pod(status=None, meta=None, **spec):
    spec = {"containers": [container(cpu="1")]} | spec
    return {
        "metadata": {"namespace": "lab", "name": "p", "uid": "u"} | (meta or {}),
        "spec": spec,
        "status": {"phase": "Pending"} | (status or {}),
    }


def unscheduled(reason="Unschedulable", message="0/1 nodes are available: 1 Insufficient cpu."):
    why = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"conditions": [why]}


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"containers": [container(cpu="500m"), container(cpu="1.5")]}, {"cpu": 2000}),
        ({"containers": [container({GPU: "2", "cpu": "4"}, cpu="1")]}, {GPU: 2000, "cpu": 1000}),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        (
            {"containers": [container(cpu="1", memory="1")], "resources": {"requests": {"cpu": "4"}}},
            {"cpu": 4000, "memory": 1000},
        ),
        ({"containers": [container(cpu="1e1")]}, {"cpu": 10_000}),
        ({"containers": [container(cpu="0.0001")]}, {"cpu": 1}),  # rounded up
        ({"containers": [{"name": "main"}]}, {}),
    ],
)
def test_pod_needs_sums_its_containers(spec, needs):
    assert pod_needs(spec) == needs | {"pods": 1000}


@pytest.mark.parametrize(
    ("inits", "cpu"),
    [
        ([("3", "")], 3),  # it runs before the others
        ([("1", "")], 2),
        ([("3", ""), ("4", "")], 4),  # one after another
        ([("1", "Always")], 3),  # a sidecar keeps running
        ([("1", "Always"), ("5", "")], 6),
        ([("5", ""), ("1", "Always")], 5),
    ],
)
def test_pod_needs_counts_init_containers_as_the_scheduler_does(inits, cpu):
    policies = [container(cpu=size) | ({"restartPolicy": policy} if policy else {}) for size, policy in inits]
    spec = {"containers": [container(cpu="2")], "initContainers": policies}
    assert pod_needs(spec)["cpu"] == cpu * 1000


def test_gpus_are_counted_by_any_resource_of_gpus():
    needs = pod_needs({"containers": [container({"nvidia.com/mig-1g.5gb": "3"}, cpu="1")]})
    assert (gpu_count(needs), gpu_resource(needs)) == (3, "nvidia.com/mig-1g.5gb")
    assert (gpu_count({"cpu": 4000}), gpu_resource({"cpu": 4000})) == (0, "")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_is_not_scheduled(phase):
    assert read_scheduled(a_pod({"phase": phase}, nodeName="n1")) is None


@cases(
    ("status", "waits"),
    [
        (unscheduled(), True),
        (unscheduled(message=""), True),
        (unscheduled(message="0/1 nodes are available: 1 Too many pods."), True),
        (unscheduled(message="0/1 nodes are available: pod has unbound claims."), False),
        (unscheduled("SchedulingGated"), False),
        ({"conditions": [{"type": "PodScheduled", "status": "True", "reason": "Unschedulable"}]}, False),
        ({"conditions": [READY, *unscheduled()["conditions"]]}, True),
        ({}, False),
    ],
)
def test_pod_waits_only_for_resources_that_can_become_free(status, waits):
    assert read_scheduled(a_pod(status)).waits is waits


@pytest.mark.parametrize(
    ("spec", "preempts"),
    [
        ({}, True),
        ({"preemptionPolicy": "PreemptLowerPriority"}, True),
        ({"preemptionPolicy": "Never"}, False),
        ({"schedulerName": "default-scheduler"}, True),
        ({"schedulerName": "volcano"}, False),
    ],
)
def test_pod_preempts_by_the_default_scheduler_and_its_policy(spec, preempts):
    assert read_scheduled(a_pod(**spec)).preempts is preempts


def test_placement_matters_only_without_a_node():
    selector = {"nodeSelector": {"gpu": "h100"}, "tolerations": []}
    assert read_scheduled(a_pod(**selector)).placement == {"nodeSelector": {"gpu": "h100"}}
    assert read_scheduled(a_pod(**selector, nodeName="n1")).placement == {}


@pytest.mark.parametrize(
    ("owners", "labels", "deployment"),
    [
        ([("ReplicaSet", "llm-7d9f")], {"pod-template-hash": "7d9f"}, "llm"),
        ([("ReplicaSet", "llm-7d9f")], {"pod-template-hash": "5c5c"}, ""),
        ([("ReplicaSet", "llm-")], {}, ""),
        ([("StatefulSet", "llm-7d9f")], {"pod-template-hash": "7d9f"}, ""),
        ([], {"pod-template-hash": "7d9f"}, ""),
    ],
)
def test_deployment_is_the_prefix_of_its_replica_set(owners, labels, deployment):
    owners = [{"kind": kind, "name": name} for kind, name in owners]
    meta = {"ownerReferences": owners, "labels": labels}
    assert read_scheduled(a_pod(meta=meta)).deployment == deployment


def test_scheduled_pod_has_what_decides_about_it():
    meta = {"deletionTimestamp": "2026-11-22T20:00:00Z", "labels": {"sweepbot/sweep": "lr-brave-otter"}}
    status = {"conditions": [READY], "nominatedNodeName": "n2", "phase": "Running"}
    pod = read_scheduled(a_pod(status, meta, priority=-5, nodeName="n1"))
    assert (pod.key, pod.node, pod.nominated) == ("lab/p", "n1", "n2")
    assert (pod.terminating, pod.ready, pod.priority, pod.sweep) == (True, True, -5, "lr-brave-otter")
    plain = read_scheduled(a_pod())
    born = {"creationTimestamp": "2026-11-22T20:00:00Z"}
    assert (read_scheduled(a_pod(meta=born)).created, plain.created) == ("2026-11-22T20:00:00Z", "")
    assert (plain.terminating, plain.ready, plain.priority, plain.gpus) == (False, False, 0, 0)


def a_node(*conditions, meta=None, taints=(), **spec):
    sizes = {"cpu": "1.9999", GPU: "8"}
    return {
        "metadata": {"name": "n1"} | (meta or {}),
        "spec": {"taints": list(taints)} | spec,
        "status": {"allocatable": sizes, "conditions": list(conditions)},
    }


def test_open_node_has_whole_thousandths_rounded_down():
    assert read_open_node(a_node(READY)).sizes == {"cpu": 1999, GPU: 8000}


@pytest.mark.parametrize(
    "node",
    [
        a_node(),
        a_node(READY | {"status": "Unknown"}),
        a_node({"type": "MemoryPressure", "status": "True"}),
        a_node(READY, unschedulable=True),
        a_node(READY, meta={"deletionTimestamp": "2026-11-22T20:00:00Z"}),
        a_node(READY, taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]),
        a_node(READY, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoExecute"}]),
        a_node(READY, taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
        a_node(READY, taints=[{"key": "fsx.csi.aws.com/agent-not-ready", "effect": "NoExecute"}]),
    ],
)
def test_node_that_is_leaving_or_unwell_is_not_open(node):
    assert read_open_node(node) is None


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "node.kubernetes.io/disk-pressure", "effect": "PreferNoSchedule"},
        {"key": "team", "value": "vision", "effect": "NoSchedule"},
    ],
)
def test_node_with_a_lasting_taint_is_open_to_those_that_tolerate_it(taint):
    assert read_open_node(a_node(READY, taints=[taint])).taints == (taint,)


@pytest.mark.parametrize(
    ("where", "resource", "admitted"),
    [
        ({}, "", False),
        ({}, GPU, True),
        ({"tolerations": [{"key": GPU, "operator": "Exists"}]}, "", True),
        ({"nodeSelector": {"gpu": "h100"}}, GPU, True),
        ({"nodeSelector": {"gpu": "a100"}}, GPU, False),
    ],
)
def test_node_admits_by_taints_and_labels(where, resource, admitted):
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    node = read_open_node(a_node(READY, meta={"labels": {"gpu": "h100"}}, taints=[taint]))
    assert admits(node, where, resource) is admitted
