"""The gate: when it opens, when it holds a sweep and with which text, and what a new attempt keeps."""

from dataclasses import replace

import pytest

from bot.core.events import Event, EventKind, Health, HealthStatus, Progress, Result
from bot.core.record import Phase
from bot.lifecycle.gate import follow_gate, is_held_or_will_be, of_attempt, opened, restarted
from bot.lifecycle.observation import Observation
from k8s.katib.patches import DRAINED
from k8s.katib.status import Experiment, ExperimentState, TrialState
from tests.bot.factories import OWNER, PLAN, a_sweep
from tests.bot.lifecycle.observations import DONE, FAILED, LATER, RAW, a_job, a_pod, a_trial

ONE = RAW | {"spec": dict.fromkeys(RAW["spec"], 1)}
GATED = a_sweep(Phase.RUNNING, submitted=True, gated=True)
OPEN = Experiment(state=ExperimentState.RUNNING, raw=ONE)
BROKEN = replace(FAILED, raw=ONE)
COMPLETE = replace(DONE, raw=ONE)
FAILED_TRIAL = a_trial("t1", TrialState.FAILED)
SEEN = Observation(experiment=OPEN, trials=(a_trial("t1"),), healthy="t1")
FAILED_SEEN = Observation(experiment=BROKEN, trials=(FAILED_TRIAL,))
CRASH = Health(status=HealthStatus.FAILED, key="exit", text="Exit code 1.", fix="Read the log.", lasting=True)
GATE_OPENED = Event(kind=EventKind.GATE_OPENED, trial="t1")


@pytest.mark.parametrize(
    ("sweep", "seen"),
    [
        (replace(GATED, plan=None), SEEN),
        (GATED, replace(SEEN, experiment=None)),
        (replace(GATED, submitted=False), SEEN),
        (replace(GATED, drained_by=OWNER), SEEN),
        (replace(GATED, drained_by=OWNER), FAILED_SEEN),
        (replace(GATED, gated=False), SEEN),
        (replace(GATED, gated=False), replace(FAILED_SEEN, experiment=replace(COMPLETE, reason=DRAINED))),
        (GATED, replace(SEEN, healthy="")),
        (GATED, replace(FAILED_SEEN, pods=(a_pod("t1"),))),
        (GATED, replace(FAILED_SEEN, trials=())),
        (GATED, replace(FAILED_SEEN, experiment=replace(BROKEN, reason=DRAINED))),
        (GATED, replace(SEEN, experiment=replace(COMPLETE, reason="ExperimentGoalReached"))),
        (GATED, replace(FAILED_SEEN, trials=(FAILED_TRIAL, a_trial("t2")))),
        (GATED, replace(FAILED_SEEN, trials=(FAILED_TRIAL, a_trial("t2", TrialState.SUCCEEDED, 0.5)))),
    ],
)
def test_follow_gate_without_a_decision_changes_nothing(sweep, seen):
    assert follow_gate(sweep, seen, LATER) == sweep


@pytest.mark.parametrize("experiment", [OPEN, BROKEN])
@pytest.mark.parametrize("total", [PLAN.space.max_trials, PLAN.space.max_trials + 1])
def test_follow_gate_of_an_experiment_that_is_open_already_reports_nothing(experiment, total):
    raised = replace(experiment, raw=ONE | {"spec": ONE["spec"] | {"maxTrialCount": total}})
    found = follow_gate(GATED, replace(FAILED_SEEN, experiment=raised), LATER)
    assert found == replace(GATED, gated=False)


@pytest.mark.parametrize(
    "seen",
    [
        SEEN,
        replace(SEEN, healthy="", trials=(a_trial("t1", TrialState.SUCCEEDED, 0.5),)),
        Observation(experiment=COMPLETE, trials=(a_trial("t1", TrialState.SUCCEEDED, 0.5),)),
    ],
)
def test_follow_gate_of_a_healthy_first_trial_opens(seen):
    assert follow_gate(GATED, seen, LATER) == GATED.enqueue(GATE_OPENED, gated=False, extending=True)


def test_opened_before_submission_extends_nothing():
    assert opened(replace(GATED, submitted=False), GATE_OPENED).extending is False


@pytest.mark.parametrize("gated", [True, False])
def test_follow_gate_of_a_failed_first_trial_holds_the_sweep(gated):
    sweep = replace(GATED, gated=gated, extending=True)
    hold = "3 other trials didn't start."
    event = Event(kind=EventKind.HELD, text=f"first trial failed. {hold}", trial="t1")
    assert follow_gate(sweep, FAILED_SEEN, LATER) == GATED.to(
        Phase.HELD, LATER, event, reason="first trial failed", hold=hold
    )


