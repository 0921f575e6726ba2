"""Rules for a pod without a node: capacity, taints, labels, gates, and claims."""

from datetime import timedelta

import pytest

from bot.sweep.features.health.rules import due, next_due
from tests.bot.factories import NOW
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
    ADMIN,
    a_node,
    an_event,
    expected,
    found,
    key,
    running,
    unscheduled,
)
from tests.cases import cases

RESERVED = [{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}]
ASIDE = [{"key": "dedicated", "value": "vision", "effect": "PreferNoSchedule"}]
CORDON = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
FULL = "The pod is pending: not enough free GPUs on 4 nodes. It starts when GPUs are released."


@pytest.mark.parametrize(("seconds", "due_now"), [(2, 0), (54, 0), (55, 1)])
def test_unschedulable_is_due_after_most_of_a_minute(seconds, due_now):
    diagnosis = found(unscheduled(real_messages.UNSCHEDULABLE, seconds))
    assert len(due([diagnosis], NOW)) == due_now
    assert next_due([diagnosis], NOW) == (None if due_now else NOW + timedelta(seconds=55 - seconds))


def test_unschedulable_that_may_pass_is_a_wait():
    pod, nodes = unscheduled(real_messages.UNSCHEDULABLE, 5), (a_node(4),)
    assert found(pod, gpus=8, nodes=nodes).key == "never-fits"
    grows = found(pod, gpus=8, nodes=nodes, events=(an_event("TriggeredScaleUp", real_messages.SCALE_UP),))
    text = "No node has room; the autoscaler is adding one. This takes a few minutes."
    fix = "If it takes too long, request fewer GPUs."
    words = real_messages.UNSCHEDULABLE
    assert grows == expected("unschedulable", text, fix, words, soft=True, due=50)
    pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
    text, fix = (
        "No node has GPUs; the trial requests 1.",
        "Ask an admin to check the GPU nodes and the device plugin.",
    )
    wait = expected("no-gpus", text, fix, real_messages.UNSCHEDULABLE, soft=True, due=-6)
    assert found(pod, nodes=(a_node(0),)) == wait
    cpu_only = {"metadata": {"name": "n2"}, "spec": {}, "status": {}}
    assert found(pod, nodes=(cpu_only,)) == wait
    assert key(pod, gpus=0, nodes=(cpu_only,)) == "unschedulable"
    pod = unscheduled("", 61)
    pod["status"]["conditions"][0] |= {"reason": "SchedulingGated"}
    text = "A scheduling gate is holding the pod (usually set by a queue)."
    assert found(pod) == expected("gated", text, ADMIN, "SchedulingGated", soft=True, due=-6)
    pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
    pod["status"]["conditions"][0]["status"] = "True"
    assert key(pod) is None or key(pod) == "slow-start"
    assert key(running(conditions=[{"type": "Ready", "status": "False"}])) is None
    pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
    pod["spec"] = {"containers": pod["spec"]["containers"], "nodeSelector": None, "tolerations": None}
    bare = {"metadata": {"name": "n1", "labels": None}, "spec": {}, "status": a_node(8)["status"]}
    assert "not enough free GPUs" in found(pod, nodes=(bare,)).text


def test_unschedulable_while_an_autoscaler_adds_a_node_is_not_too_large():
    """Karpenter can add a larger node than any that is there; a failed scale-up isn't promised."""
    events = {
        reason: an_event(reason, message)
        for reason, message in (
            ("TriggeredScaleUp", real_messages.SCALE_UP),
            ("Nominated", "Pod should schedule on: nodeclaim/gpu-x7k2p"),
            ("FailedScaleUp", real_messages.NO_CAPACITY),
            ("NotTriggerScaleUp", "pod didn't trigger scale-up: 3 max node group size reached"),
        )
    }

    def seen(*reasons, gpus):
        pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
        return found(pod, gpus=gpus, nodes=(a_node(4),), events=tuple(events[r] for r in reasons))

    assert seen("Nominated", gpus=8) == seen("TriggeredScaleUp", gpus=8)
    assert seen("Nominated", gpus=8).text.startswith("No node has room; the autoscaler is adding one.")
    text = "No node has room, and the autoscaler couldn't add one."
    fix = "Wait, or ask an admin to check the cloud's quota and capacity."
    failed = expected("unschedulable", text, fix, real_messages.NO_CAPACITY, soft=True, due=-6)
    assert seen("TriggeredScaleUp", "FailedScaleUp", gpus=4) == failed
    assert seen("TriggeredScaleUp", "NotTriggerScaleUp", gpus=4).text == FULL
    assert seen("FailedScaleUp", "TriggeredScaleUp", gpus=8) == seen("Nominated", gpus=8)


