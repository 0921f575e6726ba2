"""A restart of Katib's suggestion service, after which some algorithms start no more trials."""

import asyncio
from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.core.request import Notify
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.features.search_lost import SearchSeen, observe
from bot.sweep.model.observation import Observation, RawObjects
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import parse_time
from k8s.trial_kinds import JOB_LABEL
from tests.bot.factories import OWNER, PLAN
from tests.bot.sweep.model.observations import OPEN, RUNNING, a_trial, after
from tests.cases import cases

EXPERIMENT = replace(OPEN, max_trials=3)
BEFORE, FIRST, LATER = (f"2026-11-22T10:{minute:02}:00Z" for minute in (0, 5, 30))


def lost_search(*services, algorithm="cmaes", trials=(FIRST,), experiment=EXPERIMENT):
    made = tuple(replace(a_trial("t"), created=parse_time(created)) for created in trials)
    raw = RawObjects(experiment=experiment, trials=made, pods=services)
    sweep = replace(RUNNING, plan=replace(PLAN, space=replace(PLAN.space, algorithm=algorithm)))
    seen = Observation(raw=raw)
    assert asyncio.run(observe(replace(sweep, plan=None), seen, None)) is seen
    return asyncio.run(observe(sweep, seen, None)).of(SearchSeen).lost


def a_service(created=BEFORE, restarts=0, started=BEFORE, name=PLAN.experiment_ref.name, **meta):
    labels = {EXPERIMENT_LABEL: name, **meta.pop("labels", {})}
    container = {"name": "suggestion", "restartCount": restarts, "state": {"running": {"startedAt": started}}}
    return {
        "metadata": {"labels": labels, "creationTimestamp": created, **meta},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


@cases(
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
    assert lost_search(*services, trials=(LATER, FIRST)) is lost


@pytest.mark.parametrize(("algorithm", "trials"), [("tpe", 1), ("grid", 1), ("sobol", 0), ("sobol", 3)])
def test_lost_search_needs_an_algorithm_without_memory_and_trials_to_start(algorithm, trials):
    service = a_service(restarts=1, started=LATER)
    assert not lost_search(service, algorithm=algorithm, trials=[FIRST] * trials)


def test_lost_search_is_that_of_its_own_container_and_experiment():
    service = a_service()
    sidecar = {"name": "istio-proxy", "restartCount": 3, "state": {"running": {"startedAt": LATER}}}
    service["status"]["containerStatuses"].insert(0, sidecar)
    assert not lost_search(service)
    assert not lost_search(a_service(restarts=1, started=LATER), experiment=None)


def test_lost_search_is_reported_loudly_once_for_each_experiment_and_shown_while_trials_run():
    seen = {"experiment": OPEN}
    once = after(RUNNING, SearchSeen(lost=True), **seen)
    [event] = once.outbox
    assert (event.kind, event.loud) == ("search_lost", True)
    assert event.text == (
        f":warning: <@{OWNER}> No new trials start: Katib's suggestion service restarted, and `random` lost "
        "the state of its search. Running trials finish.\n*Fix:* Run `/sweep drain lr-brave-otter` to end "
        "this sweep with its results, then `/sweep rerun lr-brave-otter` to search again."
    )
    assert after(once, SearchSeen(lost=True), **seen) == once
    line = "No new trials start: Katib's suggestion service lost the search."
    assert line in str(parent(once, Links()).blocks)
    assert line not in str(parent(replace(once, phase=Phase.SUCCEEDED), Links()).blocks)
    again = after(replace(once, attempt=2), SearchSeen(lost=True), **seen)
    assert len(again.outbox) == 2
    quiet = replace(RUNNING, request=replace(RUNNING.request, notify=Notify.NONE))
    [event] = after(quiet, SearchSeen(lost=True), **seen).outbox
    assert (event.loud, OWNER in event.text) == (False, False)


@pytest.mark.parametrize("changes", [{"draining": "drained"}, {"holds": ("pause",)}])
def test_lost_search_of_a_sweep_that_starts_no_trials_anyway_is_not_reported(changes):
    sweep = replace(RUNNING, **changes)
    assert after(sweep, SearchSeen(lost=True), experiment=OPEN).outbox == ()
    assert after(RUNNING, experiment=OPEN).outbox == ()
