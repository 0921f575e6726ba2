"""Why a pod hasn't started: the scheduler's reasons, images, and containers."""

from collections import Counter
from dataclasses import replace

import pytest

from bot.platform.pod_health.diagnosis import (
    LABELS,
    TAINT,
    VOLUME,
    main_reason,
    refusals,
    unschedulable_text,
    waiting,
)
from k8s.objects import GPU
from k8s.pods import Pod

POD = Pod(name="t1-x", job="t1", node="", finished=False, job_uid="u")


def diagnosed(**known):
    found = waiting(replace(POD, **known))
    return found and (found.key, found.detail)


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({}, None),
        ({"waiting": ("ContainerCreating", "")}, None),
        ({"waiting": ("PodInitializing", "")}, None),
        ({"waiting": ("ImagePullBackOff", "not found")}, ("image-pull", "not found")),
        ({"waiting": ("InvalidImageName", "x")}, ("image-pull", "x")),
        (
            {"waiting": ("CreateContainerConfigError", "no secret")},
            ("CreateContainerConfigError", "no secret"),
        ),
        ({"unschedulable": "0/1 nodes are available"}, ("unschedulable", "0/1 nodes are available")),
    ],
)
def test_waiting_pod_is_explained_by_scheduler_image_or_container(known, found):
    assert diagnosed(**known) == found


def test_refusals_count_nodes_by_reason():
    message = (
        "0/9 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint {a: b}, "
        "4 node(s) didn't match Pod's node affinity/selector. preemption: 0/9 nodes are available: 9 Preempt."
    )
    assert refusals(message) == {GPU: 2, TAINT: 3, LABELS: 4}
    assert refusals("pod has unbound claims") == {}


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({TAINT: 2, GPU: 1}, TAINT),  # of most nodes
        ({TAINT: 1, LABELS: 1, "cpu": 1, GPU: 1}, GPU),
        ({TAINT: 1, "cpu": 1}, "cpu"),
        ({VOLUME: 1, "cpu": 1}, "cpu"),
        ({LABELS: 1, "cpu": 1}, "cpu"),
        ({}, ""),
    ],
)
def test_main_reason_is_of_most_nodes_and_then_what_pods_can_release(counts, reason):
    assert main_reason(Counter(counts)) == reason


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({TAINT: 2}, "untolerated taints on 2 nodes."),
        ({LABELS: 1}, "its node selector excludes 1 node."),
        ({GPU: 3}, "not enough free GPUs on 3 nodes. It starts when GPUs are released."),
        ({"cpu": 1}, "not enough free CPU on 1 node. It starts when CPU is released."),
        ({"node(s) were unschedulable": 1}, "can't be scheduled yet (1 node(s) were unschedulable)."),
        ({}, "can't be scheduled yet."),
    ],
)
def test_unschedulable_text_names_the_main_reason(counts, text):
    assert unschedulable_text(Counter(counts)).endswith(text)
