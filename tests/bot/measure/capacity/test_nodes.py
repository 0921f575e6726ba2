"""Free capacity of the nodes: what is free, and who waits for GPUs that a sweep holds."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.pace import CapacityRequest
from bot.measure.capacity.nodes import capacity_on_nodes, measured
from k8s.nodes.gpu_pods import read_gpu_pod
from tests.bot.factories import NOW
from tests.cases import cases

GPU = "nvidia.com/gpu"
NO_VICTIMS = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
OTHER_REASONS = (
    f"0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. {NO_VICTIMS}",
    'persistentvolumeclaim "data" not found',
    f"0/2 nodes are available: 1 node(s) didn't match pod affinity rules, 1 Insufficient cpu. {NO_VICTIMS}",
    f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu.shared. {NO_VICTIMS}",
)
GPU_REASONS = (
    f"0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient nvidia.com/gpu. {NO_VICTIMS}",
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
    "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "pod group is not ready, 1 Pending, 2 minAvailable",  # Volcano's words
    "",
)
LONG_AGO = (NOW - timedelta(minutes=5)).isoformat()
JUST_NOW = (NOW - timedelta(seconds=10)).isoformat()


def a_node(name, gpus, *, ready=True, cordoned=False, taints=(), resource=GPU, **labels):
    conditions = [{"type": "Ready", "status": str(ready)}]
    sizes = {resource: str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {"allocatable": sizes, "conditions": conditions},
    }


def listing(pods):
    async def listed(_):
        return pods

    return listed


def a_pod(name, gpus, node="", since=LONG_AGO, sweep="", resource=GPU, waits=None, memory="1Gi", **spec):
    labels = {"sweepbot/sweep": sweep} if sweep else {}
    limits = {resource: str(gpus), "memory": memory}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec}
    status = {"phase": "Running" if node else "Pending"}
    if waits is not None:
        reason, message = waits
        why = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        status["conditions"] = [why]
    return read_gpu_pod(
        {
            "metadata": {"name": name, "namespace": "vision", "creationTimestamp": since, "labels": labels},
            "spec": spec | ({"nodeName": node} if node else {}),
            "status": status,
        }
    )


def a_request(gpus=1, pods=1, resource=GPU, **pod):
    return CapacityRequest(
        sweep="mine", namespace="sweeps", gpus=gpus, pods=pods, resource=resource, pod=pod, at=NOW
    )


def free(nodes, pods=(), request=None, yielding=()):
    return capacity_on_nodes(
        request or a_request(), measured(nodes, pods), yielding, lambda pod: pod.namespace, NOW, {}
    )


def test_capacity_is_what_fits_on_each_node_that_trials_can_use():
    nodes = [a_node("n1", 8), a_node("n2", 8)]
    pods = [a_pod("a", 3, "n1"), a_pod("b", 6, "n2")]
    assert free(nodes, pods, a_request(gpus=2)).trials == 3
    assert free(nodes, pods, a_request(gpus=4)).trials == 1
    assert free(nodes, pods, a_request(gpus=2, pods=2)).trials == 1, "two machines per trial"
    taint = {"key": "team", "value": "nlp", "effect": "NoSchedule"}
    nodes = [a_node("n1", 8, taints=[taint], gpu="h100"), a_node("n2", 4, gpu="a100")]
    request = a_request(nodeSelector={"gpu": "h100"}, tolerations=[{"key": "team", "operator": "Exists"}])
    assert free(nodes, request=request).trials == 8


@pytest.mark.parametrize(
    "node",
    [
        a_node("n1", 8, ready=False),
        a_node("n1", 8, cordoned=True),
        a_node("n1", 8, taints=[{"key": "team", "value": "nlp", "effect": "NoSchedule"}]),
        a_node("n1", 8, taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]),
        a_node("n1", 8, resource="nvidia.com/mig-1g.10gb"),
    ],
)
def test_node_that_trials_cannot_use_has_no_capacity(node):
    assert free([node]).trials == 0


def test_pods_of_others_that_wait_take_what_is_free_first_or_lack_it():
    nodes, pods = (
        [a_node("n1", 8)],
        [a_pod("mine-1", 4, "n1", sweep="mine"), a_pod("other", 2, since=JUST_NOW)],
    )
    found = free(nodes, pods)
    assert (found.trials, found.to_yield, found.who, found.requested) == (2, 0, "", 0)
    nodes = [a_node("n1", 2), a_node("n2", 4)]
    assert free(nodes, [a_pod("other", 2)], a_request(gpus=4)).trials == 1
    nodes = [a_node("n1", 3), a_node("n2", 4)]
    assert free(nodes, [a_pod("small", 2), a_pod("large", 3)], a_request(gpus=2)).trials == 1, "largest first"


def test_pods_that_a_sweep_of_several_nodes_still_expects_are_set_aside():
    nodes, theirs = [a_node("n1", 8)], replace(a_request(gpus=2), sweep="theirs", expects=2)
    found = measured(nodes, [a_pod("theirs-1", 2, "n1", sweep="theirs")], [theirs])
    assert capacity_on_nodes(a_request(), found, (), lambda pod: pod.namespace, NOW, {}).trials == 4


def test_capacity_counts_gpus_that_waiting_pods_lack():
    allocated = [a_pod("a", 6, "n1"), a_pod("b", 3, "n2")]
    scattered = free([a_node("n1", 8), a_node("n2", 8)], [*allocated, a_pod("other", 6)])
    assert scattered.trials == 2, "it gets those of the node that lacks fewest"
    nodes = [a_node("n1", 8)]
    pods = [a_pod("mine-1", 4, "n1", sweep="mine"), a_pod("x", 1, "n1"), a_pod("other", 6)]
    found = free(nodes, pods, a_request(gpus=2))
    assert (found.trials, found.to_yield, found.who, found.requested) == (0, 2, "vision", 6)
    known = measured(nodes, [*pods, a_pod("small", 1)], ())
    found = capacity_on_nodes(a_request(gpus=2), known, (), lambda pod: pod.name, NOW, {})
    assert (found.who, found.requested) == ("other", 6), "the one that waits for most"
    nodes = [a_node("n1", 4), a_node("n2", 4)]
    mine = [a_pod(f"mine-{n}", 4, f"n{n}", sweep="mine") for n in (1, 2)]
    request = a_request(gpus=2, pods=2)
    assert free(nodes, [*mine, a_pod("other", 3)], request).to_yield == 1, "a trial has four GPUs"
    two = [a_pod("other-1", 4), a_pod("other-2", 1)]
    assert free(nodes, [*mine, *two], request).to_yield == 2
    pods = [a_pod("a", 2, "n1", sweep="mine"), a_pod("b", 2, "n2", sweep="mine"), a_pod("other", 4)]
    assert free(nodes, pods).to_yield == 2
    waits = ("Unschedulable", OTHER_REASONS[0])
    assert free([a_node("n1", 8)], [a_pod("other", 8, waits=waits)]).trials == 8
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), a_pod("mine-2", 1, sweep="mine")]
    assert free([a_node("n1", 8)], pods).waiting == 1


@cases(
    "pod",
    [
        a_pod("new", 8, since=JUST_NOW),
        a_pod("too large", 16),
        a_pod("elsewhere", 8, nodeSelector={"gpu": "h100"}),
        a_pod("own", 8, sweep="mine"),
        a_pod("yields itself", 8, sweep="auto"),
        a_pod("another resource", 8, resource="nvidia.com/mig-1g.10gb"),
        a_pod("too much memory", 8, memory="1Ti"),
        a_pod("gated", 8, waits=("SchedulingGated", "Scheduling is blocked")),
        *(a_pod("waits for something else", 8, waits=("Unschedulable", each)) for each in OTHER_REASONS),
    ],
)
def test_capacity_ignores_waiting_pods_that_this_sweep_cannot_help(pod):
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), pod]
    found = free([a_node("n1", 8)], pods, yielding={"auto"})
    assert (found.to_yield, found.who) == (0, "")


@pytest.mark.parametrize("message", GPU_REASONS)
def test_capacity_counts_pods_of_which_the_scheduler_says_that_they_lack_gpus(message):
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), a_pod("other", 8, waits=("Unschedulable", message))]
    assert free([a_node("n1", 8)], pods).to_yield == 8


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["a100", "h100"], True),
        ("NotIn", ["h100"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["7"], False),
        ("Nonsense", ["h100"], False),
    ],
)
def test_affinity_of_other_peoples_pods_is_read_as_the_scheduler_does(operator, values, fits):
    rule = {"key": "gpu", "operator": operator, "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), a_pod("other", 8, affinity=affinity)]
    assert bool(free([a_node("n1", 8, gpu="h100")], pods).to_yield) is fits
