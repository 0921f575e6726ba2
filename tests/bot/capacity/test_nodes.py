"""Room on the nodes: what is free, and who waits for GPUs that a sweep holds."""

from datetime import timedelta

import pytest

from bot.capacity.nodes import measured, room_for
from bot.core.pace import Want
from k8s.gpu_pods import read_gpu_pod
from tests.bot.factories import NOW

GPU = "nvidia.com/gpu"
LONG_AGO = (NOW - timedelta(minutes=5)).isoformat()
JUST_NOW = (NOW - timedelta(seconds=10)).isoformat()


def a_node(name, gpus, *, ready=True, cordoned=False, taints=(), resource=GPU, **labels):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {"allocatable": {resource: str(gpus), "cpu": "64"}, "conditions": conditions},
    }


def a_pod(name, gpus, node="", since=LONG_AGO, sweep="", resource=GPU, **spec):
    labels = {"sweepbot/sweep": sweep} if sweep else {}
    spec = {"containers": [{"name": "main", "resources": {"limits": {resource: str(gpus)}}}], **spec}
    status = {"phase": "Running" if node else "Pending"}
    return read_gpu_pod(
        {
            "metadata": {"name": name, "namespace": "vision", "creationTimestamp": since, "labels": labels},
            "spec": spec | ({"nodeName": node} if node else {}),
            "status": status,
        }
    )


def a_want(gpus=1, pods=1, resource=GPU, **pod):
    return Want(sweep="mine", namespace="sweeps", gpus=gpus, pods=pods, resource=resource, pod=pod, at=NOW)


def room(nodes, pods=(), want=None, yielding=()):
    return room_for(want or a_want(), measured(nodes, pods), yielding, lambda pod: pod.namespace, NOW, {})


def test_room_is_what_fits_on_each_node():
    nodes = [a_node("n1", 8), a_node("n2", 8)]
    pods = [a_pod("a", 3, "n1"), a_pod("b", 6, "n2")]
    assert room(nodes, pods, a_want(gpus=2)).now == 3
    assert room(nodes, pods, a_want(gpus=4)).now == 1
    assert room(nodes, pods, a_want(gpus=2, pods=2)).now == 1, "two machines per trial"


@pytest.mark.parametrize(
    "node",
    [
        a_node("n1", 8, ready=False),
        a_node("n1", 8, cordoned=True),
        a_node("n1", 8, taints=[{"key": "team", "value": "nlp", "effect": "NoSchedule"}]),
        a_node("n1", 8, resource="nvidia.com/mig-1g.10gb"),
    ],
)
def test_node_that_trials_cannot_use_has_no_room(node):
    assert room([node]).now == 0


def test_node_selector_and_toleration_decide_where_trials_fit():
    taint = {"key": "team", "value": "nlp", "effect": "NoSchedule"}
    nodes = [a_node("n1", 8, taints=[taint], gpu="h100"), a_node("n2", 4, gpu="a100")]
    want = a_want(nodeSelector={"gpu": "h100"}, tolerations=[{"key": "team", "operator": "Exists"}])
    assert room(nodes, want=want).now == 8


def test_pods_of_others_that_wait_take_what_is_free_first():
    nodes, pods = (
        [a_node("n1", 8)],
        [a_pod("mine-1", 4, "n1", sweep="mine"), a_pod("other", 2, since=JUST_NOW)],
    )
    found = room(nodes, pods)
    assert (found.now, found.short) == (2, 0)


def test_others_that_have_waited_lack_what_is_not_free():
    nodes = [a_node("n1", 8)]
    pods = [a_pod("mine-1", 4, "n1", sweep="mine"), a_pod("x", 1, "n1"), a_pod("other", 6)]
    found = room(nodes, pods, a_want(gpus=2))
    assert (found.now, found.short, found.who, found.wanted) == (0, 2, "vision", 6)


def test_pod_that_waits_for_scattered_gpus_lacks_them():
    nodes = [a_node("n1", 4), a_node("n2", 4)]
    pods = [a_pod("a", 2, "n1", sweep="mine"), a_pod("b", 2, "n2", sweep="mine"), a_pod("other", 4)]
    assert room(nodes, pods).short == 2


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("new", 8, since=JUST_NOW),
        a_pod("too large", 16),
        a_pod("elsewhere", 8, nodeSelector={"gpu": "h100"}),
        a_pod("own", 8, sweep="mine"),
        a_pod("yields itself", 8, sweep="auto"),
        a_pod("another resource", 8, resource="nvidia.com/mig-1g.10gb"),
    ],
)
def test_nobody_lacks_gpus_because_of_pods_that_this_sweep_cannot_help(pod):
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), pod]
    found = room([a_node("n1", 8)], pods, yielding={"auto"})
    assert (found.short, found.who) == (0, "")


def test_waiting_trials_of_the_sweep_itself_are_counted():
    pods = [a_pod("mine-1", 8, "n1", sweep="mine"), a_pod("mine-2", 1, sweep="mine")]
    assert room([a_node("n1", 8)], pods).waiting == 1


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
    assert bool(room([a_node("n1", 8, gpu="h100")], pods).short) is fits
