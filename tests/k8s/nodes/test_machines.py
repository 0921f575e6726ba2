"""What keeps a trial, or any pod, from a machine: sizes, labels, and taints."""

import pytest

from k8s.katib.pod_shape import PodShape
from k8s.nodes.machines import Machine, barriers, can_run, fits, lacking, read_machine, tolerates
from tests.cases import cases

GPU = "nvidia.com/gpu"
TEAM = {"key": "team", "value": "vision", "effect": "NoSchedule"}
SIZES = {"cpu": 8, "memory": 2**36, GPU: 4}


def a_machine(taints=(), labels=None, **sizes):
    return Machine(name="node n1", resources=SIZES | sizes, labels=labels or {}, taints=tuple(taints))


def test_machine_has_devices_by_capacity_and_the_rest_by_what_is_allocatable():
    status = {
        "capacity": {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"},
        "allocatable": {"cpu": "63500m", "memory": "500Gi", GPU: "6", "pods": "1e2"},
    }
    meta, spec = {"name": "n1", "labels": {"gpu": "h100"}}, {"taints": [TEAM], "unschedulable": True}
    machine = read_machine({"metadata": meta, "spec": spec, "status": status})
    assert (machine.name, machine.labels, machine.taints) == ("node n1", {"gpu": "h100"}, (TEAM,))
    assert machine.resources == {"cpu": 63.5, "memory": 500 * 2**30, GPU: 8, "pods": 100}


@pytest.mark.parametrize(
    ("shape", "gpus", "lacks"),
    [
        (PodShape(cpu="8", memory="64Gi"), 4, []),
        (PodShape(cpu="8001m"), 4, ["cpu"]),
        (PodShape(memory="65Gi"), 5, ["memory", GPU]),
        (PodShape(resources={"rdma/hca": "1"}), 0, ["rdma/hca"]),
        (PodShape(), 0, []),
    ],
)
def test_lacking_names_what_an_empty_machine_has_too_little_of(shape, gpus, lacks):
    assert lacking(shape, gpus, a_machine()) == lacks
    assert fits(shape, gpus, a_machine()) is (not lacks)


@cases(
    ("shape", "taints", "labels", "found"),
    [
        (PodShape(), [TEAM], {}, ["taint team=vision"]),
        (PodShape(), [{"key": "spot", "effect": "NoExecute"}], {}, ["taint spot"]),
        (PodShape(), [TEAM | {"effect": "PreferNoSchedule"}], {}, []),
        (PodShape(), [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}], {}, []),
        (PodShape(), [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}], {}, []),
        (PodShape(), [{"key": "efs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}], {}, []),
        (PodShape(), [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}], {}, []),
        (PodShape(), [{"key": GPU, "value": "present", "effect": "NoSchedule"}], {}, []),
        (PodShape(tolerations=({"key": "team", "operator": "Exists"},)), [TEAM], {}, []),
        (PodShape(nodes={"gpu": "h100"}), [], {"gpu": "h100"}, []),
        (PodShape(nodes={"gpu": "h100"}), [], {"gpu": "a100"}, ["missing label gpu=h100"]),
        (PodShape(node_choices={"zone": ("a", "b")}), [], {"zone": "b"}, []),
        (PodShape(node_choices={"zone": ("a", "b")}), [], {"zone": "c"}, ["missing label zone in (a, b)"]),
    ],
)
def test_barriers_are_lasting_taints_and_missing_labels(shape, taints, labels, found):
    machine = a_machine(taints, labels)
    assert barriers(shape, 1, machine) == found
    assert fits(shape, 1, machine) is (not found)


def test_taint_named_like_the_gpus_keeps_trials_without_gpus_away():
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    assert barriers(PodShape(), 0, a_machine([taint])) == [f"taint {GPU}=present"]


@cases(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "value": "vision"}, True),
        ({"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "speech"}, False),
        ({"key": "team"}, False),
    ],
)
def test_toleration_matches_key_value_and_effect(toleration, tolerated):
    assert tolerates(toleration, TEAM) is tolerated


LABELS = {"gpu": "h100", "age": "3"}


@cases(
    ("operator", "key", "values", "runs"),
    [
        ("In", "gpu", ["a100", "h100"], True),
        ("In", "zone", ["a"], False),
        ("NotIn", "gpu", ["h100"], False),
        ("NotIn", "zone", ["a"], True),
        ("Exists", "gpu", None, True),
        ("Exists", "zone", None, False),
        ("DoesNotExist", "gpu", None, False),
        ("DoesNotExist", "zone", None, True),
        ("Gt", "age", ["2"], True),
        ("Gt", "age", ["3"], False),
        ("Lt", "age", ["4"], True),
        ("Lt", "age", ["3"], False),
        ("Lt", "gpu", ["4"], False),  # not a number
        ("Gt", "zone", ["-1"], False),
        ("Near", "gpu", ["h100"], False),
    ],
)
def test_node_affinity_has_kubernetes_operators(operator, key, values, runs):
    rule = {"key": key, "operator": operator} | ({"values": values} if values else {})
    assert can_run(required({"matchExpressions": [rule]}), LABELS, ()) is runs


def required(*terms):
    rules = {"nodeSelectorTerms": [*terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}}


HAS_GPU, OLD, ABSENT = (
    {"key": "gpu", "operator": "Exists"},
    {"key": "age", "operator": "Gt", "values": ["5"]},
    {"key": "zone", "operator": "Exists"},
)


@pytest.mark.parametrize(
    ("terms", "runs"),
    [
        ([{"matchExpressions": [HAS_GPU, OLD]}], False),  # all of a term
        ([{"matchExpressions": [ABSENT]}, {"matchExpressions": [HAS_GPU]}], True),  # any term
        ([{"matchExpressions": []}], False),
        ([{"matchExpressions": [HAS_GPU], "matchFields": [{"key": "metadata.name"}]}], False),
        ([], False),
    ],
)
def test_node_affinity_needs_all_rules_of_one_term(terms, runs):
    assert can_run(required(*terms), LABELS, ()) is runs


@cases(
    ("pod", "taints", "resource", "runs"),
    [
        ({}, (), "", True),
        ({"nodeSelector": {"gpu": "h100", "age": "3"}}, (), "", True),
        ({"nodeSelector": {"gpu": "h100", "age": "4"}}, (), "", False),
        ({}, (TEAM,), "", False),
        ({"tolerations": [{"key": "team", "value": "vision"}]}, (TEAM,), "", True),
        ({}, (TEAM | {"key": GPU},), GPU, True),
        ({}, (TEAM | {"key": GPU}, TEAM), GPU, False),
        ({"affinity": {"podAffinity": {}}}, (), "", True),
    ],
)
def test_pod_runs_where_selector_and_taints_admit_it(pod, taints, resource, runs):
    assert can_run(pod, LABELS, taints, resource) is runs
