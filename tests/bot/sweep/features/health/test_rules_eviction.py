"""Rules for pods that Kubernetes ended: out of memory, evicted, preempted, or over a limit."""

import pytest

from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import CONTAINERS, ended, expected, found, key, running


def limited(pod, **limits):
    main = {"name": "main", "resources": {"limits": limits}}
    return {**pod, "spec": {**pod["spec"], "containers": [CONTAINERS[1], main]}}


@pytest.mark.parametrize(
    ("pod", "what"),
    [
        (limited(ended(137, "OOMKilled"), memory="32Gi"), "the container hit its 32Gi limit"),
        (limited(ended(1, "OOMKilled"), memory="32Gi"), "the container hit its 32Gi limit"),  # of a child
        (limited(ended(137, "OOMKilled"), cpu="4"), "the node ran out"),
        (ended(137, "OOMKilled"), "the node ran out"),
    ],
)
def test_out_of_memory_names_the_limit(pod, what):
    text = f"Out of memory (RAM, not GPU): {what}."
    fix = "Use fewer data-loader workers or keep less data in memory."
    assert found(pod, log="step 9") == expected("memory", text, fix, "step 9", failed=True)


NOT_YOURS = "This isn't caused by your code."
LESS_MEMORY = "Use fewer data-loader workers, keep less data in memory, or ask an admin for a higher request."
NODE = f"The node terminated the pod. {NOT_YOURS}"
PREEMPTED = f"The pod was preempted by a higher-priority one. {NOT_YOURS}"
NONE = "None needed; Kubernetes restarts the trial."
DISK = "The node evicted the pod: the disk is full."


def disrupted(reason, message):
    """The Job's podFailurePolicy replaces this pod."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return ended(137, conditions=[why])


def terminated(reason, message):
    pod = ended(137, message=message)
    pod["status"]["reason"] = reason
    return pod


@pytest.mark.parametrize(
    ("pod", "diagnosis"),
    [
        (
            disrupted("PreemptionByScheduler", real_messages.PREEMPTED),
            expected(
                "evicted", PREEMPTED, NONE, f"PreemptionByScheduler: {real_messages.PREEMPTED}", soft=True
            ),
        ),
        (
            disrupted("DeletionByTaintManager", real_messages.TAINT),
            expected("evicted", NODE, NONE, f"DeletionByTaintManager: {real_messages.TAINT}", soft=True),
        ),
        (
            terminated("Terminated", real_messages.SHUTDOWN),
            expected("evicted", NODE, "Start the sweep again.", real_messages.SHUTDOWN, failed=True),
        ),
        (
            terminated("Preempting", "Preempted in order to admit critical pod"),
            expected(
                "evicted",
                PREEMPTED,
                "Start the sweep again.",
                "Preempted in order to admit critical pod",
                failed=True,
            ),
        ),
        (
            terminated("Evicted", real_messages.EVICTED_MEMORY),
            expected(
                "memory",
                "The node ran out of memory (RAM), and the training used 58.59 GiB, more than it requests.",
                LESS_MEMORY,
                real_messages.EVICTED_MEMORY,
                failed=True,
            ),
        ),
        (
            terminated("Evicted", real_messages.EVICTED_MEMORY.replace("61440000Ki", "1100Gi")),
            expected(
                "memory",
                "The node ran out of memory (RAM), and the training used 1100 GiB, more than it requests.",
                LESS_MEMORY,
                real_messages.EVICTED_MEMORY.replace("61440000Ki", "1100Gi"),
                failed=True,
            ),
        ),
        (
            terminated("Evicted", real_messages.EVICTED_MEMORY.replace("Container main", "Container other")),
            expected(
                "evicted",
                NODE,
                "Start the sweep again.",
                real_messages.EVICTED_MEMORY.replace("Container main", "Container other"),
                failed=True,
            ),
        ),
        (
            terminated("Evicted", real_messages.EVICTED),
            expected(
                "disk",
                DISK,
                "Write less to the container's disk, then start the sweep again.",
                real_messages.EVICTED,
                failed=True,
            ),
        ),
        (
            disrupted("TerminationByKubelet", real_messages.EVICTED),
            expected(
                "disk",
                DISK,
                "Write less to the container's disk.",
                f"TerminationByKubelet: {real_messages.EVICTED}",
            ),
        ),
    ],
)
def test_evicted_names_the_cause_and_who_restarts(pod, diagnosis):
    assert found(pod) == diagnosis


def test_evicted_needs_a_failed_pod_and_says_if_its_time_was_over():
    assert key(running(reason="Evicted", message=real_messages.EVICTED)) is None
    assert key(terminated("Unknown", real_messages.SHUTDOWN), log="step 9") == "crash"
    pod = terminated("DeadlineExceeded", real_messages.OVER_TIME)
    pod["spec"] = {**pod["spec"], "activeDeadlineSeconds": 5400}
    fix = "Shorten the training, or raise `trial_hours:` under `trials:` in the space file, "
    fix += "up to the cluster's limit."
    text = "The trial reached its time limit of 1.5 h."
    assert found(pod, log="step 9") == expected("over-time", text, fix, "step 9", failed=True)


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (real_messages.OVER_DISK, "1Gi"),
        (real_messages.OVER_CONTAINER_DISK, "2Gi"),
        (real_messages.OVER_VOLUME, "3Gi"),
    ],
)
def test_evicted_over_its_own_disk_limit_names_it(message, limit):
    text = f"The trial exceeded its limit of {limit} for the container's disk."
    fix = "Write less to the container's disk, or ask an admin for a higher ephemeral-storage limit."
    assert found(terminated("Evicted", message)) == expected("disk-limit", text, fix, message, failed=True)


@pytest.mark.parametrize(("code", "expected_key"), [(143, "deleted"), (137, "deleted"), (1, "crash")])
def test_crash_of_a_deleted_pod_is_no_crash_of_the_training_if_a_signal_ended_it(code, expected_key):
    pod = ended(code)
    pod["metadata"] = {**pod["metadata"], "deletionTimestamp": "2026-11-21T12:00:30Z"}
    assert key(pod, log="step 9") == expected_key
