"""Which cause `inspect` prints for the facts about a sweep, and what it waits for without one."""

from datetime import timedelta

import pytest

from bot.core.events import Progress
from bot.core.finding import broken
from bot.core.record import Phase, Quarantine
from bot.operate.causes import find_cause
from bot.operate.facts import ObjectFacts, SweepFacts, _state
from bot.operate.words import age
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.storage.last_errors import LastError
from bot.platform.storage.queue_state import ItemState
from tests.bot.factories import NOW, a_sweep
from tests.cases import cases

MINUTE = timedelta(minutes=1)
IDLE = ItemState()
RUNNING = a_sweep(Phase.RUNNING, submitted=True)


def cause(record=RUNNING, **known):
    facts = {"sweep": "lr-brave-otter", "now": NOW, "item": IDLE, "has_worker": True} | known
    return find_cause(SweepFacts(record=record, **facts))


def an_error(service, text="502", ago=MINUTE):
    return LastError(service=service, text=text, at=NOW - ago)


def failing(failures=1, **known):
    return {"item": ItemState(state="delayed", due=NOW + MINUTE, failures=failures)} | known


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_799, "47 h"),
        (172_800, "2 d"),
    ],
)
def test_age_is_in_one_unit(seconds, text):
    assert age(timedelta(seconds=seconds), NOW) == text
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.RECEIVED, "its branch and space file are being checked"),
        (Phase.OPENING, "its thread is being opened"),
        (Phase.BUILDING, "its image is being built"),
        (Phase.PENDING, "the first trial is starting"),
        (Phase.RUNNING, "2 trials running, 3 finished"),
        (Phase.STOPPING, "its pods are being deleted"),
        (Phase.FAILED, "the sweep ended (failed)"),
    ],
)
def test_sweep_without_trouble_names_what_it_waits_for(phase, words):
    record = a_sweep(phase, progress=Progress(running=2, succeeded=3))
    assert cause(record).text == f"No trouble found: {words}."


@pytest.mark.parametrize(
    ("has_worker", "state", "late", "text"),
    [
        (True, "ready", 59, "No trouble found"),
        (True, "ready", 60, "all workers are busy or stuck. The sweep has been due for 60 s."),
        (True, "delayed", 60, "all workers are busy or stuck."),
        (True, "running", 60, "No trouble found"),  # its lease
        (False, "ready", 0, "No worker is running: no process holds a lease."),
        (False, "ready", 180, "holds a lease. The sweep has been due for 3 min."),
    ],
)
def test_late_sweep_is_the_workers_trouble(has_worker, state, late, text):
    item = ItemState(state=state, due=NOW - timedelta(seconds=late))
    assert text in cause(has_worker=has_worker, item=item).text


def test_lost_record_says_whether_to_recover_it():
    lost = cause(None, stored=RUNNING)
    assert (lost.text, lost.fix) == (
        "Redis lost the record; its ConfigMap has it (running).",
        "`sweepbot recover`",
    )
    assert "the sweep ended (failed)" in cause(None, stored=a_sweep(Phase.FAILED)).text
    assert "Unknown sweep" in cause(None).text
    assert "Unknown sweep" not in cause(None, cluster_error="no route to host").text


@cases(
    ("known", "text"),
    [
        (failing(errors=(an_error("kubernetes"),)), "The API server isn't working: 502."),
        (failing(errors=(an_error("kubernetes", "403 Forbidden"),)), "rejects a request: 403 Forbidden."),
        ({"errors": (an_error("kubernetes"),)}, "No trouble found"),  # it works again
        (failing(errors=(an_error("kubernetes", ago=16 * MINUTE),)), "No trouble found"),
        ({"cluster_error": "no route"}, "The API server isn't working: no route."),
        ({"cluster_error": "denied", "cluster_refuses": True}, "rejects a request: denied."),
        (failing(errors=(an_error("registry"),)), "The registry doesn't respond: 502."),
        ({"errors": (an_error("registry"),)}, "No trouble found"),
        (failing(3, errors=(an_error("other"),)), "Failed 3 times in a row: 502."),
        ({"errors": (an_error("slack", "chat.postMessage: is_archived"),)}, "the channel is archived"),
        (
            {"errors": (an_error("slack", "chat.update: restricted_action_thread_locked"),)},
            "don't let the bot post",
        ),
        ({"errors": (an_error("slack", "fatal_error"),)}, "No trouble found"),  # nothing is waiting
        (failing(errors=(an_error("slack", "fatal_error"),)), "Slack doesn't accept messages (0 waiting)"),
        ({"item": ItemState(quarantine=Quarantine(NOW - 3 * MINUTE, "KeyError."))}, "for 3 min: KeyError."),
    ],
)
def test_failing_service_is_the_cause_while_it_fails(known, text):
    assert text in cause(**known).text


@pytest.mark.parametrize(("phase", "is_cause"), [(Phase.RECEIVED, True), (Phase.RUNNING, False)])
def test_git_matters_only_before_the_plan(phase, is_cause):
    found = cause(a_sweep(phase), errors=(an_error("git"),))
    assert ("The git host doesn't respond" in found.text) is is_cause