@cases(
    ("message", "nodes", "text", "fix"),
    [
        (real_messages.UNSCHEDULABLE, [], FULL, "If it takes too long, request fewer GPUs."),
        (
            real_messages.UNSCHEDULABLE,
            [a_node(8), a_node(0)],
            FULL,
            "If it takes too long, request fewer GPUs.",
        ),
        (
            real_messages.UNSCHEDULABLE,
            [a_node(0), a_node(0)],
            "No node has GPUs; the trial requests 1.",
            "device plugin",
        ),
        (
            real_messages.TAINTED_NOW,
            [],
            "untolerated taints on 34 nodes.",
            "`tolerations`",
        ),
        (real_messages.TAINTED_GPUS, [], "not enough free GPUs on 1 node", "request fewer GPUs"),
        (
            real_messages.TAINTED_GPUS,
            [a_node(0), a_node(8, RESERVED)],
            "The pod can't be scheduled: untolerated taints on 1 node.",
            "Taint `dedicated: vision` on 1 node. Ask an admin to set `tolerations`",
        ),
        (
            real_messages.TAINTED_GPUS,
            [a_node(8), a_node(8, ASIDE)],
            "not enough free GPUs on 1 node",
            "request fewer",
        ),
        (real_messages.UNMATCHED, [], "its node selector excludes 3 nodes.", "`nodes`"),
        (
            real_messages.UNSCHEDULABLE,
            [a_node(8, pool="cpu")],
            "selector excludes 1 node.",
            "`nodes`",
        ),
        (
            real_messages.NO_MEMORY,
            [],
            "not enough free memory on 1 node. It starts when memory is released.",
            "",
        ),
        (real_messages.TAINTED_AND_FULL, [], "not enough free CPU on 2 nodes", ""),
        (
            real_messages.CORDONED,
            [a_node(8, CORDON)],
            "The pod can't be scheduled yet (1 node(s) were unschedulable).",
            "",
        ),
        (real_messages.OTHER_ZONE, [], "its volume can't be used on 4 nodes.", "zone"),
        (
            real_messages.NODES_NOT_READY,
            [],
            "untolerated taints on 5 nodes.",
            "Ask an admin to check these nodes.",
        ),
    ],
)
def test_unschedulable_real_message_names_the_cause(message, nodes, text, fix):
    pod = unscheduled(message, 61)
    pod["spec"]["nodeSelector"] = {"pool": "gpu"} if nodes and nodes[0]["metadata"]["labels"] else {}
    diagnosis = found(pod, nodes=tuple(nodes))
    assert text in diagnosis.text
    assert fix in diagnosis.fix
    assert bool(fix) == bool(diagnosis.fix)
    assert (diagnosis.soft, diagnosis.detail) == (True, message)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "dedicated", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "value": "speech"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_unschedulable_tolerated_taint_counts_as_a_full_node(toleration, tolerated):
    pod = unscheduled(real_messages.TAINTED_GPUS, 61)
    pod["spec"] = {**pod["spec"], "tolerations": [toleration]}
    text = found(pod, nodes=(a_node(8, RESERVED),)).text
    assert ("not enough free GPUs" in text) == tolerated


@pytest.mark.parametrize(
    ("rules", "excluded"),
    [
        ([{"key": "pool", "operator": "Exists"}], False),
        ([{"key": "pool", "operator": "NotIn", "values": ["cpu"]}], True),
        (
            [{"key": "zone", "operator": "Exists"}, {"key": "pool", "operator": "In", "values": ["cpu"]}],
            False,
        ),
    ],
)
def test_unschedulable_node_is_excluded_by_no_term_of_several_that_one_allows(rules, excluded):
    pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in rules]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod["spec"] = {**pod["spec"], "affinity": {"nodeAffinity": required}}
    assert ("selector excludes" in found(pod, nodes=(a_node(8, pool="cpu"),)).text) is excluded


@pytest.mark.parametrize("message", [real_messages.UNSCHEDULABLE, real_messages.TAINTED_GPUS])
def test_unschedulable_node_with_exactly_the_requested_gpus_counts(message):
    nodes = (a_node(0), a_node(8, RESERVED))
    exact = found(unscheduled(message, 60), gpus=8, nodes=nodes)
    smaller = found(unscheduled(message, 60), gpus=7, nodes=nodes)
    assert (exact.key, exact.text, exact.fix) == (smaller.key, smaller.text, smaller.fix)


