"""Rules for trials without a running pod: queue, quota, scheduling, and the node's first steps."""

from datetime import timedelta

import pytest

from bot.health.rules import due, next_due
from tests.bot.factories import NOW
from tests.bot.health import real_messages
from tests.bot.health.snapshots import JOB, META, an_event, found, key, unscheduled, waiting


@pytest.mark.parametrize(("seconds", "due_now"), [(2, 0), (54, 0), (55, 1)])
def test_unschedulable_is_due_after_most_of_a_minute(seconds, due_now):
    diagnosis = found(unscheduled(real_messages.UNSCHEDULABLE, seconds))
    assert len(due([diagnosis], NOW)) == due_now
    assert next_due([diagnosis], NOW) == (None if due_now else NOW + timedelta(seconds=55 - seconds))


def test_unschedulable_during_a_scale_up_is_a_wait():
    pod, nodes = unscheduled(real_messages.UNSCHEDULABLE, 5), (a_node(4),)
    assert found(pod, gpus=8, nodes=nodes).key == "never-fits"
    grows = found(pod, gpus=8, nodes=nodes, events=(an_event("TriggeredScaleUp", real_messages.SCALE_UP),))
    assert (grows.key, grows.soft) == ("unschedulable", True)
    assert "adding one" in grows.text


def a_node(gpus, taints=(), **labels):
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}, "status": status}


RESERVED = [{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}]
ASIDE = [{"key": "dedicated", "value": "vision", "effect": "PreferNoSchedule"}]
CORDON = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
FULL = "The pod is pending: not enough free GPUs on 4 nodes. It starts when GPUs are released."


@pytest.mark.parametrize(
    ("message", "nodes", "text", "fix"),
    [
        (real_messages.UNSCHEDULABLE, [], FULL, "Request fewer GPUs if it takes too long."),
        (
            real_messages.UNSCHEDULABLE,
            [a_node(8), a_node(0)],
            FULL,
            "Request fewer GPUs if it takes too long.",
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
        (real_messages.TAINTED_GPUS, [], "not enough free GPUs on 1 node", "Request fewer GPUs"),
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
            "Request fewer",
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
        (real_messages.CORDONED, [a_node(8, CORDON)], "The pod can't be scheduled for now.", ""),
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


def kueue(message):
    why = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    job = {**JOB, "spec": {"suspend": True}}
    workload = {"metadata": META, "status": {"conditions": [why]}} if message else None
    return found(job=job, workload=workload)


@pytest.mark.parametrize(
    ("message", "expected", "soft", "text"),
    [
        (real_messages.NO_QUOTA, "queued", True, "needs 2 more GPUs in gpu-a100."),
        (real_messages.ONE_FLAVOR_TOO_SMALL, "queued", True, "needs 1 more GPU in ml.g5.8xlarge."),
        (real_messages.TOO_MUCH, "queue-too-small", False, "its queue's quota is 8 GPUs in gpu-a100, less"),
        (
            real_messages.TOO_MUCH_BEFORE,
            "queue-too-small",
            False,
            "its queue's quota is 16 GPUs in gpu-flavor, less",
        ),
        (real_messages.STOPPED_QUEUE, "queue-stopped", False, "`team-cq` is stopped."),
        (real_messages.NO_QUEUE, "no-queue", False, "doesn't exist"),
        ("", "suspended", True, "Kueue gives no reason"),
    ],
)
def test_queued_real_message_names_the_cause(message, expected, soft, text):
    diagnosis = kueue(message)
    assert (diagnosis.key, diagnosis.soft) == (expected, soft)
    assert text in diagnosis.text
    assert ("None needed" in diagnosis.fix) == (expected == "queued")


def test_refused_pod_above_the_quota_can_never_start():
    fits, never = (
        found(events=(an_event("FailedCreate", words),))
        for words in (real_messages.QUOTA, real_messages.SMALL_QUOTA)
    )
    assert "requests 8 GPUs; 56 of the namespace's 60 are in use" in fits.text
    assert "Wait for running jobs to finish" in fits.fix
    assert never.text.startswith(
        "The trial can never start: it requests 8 GPUs, and the namespace quota is 4"
    )
    assert "Wait" not in never.fix


CREATING = ("ContainerCreating", "")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("FailedCreatePodSandBox", real_messages.NO_NETWORK)], "sandbox"),
        (
            [("FailedCreatePodSandBox", real_messages.NO_NETWORK), ("Pulling", real_messages.PULLING)],
            "slow-start",
        ),
        ([("FailedMount", real_messages.NO_SECRET)], "mount"),
        ([("FailedMount", real_messages.NO_SECRET), ("Pulling", real_messages.PULLING)], "slow-start"),
        ([("FailedAttachVolume", real_messages.MULTI_ATTACH)], "mount"),
        (
            [
                ("FailedAttachVolume", real_messages.MULTI_ATTACH),
                ("SuccessfulAttachVolume", real_messages.ATTACHED),
            ],
            "slow-start",
        ),
        (
            [
                ("FailedAttachVolume", real_messages.MULTI_ATTACH),
                ("SuccessfulAttachVolume", real_messages.OTHER_ATTACHED),
            ],
            "mount",
        ),
        (
            [("Pulling", real_messages.PULLING), ("FailedCreatePodSandBox", real_messages.NO_NETWORK)],
            "sandbox",
        ),
    ],
)
def test_diagnose_ignores_events_that_are_resolved(events, expected):
    assert key(waiting(*CREATING), events=tuple(an_event(*each) for each in events)) == expected


def test_dead_node_of_a_starting_pod_precedes_slow_start():
    ready = {"type": "Ready", "status": "Unknown", "message": real_messages.NO_KUBELET}
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}}
    diagnosis = found(waiting(*CREATING), nodes=(node,))
    assert (diagnosis.key, diagnosis.soft, diagnosis.detail) == ("node", False, real_messages.NO_KUBELET)
    assert diagnosis.fix.startswith("Ask an admin to restore or remove `n1`")
