"""The sweeps of the scale benchmark are read as running ones, and its goals are missed when a change is."""

import pytest

from bench.scale import TRIALS, Figures, _objects, _reaction, _toggle, _trial
from k8s.katib.spec import MAIN
from k8s.pods import read_pod
from local.kubernetes.store import Store
from tests.bot.factories import a_sweep


@pytest.mark.parametrize(
    ("reactions", "unseen", "met"), [([20.0] * 9, 0, True), ([20.0] * 9, 1, False), ([21.0] * 9, 0, False)]
)
def test_reaction_slower_than_twice_or_missing_misses_the_goal(reactions, unseen, met):
    few = Figures(reactions=[10.0] * 9)
    assert _reaction("1,000 sweeps", Figures(reactions=reactions, unseen=unseen), few).met is met


def test_objects_of_a_sweep_are_accepted_and_its_pods_start_and_stop():
    cluster, sweep, running = Store(), a_sweep(), set()
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    for number in range(TRIALS):
        _objects(cluster, sweep, number)
    assert [len(cluster.list(kind, "sweeps")) for kind in ("Trial", "Job", "Pod")] == [20, 19, 19]
    name = f"{_trial(sweep.id, 1)}-pod"
    for runs in (True, False):
        _toggle(cluster, name, running)
        assert read_pod(cluster.get("Pod", "sweeps", name), MAIN).running is runs
