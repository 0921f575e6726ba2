"""A restart of Katib's suggestion service, after which some algorithms start no more trials."""

import pytest

from bot.health.suggestion_restart import lost_search
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.trial_kinds import JOB_LABEL

EXPERIMENT = {"metadata": {"name": "lr"}, "spec": {"maxTrialCount": 3}}
BEFORE, FIRST, LATER = (f"2026-11-22T10:{minute:02}:00Z" for minute in (0, 5, 30))


def a_trial(created=FIRST):
    return {"metadata": {"creationTimestamp": created}}


def a_service(created=BEFORE, restarts=0, started=BEFORE, name="lr", **meta):
    labels = {EXPERIMENT_LABEL: name, **meta.pop("labels", {})}
    container = {"name": "suggestion", "restartCount": restarts, "state": {"running": {"startedAt": started}}}
    return {
        "metadata": {"labels": labels, "creationTimestamp": created, **meta},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("services", "lost"),
    [
        ([a_service()], False),
        ([a_service(restarts=2, started=BEFORE)], False),  # before the first trial
        ([a_service(restarts=1, started=LATER)], True),
        ([a_service(created=FIRST, restarts=1, started=FIRST)], False),  # times are in whole seconds
        ([a_service(created=LATER, started=LATER)], True),  # its node was drained
        ([a_service(), a_service(created=LATER)], False),
        ([a_service(deletionTimestamp=LATER), a_service(created=LATER)], True),
        ([a_service(created=LATER, name="lr-2")], False),  # of another attempt
        ([a_service(created=LATER, labels={JOB_LABEL: "lr-a"})], False),  # a trial's pod
        ([], False),
    ],
)
def test_lost_search_compares_the_service_with_the_first_trial(services, lost):
    assert lost_search("cmaes", EXPERIMENT, [a_trial(LATER), a_trial()], services) is lost


@pytest.mark.parametrize(("algorithm", "trials"), [("tpe", 1), ("grid", 1), ("sobol", 0), ("sobol", 3)])
def test_lost_search_needs_an_algorithm_without_memory_and_trials_to_start(algorithm, trials):
    service = a_service(restarts=1, started=LATER)
    assert not lost_search(algorithm, EXPERIMENT, [a_trial()] * trials, [service])


def test_restart_of_another_container_loses_nothing():
    service = a_service()
    sidecar = {"name": "istio-proxy", "restartCount": 3, "state": {"running": {"startedAt": LATER}}}
    service["status"]["containerStatuses"].insert(0, sidecar)
    assert not lost_search("cmaes", EXPERIMENT, [a_trial()], [service])


def test_lost_search_without_an_experiment_is_no_problem():
    assert not lost_search("sobol", None, [a_trial()], [a_service(restarts=1, started=LATER)])