@pytest.mark.parametrize(
    ("trials", "health", "text"),
    [
        ((FAILED_TRIAL,), CRASH, "first trial failed. Exit code 1. *Fix:* Read the log.\n3 other"),
        ((FAILED_TRIAL,), replace(CRASH, fix=""), "first trial failed. Exit code 1.\n3 other"),
        ((FAILED_TRIAL,), replace(CRASH, lasting=False), "first trial failed. 3 other"),
        ((a_trial("t1", TrialState.KILLED),), CRASH, "first trial was stopped. 3 other"),
        ((a_trial("t0", TrialState.KILLED), FAILED_TRIAL), CRASH, "first trial failed. Exit code 1. *Fix:*"),
    ],
)
def test_held_event_has_the_diagnosis_of_a_failed_trial(trials, health, text):
    held = follow_gate(replace(GATED, health=health), replace(FAILED_SEEN, trials=trials), LATER)
    assert held.outbox[0].text.startswith(text)
    assert held.outbox[0].trial == "t1"


@pytest.mark.parametrize(
    ("gpus", "seconds", "max_failed", "parallel", "text"),
    [
        (2, 3600, 2, 2, "2 trials could have failed: 4.0 GPU-hours."),
        (2, 3600, 0, 2, "1 trial could have failed: 2.0 GPU-hours."),
        (2, 3600, 3, 3, "3 trials could have failed: 6.0 GPU-hours."),
        (1, 90, 2, 2, "2 trials could have failed: 0.1 GPU-hours."),
        (1, 89, 2, 2, ""),
        (0, 3600, 2, 2, ""),
        (2, None, 2, 2, ""),
    ],
)
def test_held_event_estimates_the_gpu_hours_of_all_trials_without_the_gate(
    gpus, seconds, max_failed, parallel, text
):
    space = replace(PLAN.space, max_failed=max_failed, parallel=parallel)
    pods = (a_pod("t1", finished=True, seconds=seconds), a_pod("t0", finished=True, seconds=1))
    sweep = replace(GATED, plan=replace(PLAN, space=space, gpus=gpus))
    held = follow_gate(sweep, replace(FAILED_SEEN, pods=pods), LATER)
    assert held.hold == f"3 other trials didn't start.{f' Without the gate, {text}' if text else ''}"


@pytest.mark.parametrize(
    ("sweep", "seen", "stays"),
    [
        (replace(GATED, phase=Phase.HELD), SEEN, True),
        (GATED, FAILED_SEEN, True),
        (GATED, SEEN, False),
        (replace(GATED, drained_by=OWNER), FAILED_SEEN, False),
        (replace(GATED, gated=False), FAILED_SEEN, True),
        (replace(GATED, gated=False), replace(FAILED_SEEN, experiment=COMPLETE), False),
        (GATED, replace(FAILED_SEEN, experiment=FAILED), False),
        (GATED, replace(FAILED_SEEN, experiment=None), False),
        (replace(GATED, plan=None), FAILED_SEEN, False),
    ],
)
def test_stays_over_while_held_or_with_a_failed_first_trial(sweep, seen, stays):
    assert is_held_or_will_be(sweep, seen) is stays


def test_restarted_sweep_forgets_the_failed_experiment():
    progress = Progress(failed=1, best=Result(trial="t1", value=0.5, parameters={}))
    sweep = replace(
        GATED.to(Phase.HELD, LATER, reason="first trial failed", hold="3 other trials didn't start."),
        progress=progress,
        health=CRASH,
        health_ts="1.2",
        health_shown="x",
        examined=("t1",),
        alike={"crash": ("t1",)},
        sent_keys=("trial_failed/crash", "first_failed", "trouble/pending"),
        outbox=(Event(kind=EventKind.HEALTH), Event(kind=EventKind.HELD, text="first trial failed")),
    )
    event = Event(kind=EventKind.GATE_OPENED)
    again = restarted(sweep, event, LATER, gated=True)
    assert (again.phase, again.attempt, again.gated, again.submitted) == (Phase.PENDING, 2, True, False)
    assert (again.reason, again.hold, again.progress) == ("", "", Progress())
    assert (again.health, again.health_ts, again.health_shown) == (None, None, "")
    assert (again.examined, again.alike, again.sent_keys) == ((), {}, ("trouble/pending",))
    assert again.plan.experiment["metadata"]["name"] == "lr-brave-otter-2"
    health, held, last = again.outbox
    assert "Exit code 1." in health.text, "the record forgets the message's content"
    assert (held.text, last) == ("first trial failed", event)


def test_restarted_sweep_without_diagnosis_keeps_its_events():
    event = Event(kind=EventKind.GATE_OPENED)
    sweep = replace(GATED, outbox=(Event(kind=EventKind.HEALTH),))
    assert restarted(sweep, event, LATER, gated=False).outbox == (*sweep.outbox, event)
    unplanned = replace(sweep, plan=None)
    assert restarted(unplanned, event, LATER, gated=False) == unplanned


def test_of_attempt_drops_jobs_and_pods_of_earlier_experiments():
    sweep = restarted(GATED, Event(kind=EventKind.GATE_OPENED), LATER, gated=True)
    old, new = "lr-brave-otter-abc", "lr-brave-otter-2-xyz"
    seen = Observation(jobs=(a_job(old), a_job(new)), pods=(a_pod(old), a_pod(new)))
    assert of_attempt(sweep, seen) == Observation(jobs=(a_job(new),), pods=(a_pod(new),))
    assert of_attempt(GATED, seen) == seen
    assert of_attempt(replace(sweep, plan=None), seen) == seen
