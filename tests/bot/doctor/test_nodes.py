"""Which Kubernetes can run trials on several machines."""

from dataclasses import replace

import pytest

from bot.config.limits import Limits
from bot.doctor.nodes import several_nodes
from k8s.katib.pod_shape import PodShape
from k8s.trial_kinds import PYTORCH_JOB
from tests.bot.factories import CONFIG


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("v1.27.16", "nodes= needs Kubernetes 1.28 or newer; found v1.27.16"),
        ("v1.30.4-gke.1", "before Kubernetes 1.31, a trial with nodes= ends only when all its workers end"),
        ("v1.31.0", ""),
        ("v2.0.0", ""),
        ("main", ""),
    ],
)
def test_several_nodes_warns_of_an_old_kubernetes(version, text):
    found = several_nodes(version, CONFIG)
    assert [text in each.found for each in found] == ([True] if text else [])


def test_several_nodes_is_silent_where_trials_have_one_node():
    assert several_nodes("v1.20.0", replace(CONFIG, limits=Limits(nodes_per_trial=1))) == []


def test_several_nodes_is_silent_where_trials_are_pytorch_jobs():
    config = replace(CONFIG, trials=PodShape(multi_node=PYTORCH_JOB))
    assert several_nodes("v1.27.0", config) == []
