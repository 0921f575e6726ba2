"""What one Deployment can have: blocks of free GPUs, less what other pods wait for."""

import pytest

from bot.workspaces.elastic.supply import read_replica, supply
from tests.bot.workspaces.elastic.factories import (
    GPU,
    deployment_of,
    node_of,
    nodes_of,
    pod_of,
    pods_of,
    replica_of,
    unschedulable,
)
from tests.cases import cases

TERMINATING = {"deletionTimestamp": "2026-11-22T20:00:00Z"}
READY = {"type": "Ready", "status": "True"}


def found(nodes, pods=(), gpus=1, **spec):
    return supply(read_replica(deployment_of(gpus, **spec), -100), nodes_of(*nodes), pods_of(*pods))


def waiting(name="otter", gpus=1, **changes):
    status = unschedulable(**changes.pop("status", {}))
    return pod_of(name, gpus=gpus, status=status, **changes)


@cases(
    ("nodes", "free"),
    [
        ([node_of(gpus=4), node_of("gpu-2", gpus=3)], 3),  # blocks of two: one GPU of gpu-2 is left
        ([node_of(f"gpu-{n}", gpus=1) for n in range(4)], 0),  # four free GPUs, but no block
        ([node_of(ready="False")], 0),
        ([node_of(ready="Unknown")], 0),
        ([node_of(cordoned=True)], 0),
        ([node_of(cpu="1900m")], 1),
        ([node_of(cpu="0.9")], 0),
        ([node_of(memory="1Gi")], 1),
        ([node_of(pods="1")], 1),
        ([node_of(taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])], 0),
        ([node_of(taints=[{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}])], 0),
        ([node_of(taints=[{"key": "team", "effect": "PreferNoSchedule"}])], 2),
        ([node_of(cpu="1e2")], 2),
        ([], 0),
    ],
)
def test_supply_counts_blocks_of_open_nodes(nodes, free):
    assert found(nodes, gpus=2).free == free


