"""The sweeps of the scale benchmark are read as running ones, and its goals are missed when a change is."""

import pytest

from bench.scale import Figures, _reaction
from bench.scale_cluster import TRIALS, a_cluster, sweep_name, toggle, trial_name
from k8s.pods import read_pod
from k8s.trial_kinds import JOB


@pytest.mark.parametrize(
    ("reactions", "unseen", "met"), [([20.0] * 9, 0, True), ([20.0] * 9, 1, False), ([21.0] * 9, 0, False)]
)
def test_reaction_slower_than_twice_or_missing_misses_the_goal(reactions, unseen, met):
    few = Figures(reactions=[10.0] * 9)
    assert _reaction("1,000 sweeps", Figures(reactions=reactions, unseen=unseen), few).met is met


def test_cluster_has_accepted_sweeps_whose_pods_start_and_stop():
    cluster, running = a_cluster(2), set()
    kinds = ("Experiment", "Trial", "Job", "Pod")
    assert [len(cluster.list(kind, "sweeps")) for kind in kinds] == [2, 2 * TRIALS, 38, 38]
    name = f"{trial_name(sweep_name(1), 1)}-pod"
    for runs in (True, False):
        toggle(cluster, name, running)
        assert read_pod(cluster.get("Pod", "sweeps", name), JOB.container).running is runs
