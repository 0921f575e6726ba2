"""The counts with which Katib runs fewer trials at once without deleting any.

Each patch is checked by the rules of Katib's webhook (validator.go), and its effect by ReconcileTrials.
"""

from itertools import product

import pytest

from k8s.katib.patches import paced
from k8s.slim import slim
from tests.cases import cases


def an_experiment(parallel, most, ended=0, active=0, failed=None):
    spec = {"parallelTrialCount": parallel, "maxTrialCount": most}
    spec |= {} if failed is None else {"maxFailedTrialCount": failed}
    return {"spec": spec, "status": {"trials": ended + active, "trialsSucceeded": ended}}


def patched(experiment, running, total=20, max_failed=0, allowed=20):
    patch = paced(experiment, total=total, allowed=allowed, running=running, max_failed=max_failed)
    merged = experiment["spec"] | patch.get("spec", {})
    return {name: count for name, count in merged.items() if count is not None}


def starts(spec, ended, active):
    """Return how many trials Katib starts (ReconcileTrials), now or as trials end."""
    return max(0, min(spec["maxTrialCount"] - ended, spec["parallelTrialCount"]) - active)


@pytest.mark.parametrize("max_failed", [0, 3, 20])
def test_patch_obeys_the_webhook_and_never_lowers_parallel(max_failed):
    every = product(range(0, 12, 3), range(1, 9), range(1, 9), range(8, 21))
    for ended, active, running, most in (case for case in every if case[3] >= case[0] + case[1]):
        old = an_experiment(8, most, ended, active)
        patch = paced(old, total=20, allowed=20, running=running, max_failed=max_failed)
        spec = patched(old, running, max_failed=max_failed)
        assert spec["parallelTrialCount"] == 8
        if patch:
            assert spec["maxTrialCount"] > old["status"]["trials"]
            assert spec["maxTrialCount"] >= spec["parallelTrialCount"]
            assert spec.get("maxFailedTrialCount", 0) <= spec["maxTrialCount"]


@pytest.mark.parametrize(("running", "most"), [(1, 1), (5, 5)])
def test_patch_up_to_parallel_needs_no_throttle_so_nothing_stalls_without_the_bot(running, most):
    assert patched(an_experiment(1, 20, active=1), running) == {
        "parallelTrialCount": most,
        "maxTrialCount": 20,
        "maxFailedTrialCount": 0,
    }


def test_throttle_lets_at_most_one_more_start_and_then_shrinks_to_the_target():
    ended, active, most, started = 2, 8, 20, 0
    while active > 3:
        spec = patched(an_experiment(8, most, ended, active), running=3)
        most = spec["maxTrialCount"]
        ended, active = ended + 1, active - 1
        new = starts(spec, ended, active)
        active, started = active + new, started + new
    assert started == 1
    for _ in range(9):  # a trial that ends is replaced
        ended, active = ended + 1, active - 1
        spec = patched(an_experiment(8, most, ended, active), running=3)
        most = spec["maxTrialCount"]
        active += starts(spec, ended, active)
        assert active == min(3, 20 - ended)
        assert patched(an_experiment(8, most, ended, active), running=3)["maxTrialCount"] == most


def test_experiment_that_ended_at_a_lowered_maximum_is_continued():
    assert patched(an_experiment(8, 12, ended=12), running=2)["maxTrialCount"] == 14


def test_experiment_that_ended_with_trials_without_metrics_is_continued():
    experiment = an_experiment(8, 12, ended=10)
    experiment["status"] |= {"trials": 12, "trialMetricsUnavailable": 2}
    assert (
        patched(slim({"kind": "Experiment", "metadata": {}, **experiment}), running=1)["maxTrialCount"] == 13
    )


def test_throttled_experiment_with_active_trials_is_left_as_it_is():
    experiment = an_experiment(8, 12, ended=9, active=1)
    experiment["status"] |= {"trials": 12, "trialMetricsUnavailable": 2}
    assert paced(experiment, total=20, allowed=20, running=1, max_failed=3) == {}


@cases("active", [4, 0])
def test_experiment_with_all_trials_created_needs_no_patch(active):
    created = an_experiment(8, 20, ended=20 - active, active=active)
    assert paced(created, total=20, allowed=20, running=1, max_failed=3) == {}


def test_failures_count_again_once_the_maximum_allows_them():
    throttled = patched(an_experiment(4, 20, ended=1, active=4, failed=20), running=1, max_failed=20)
    assert "maxFailedTrialCount" not in throttled
    assert patched({"spec": throttled, "status": {"trials": 6}}, running=4, max_failed=20) == {
        "parallelTrialCount": 4,
        "maxTrialCount": 20,
        "maxFailedTrialCount": 20,
    }