def affinity(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@cases(
    ("spec", "free"),
    [
        ({"nodeSelector": {"gpu": "h100"}}, 4),
        ({"nodeSelector": {"gpu": "a100"}}, 0),
        ({"affinity": affinity({"key": "gpu", "operator": "In", "values": ["h100"]})}, 4),
        ({"affinity": affinity({"key": "gpu", "operator": "NotIn", "values": ["h100"]})}, 0),
        ({"affinity": affinity({"key": "gpu", "operator": "Exists"})}, 4),
        ({"affinity": affinity({"key": "gpu", "operator": "DoesNotExist"})}, 0),
        ({"affinity": affinity({"key": "age", "operator": "Gt", "values": ["2"]})}, 4),
        ({"affinity": affinity({"key": "gpu", "operator": "Lt", "values": ["2"]})}, 0),
        ({"affinity": affinity({"key": "x", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"})}, 4),
        ({"affinity": affinity({"key": "gpu", "operator": "Near"})}, 0),
    ],
)
def test_supply_obeys_selector_and_affinity(spec, free):
    assert found([node_of(labels={"gpu": "h100", "age": "3"})], **spec).free == free


def test_supply_with_a_toleration_counts_a_tainted_node():
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    tolerations = [{"key": "team", "operator": "Exists"}]
    assert found([node_of(taints=[taint])], tolerations=tolerations).free == 4


def test_supply_ignores_a_taint_named_like_the_gpus():
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    assert found([node_of(taints=[taint])]).free == 4  # GKE tolerates it in new pods


def test_supply_counts_init_containers_and_overhead():
    big = {"name": "copy", "image": "x", "resources": {"requests": {"cpu": "20"}}}
    sidecar = {"name": "proxy", "image": "x", "resources": {"requests": {"cpu": "15"}}} | {
        "restartPolicy": "Always"
    }
    assert found([node_of(cpu="32")], initContainers=[big]).free == 1
    assert found([node_of(cpu="32")], initContainers=[sidecar]).free == 2
    assert found([node_of(cpu="32")], initContainers=[sidecar, big]).free == 0
    assert found([node_of(cpu="32")], overhead={"cpu": "31"}).free == 1


def test_supply_takes_the_resource_from_the_template():
    mig = {"nvidia.com/mig-1g.5gb": "1"}
    containers = [{"name": "main", "image": "x", "resources": {"limits": mig}}]
    nodes = [node_of(gpus=4, **{"nvidia.com/mig-1g.5gb": "3"})]
    assert found(nodes, containers=containers).free == 3


def test_supply_counts_terminating_pods_as_holding_until_they_are_gone():
    pods = [pod_of("a", "gpu-1", gpus=3, meta=TERMINATING), pod_of("b", "gpu-1", status={"phase": "Failed"})]
    seen = found([node_of(gpus=4)], pods)
    assert (seen.free, seen.coming) == (1, 4)


def test_supply_knows_its_replicas_by_their_replica_set():
    mine = [replica_of("llm-7d9f-aaaaa", "gpu-1", status={"conditions": [READY]})]
    mine += [replica_of("llm-7d9f-bbbbb", "gpu-1"), replica_of("llm-7d9f-ccccc")]
    mine += [replica_of("llm-7d9f-ddddd", "gpu-1", meta=TERMINATING)]
    other = replica_of("x", "gpu-1", meta={"namespace": "elsewhere"})
    seen = found([node_of(gpus=8)], [*mine, other])
    assert (seen.running, seen.ready, seen.free) == (2, 1, 4)


FULL = [replica_of(f"llm-7d9f-{n}", "gpu-1") for n in range(4)]


@cases(
    ("pod", "presses"),
    [
        (waiting(), True),
        (waiting(gpus=5), False),  # the node has four: it wouldn't fit
        (waiting(gpus=0), False),
        (waiting(priority=-100), False),
        (waiting(priority=-200), False),
        (waiting(nodeSelector={"gpu": "a100"}), False),
        (waiting(status={"message": "0/1 nodes are available: pod has unbound claims."}), False),
        (waiting(status={"message": ""}), True),
        (waiting(meta=TERMINATING), False),
        (pod_of("new", status={}), False),  # the scheduler hasn't tried yet
        (replica_of("llm-7d9f-z", status=unschedulable()), False),  # a substitute of ours
        (
            pod_of(
                "gated",
                status={
                    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
                },
            ),
            False,
        ),
    ],
)
def test_supply_has_pressure_from_pods_that_would_fit_in_place_of_replicas(pod, presses):
    seen = found([node_of(gpus=4)], [*FULL, pod])
    assert seen.pressure == presses
    assert not seen.victims  # the scheduler chooses them


def test_supply_with_free_gpus_beside_replicas_has_no_pressure():
    seen = found([node_of(gpus=5)], [*FULL, waiting()])
    assert (seen.pressure, seen.free) == (False, 0)  # the free GPUs are the waiting pod's


def test_supply_counts_a_nominated_pod_once():
    victim = replica_of("llm-7d9f-0", "gpu-1", meta=TERMINATING)
    pod = waiting(status={"nominatedNodeName": "gpu-1"})
    seen = found([node_of(gpus=4)], [victim, *FULL[1:], pod])
    assert (seen.running, seen.coming, len(seen.nominated), seen.pressing) == (3, 0, 1, ())
    gone = found([node_of(gpus=4)], [*FULL[1:], pod])
    assert (gone.running, gone.free, gone.pressure) == (3, 0, True)


NEVER = {"preemptionPolicy": "Never"}


@pytest.mark.parametrize("spec", [NEVER, {"schedulerName": "volcano"}])
def test_supply_names_the_fewest_victims_for_a_pod_that_cannot_preempt(spec):
    pods = [replica_of("a", "gpu-1"), replica_of("b", "gpu-1"), replica_of("c", "gpu-2")]
    pods += [pod_of("other", "gpu-1", gpus=2), pod_of("others", "gpu-2", gpus=2)]
    seen = found([node_of(gpus=4), node_of("gpu-2", gpus=4)], [*pods, waiting(gpus=2, **spec)])
    assert [each.name for each in seen.victims] == ["c"]


def test_supply_names_victims_that_are_not_ready_and_then_the_newest():
    minutes = {"ready-old": 1, "ready-new": 4, "starting-old": 2, "starting-new": 3}
    pods = [
        replica_of(
            name,
            "gpu-1",
            meta={"creationTimestamp": f"2026-11-22T20:0{minute}:00Z"},
            status={"conditions": [READY] if name.startswith("ready") else []},
        )
        for name, minute in minutes.items()
    ]
    seen = found([node_of(gpus=4)], [*pods, waiting(gpus=3, **NEVER)])
    assert [each.name for each in seen.victims] == ["starting-new", "starting-old", "ready-new"]


def test_supply_finds_no_room_for_a_waiting_pod_on_a_node_without_gpus():
    cpu_only = node_of("cpu-1")
    del cpu_only["status"]["allocatable"][GPU]
    seen = found([node_of(gpus=4), cpu_only], [*FULL, waiting()])
    assert seen.pressure


def test_supply_names_no_more_victims_while_the_first_terminate():
    pods = [replica_of("a", "gpu-1", meta=TERMINATING), *FULL[1:], waiting(**NEVER)]
    seen = found([node_of(gpus=4)], pods)
    assert (seen.pressure, seen.victims, seen.coming) == (False, (), 0)


def test_supply_with_several_waiting_pods_gives_each_its_own_gpus():
    pods = [waiting(f"otter-{n}", gpus=2, **NEVER) for n in range(3)]
    seen = found([node_of(gpus=4)], [*FULL, *pods])
    assert (len(seen.victims), len(seen.pressing)) == (4, 2)  # the third fits nowhere


def test_supply_of_thousands_of_equal_pods_tries_each_shape_once(monkeypatch):
    calls = []
    monkeypatch.setattr("bot.workspaces.elastic.supply._has", lambda *_: calls.append(1))
    found([node_of(f"gpu-{n}") for n in range(10)], [*FULL, *(waiting(f"w{n}") for n in range(1000))])
    assert len(calls) < 100


@pytest.mark.parametrize(("priority", "free"), [(-99, 3), (-100, 3), (-101, 4)])
@pytest.mark.parametrize("nominated", [{}, {"nominatedNodeName": "gpu-1"}])
def test_supply_leaves_gpus_for_waiting_pods_unless_their_priority_is_lower(priority, free, nominated):
    """The same priority is that of new replicas of another elastic Deployment."""
    rival = waiting("rival", priority=priority, status=nominated)
    seen = found([node_of(gpus=4)], [rival])
    assert (seen.free, seen.pressure) == (free, bool(nominated) and priority > -100)
