"""Boundaries of the rules: a node that is just large enough, similar errors, times and counts."""

from datetime import timedelta

import pytest

from bot.health.rules_startup import may_pass
from k8s.objects import timestamp
from tests.bot.factories import NOW
from tests.bot.health import real_messages
from tests.bot.health.snapshots import an_event, found, unscheduled, waiting
from tests.bot.health.test_rules_admission import RESERVED, a_node


@pytest.mark.parametrize("message", [real_messages.UNSCHEDULABLE, real_messages.TAINTED_GPUS])
def test_unschedulable_node_with_exactly_the_requested_gpus_counts(message):
    nodes = (a_node(0), a_node(8, RESERVED))
    exact = found(unscheduled(message, 60), gpus=8, nodes=nodes)
    smaller = found(unscheduled(message, 60), gpus=7, nodes=nodes)
    assert (exact.key, exact.text, exact.fix) == (smaller.key, smaller.text, smaller.fix)


def test_no_volume_without_storage_class_names_the_missing_default():
    pod = unscheduled(real_messages.UNBOUND, 60)
    plain = found(pod)
    missing = found(pod, events=(an_event("FailedBinding", real_messages.NO_CLASS),))
    assert (plain.key, plain.soft) == ("volume", True)
    assert plain.report_at == NOW - timedelta(seconds=5)
    assert missing.key == "volume"


def test_slow_start_is_reported_a_minute_after_scheduling():
    pod = waiting("ContainerCreating", "")
    before = {"PodReadyToStartContainers": NOW - timedelta(hours=1), "PodScheduled": NOW}
    pod["status"]["conditions"] = [
        {"type": type_, "status": "True", "lastTransitionTime": timestamp(at)} for type_, at in before.items()
    ]
    assert found(pod).report_at == NOW + timedelta(seconds=55)


@pytest.mark.parametrize(
    ("reason", "message", "passes"),
    [
        ("ErrImagePull", "unexpected EOF", True),
        ("ImagePullBackOff", real_messages.PULLS["image-dns"], True),
        ("ErrImagePull", real_messages.PULLS["image-missing"], False),
        ("CreateContainerError", "unexpected EOF", False),
    ],
)
def test_may_pass_only_for_a_pull_without_a_lasting_cause(reason, message, passes):
    assert may_pass(reason, message) is passes