def test_unschedulable_larger_than_every_node_can_never_start():
    pod = unscheduled(real_messages.UNSCHEDULABLE, 61)
    text = "The trial can't fit: it requests 8 GPUs, and the largest node has 4."
    never = expected(
        "never-fits",
        text,
        "Cancel the sweep, and start it again with `gpus=4` or fewer.",
        real_messages.UNSCHEDULABLE,
    )
    assert found(pod, gpus=8, nodes=(a_node(0), a_node(4), a_node(1))) == never
    assert key(pod, gpus=4, nodes=(a_node(4),)) == "unschedulable"
    assert key(pod, gpus=2, nodes=(a_node(1),)) == "never-fits"
    text = "The trial can't fit: it requests 2 nodes × 8 GPUs, and the largest node has 4."
    assert found(pod, gpus=8, workers=2, nodes=(a_node(4),)).text == text


def test_trial_with_more_nodes_than_the_cluster_has_can_never_start():
    pod, nodes = unscheduled(real_messages.UNSCHEDULABLE, 61), (a_node(2), a_node(2), a_node(0))
    text = (
        "The trial can't fit: it requests 3 nodes × 2 GPUs, and all nodes together have room for 2 of its 3 "
        "workers."
    )
    fix = "Cancel the sweep, and start it again with `nodes=2` or fewer."
    never = expected("never-fits", text, fix, real_messages.UNSCHEDULABLE, due=-6)
    assert found(pod, gpus=2, workers=3, nodes=nodes) == never
    full = found(pod, gpus=2, workers=2, nodes=nodes)
    assert (full.key, full.fix) == ("unschedulable", "If it takes too long, request fewer nodes or GPUs.")
    assert key(pod, gpus=1, workers=4, nodes=nodes) == "unschedulable", "two workers fit one node"
    assert found(pod, gpus=2, workers=2, nodes=nodes[1:]).fix.endswith("start it again with `nodes=1`.")
    grows = an_event("TriggeredScaleUp", real_messages.SCALE_UP)
    assert key(pod, gpus=2, workers=3, nodes=nodes, events=(grows,)) == "unschedulable"


def test_unschedulable_lists_the_taints_of_all_nodes_once_or_the_named_one():
    other = [{"key": "team", "effect": "NoExecute"}]
    pod = unscheduled(real_messages.TAINTED_GPUS, 61)
    fix = found(pod, nodes=(a_node(8, RESERVED), a_node(8, RESERVED), a_node(8, other), a_node(0, ASIDE))).fix
    admin = "Ask an admin to set `tolerations` or `nodes` under `trials:` in Sweepbot's configuration."
    assert fix == f"Taints `dedicated: vision`, `team` on 3 nodes. {admin}"
    fix = found(unscheduled(real_messages.TAINTED, 61)).fix
    assert fix == "Taint `dedicated: gpu` on 1 node. If it takes too long, request fewer GPUs."


def claiming(message, *claims):
    pod = unscheduled(message, 60)
    volumes = [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {**pod, "spec": {**pod["spec"], "volumes": [{"emptyDir": {}}, *volumes]}}


def test_no_volume_unbound_claim_is_a_wait_and_a_missing_one_reported_at_once():
    wait = found(claiming(real_messages.UNBOUND, "data", "cache"))
    text = "PersistentVolumeClaim `data, cache` isn't bound."
    assert wait == expected("volume", text, ADMIN, real_messages.UNBOUND, soft=True, due=-5)
    assert found(unscheduled(real_messages.UNBOUND, 60)).text == "PersistentVolumeClaim isn't bound."
    slow = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    assert found(claiming(slow, "data")).text == "PersistentVolumeClaim `data` isn't bound."
    text = "PersistentVolumeClaim `rc-definitely-missing-pvc` doesn't exist."
    pod = unscheduled(real_messages.NO_CLAIM, 1)
    assert found(pod) == expected("no-volume", text, ADMIN, real_messages.NO_CLAIM)


@pytest.mark.parametrize("reason", ["ProvisioningFailed", "FailedBinding"])
def test_no_volume_without_storage_class_names_the_missing_default(reason):
    events = (an_event(reason, real_messages.NO_CLASS), an_event("WaitForPodScheduled", "waiting for t1"))
    text = "PersistentVolumeClaim `data` has no StorageClass, and the cluster has no default."
    words = f"{real_messages.UNBOUND}\n{real_messages.NO_CLASS}"
    diagnosis = found(claiming(real_messages.UNBOUND, "data"), events=events)
    assert diagnosis == expected("volume", text, ADMIN, words, soft=True, due=-5)