def an_object(kind="Pod", state="Running", **known):
    return ObjectFacts(kind=kind, namespace="sweeps", name="x", state=state, **known)


@pytest.mark.parametrize(
    ("phase", "seconds", "finalizers", "text"),
    [
        (Phase.STOPPING, 60, ("a/b",), "its pods are being deleted"),
        (Phase.STOPPING, 61, ("a/b",), "Cleanup waits for Pod x: finalizer a/b has blocked its deletion"),
        (Phase.RUNNING, 61, ("a/b",), "Cleanup waits for Pod x"),
        (Phase.STOPPING, 61, (), "Cleanup has waited 61 s for Pod x."),
        (Phase.RUNNING, 61, (), "0 trials running"),
    ],
)
def test_deletion_is_stuck_after_a_minute(phase, seconds, finalizers, text):
    pod = an_object(deleted=NOW - timedelta(seconds=seconds), finalizers=finalizers)
    assert text in cause(a_sweep(phase), objects=(pod,)).text


def test_command_about_a_stuck_deletion_has_a_kind_of_kubernetes():
    for finalizers in ((), ("a/b",)):
        pod = an_object("Suggestion pod", deleted=NOW - 2 * MINUTE, finalizers=finalizers)
        assert "kubectl -n sweeps" in (fix := cause(a_sweep(Phase.STOPPING), objects=(pod,)).fix)
        assert " pod x" in fix
        assert "suggestion" not in fix


@pytest.mark.parametrize(
    ("phase", "state", "seconds", "is_cause"),
    [
        (Phase.BUILDING, "no pod", 61, True),
        (Phase.BUILDING, "no pod", 60, False),
        (Phase.BUILDING, "1 active", 61, False),
        (Phase.RUNNING, "no pod", 61, False),
    ],
)
def test_build_job_without_a_pod_for_a_minute_is_a_problem(phase, state, seconds, is_cause):
    job = an_object("Job", state, created=NOW - timedelta(seconds=seconds))
    assert ("Build Job x has had no pod" in cause(a_sweep(phase), objects=(job,)).text) is is_cause


@pytest.mark.parametrize(
    ("phase", "kind", "state", "is_cause"),
    [
        (Phase.PENDING, "Suggestion pod", "Running: CrashLoopBackOff", True),
        (Phase.RUNNING, "Suggestion pod", "Running: OOMKilled", True),
        (Phase.RUNNING, "Suggestion pod", "Running", False),
        (Phase.RUNNING, "Pod", "Running: OOMKilled", False),
        (Phase.STOPPING, "Suggestion pod", "Running: OOMKilled", False),
    ],
)
def test_crashing_suggestion_service_explains_missing_trials(phase, kind, state, is_cause):
    found = cause(a_sweep(phase), objects=(an_object(kind, state),))
    assert ("suggestion service is crashing" in found.text) is is_cause


def test_lasting_diagnosis_comes_before_a_wait():
    waits, crash = (
        Diagnosis(key="a", text="Waits.", soft=True),
        Diagnosis(key="b", text="Failed.", detail="x\ny"),
    )
    assert cause(diagnoses=(waits, crash)).text == "Failed. (x)"
    assert cause(diagnoses=(waits,)).text == "Waits."


@pytest.mark.parametrize(
    ("phase", "url", "is_cause"),
    [
        (Phase.RUNNING, "", True),
        (Phase.BUILDING, "", True),
        (Phase.RUNNING, "https://mlflow/1", False),
        (Phase.STOPPING, "", False),
    ],
)
def test_mlflow_matters_until_the_sweep_has_its_link(phase, url, is_cause):
    found = cause(a_sweep(phase, results_url=url), faults=(broken("MLflow", "500", "Fix."),))
    assert ("MLflow isn't working: 500." in found.text) is is_cause


def test_sweep_that_waits_for_people_says_for_what():
    held = a_sweep(Phase.HELD, reason="first trial failed", failure="Crashed.")
    assert cause(held).text == "On hold: first trial failed. Crashed."
    assert cause(a_sweep(Phase.PAUSED)).text == "Paused; no GPUs are allocated."
    waiting = a_sweep(Phase.OPENING, thread="1.1", holds=("approval",), reason="the forecast is 9 GPU-h")
    assert cause(waiting).text == "Waiting for approval: the forecast is 9 GPU-h"


def test_cause_of_an_unreadable_record_is_the_unfinished_upgrade():
    found = cause(record=None, unreadable="format 9")
    assert (found.text, found.fix) == (
        "The record is unreadable: format 9.",
        "Finish the upgrade of all pods.",
    )


KILLED = [{"state": {"running": {}}}, {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (
            {"reason": "Evicted", "message": "The node was low on memory."},
            "Evicted: The node was low on memory.",
        ),
        ({"reason": "NodeLost"}, "NodeLost"),
        ({"containerStatuses": KILLED}, "OOMKilled"),
    ],
)
def test_failed_pod_is_shown_with_its_eviction_or_its_containers_end(status, shown):
    assert _state({"status": {"phase": "Failed", **status}}, "Pod") == f"Failed: {shown}"
    done = [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]
    assert _state({"status": {"phase": "Succeeded", "containerStatuses": done}}, "Pod") == "Succeeded"
