"""Trials that are stopped or restarted, the end of a sweep, and events other than phase changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.events import Event, Progress
from bot.core.record import Phase
from bot.sweep.decisions.advance import apply_cancels, requeue_after
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.lifecycle.texts import trial_killed
from bot.sweep.model.observation import Observation
from k8s.engine import End, ExperimentState, TrialState
from k8s.jobs import Job, JobState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.sweep.model.observations import (
    CANCEL,
    DONE,
    FAILED,
    LATER,
    MAKES,
    OPEN,
    RUNNING,
    a_job,
    a_pod,
    a_trial,
    after,
    building,
    kinds,
)
from tests.cases import cases


@pytest.mark.parametrize(("minutes", "stopped"), [(9, {}), (10, {}), (10.1, {"t1": ""})])
def test_completed_trial_without_metrics_is_stopped_after_ten_minutes(minutes, stopped):
    """Katib would wait forever, and train again once the Job is deleted (katib#1795)."""
    job = a_job("t1", JobState.COMPLETE, ended=LATER - timedelta(minutes=minutes))
    trials = (a_trial("t1"), a_trial("t2"))
    assert after(RUNNING, experiment=OPEN, trials=trials, jobs=(job, a_job("t2"))).to_kill == stopped
    by_user = replace(RUNNING, to_kill={"t1": OWNER})
    assert after(by_user, experiment=OPEN, trials=trials, jobs=(job,)).to_kill == {"t1": OWNER}
    failed = replace(job, state=JobState.FAILED)
    assert after(RUNNING, experiment=OPEN, trials=trials, jobs=(failed,)).to_kill == {}


def test_stopped_trial_is_reported_when_its_gpus_are_free():
    sweep = replace(RUNNING, to_kill={"t1": OWNER, "t2": ADMIN})
    trials = (a_trial("t1", TrialState.KILLED), a_trial("t2", TrialState.KILLED))
    held = after(sweep, experiment=OPEN, trials=trials, pods=(a_pod("t1"), a_pod("t2")))
    assert held.to_kill == sweep.to_kill
    one = after(sweep, experiment=OPEN, trials=trials, pods=(a_pod("t1"), a_pod("t2", finished=True)))
    assert one.to_kill == {"t1": OWNER}
    assert one.outbox == (trial_killed(sweep, "t2", ADMIN),)
    running = a_sweep(Phase.RUNNING, submitted=True)
    live = (a_trial("otter-abc"), a_trial("otter-xyz"))
    jobs = tuple(Job(name=t.name, uid=f"u-{t.name}", state=JobState.ACTIVE) for t in live)
    command = replace(CANCEL, action=Action.KILL, trial="xyz")
    killing = after(running, experiment=OPEN, trials=live, jobs=jobs, commands=(command,))
    assert (killing.phase, killing.to_kill, kinds(killing)) == (Phase.RUNNING, {"otter-xyz": OWNER}, [])
    required = required_changes(killing, Observation(experiment=OPEN, trials=live, jobs=jobs), NOW)
    assert [p.ref.name for p in required.patch] == ["otter-xyz"]
    assert [d.uid for d in required.delete] == ["u-otter-xyz"]
    dead = (live[0], replace(live[1], state=TrialState.KILLED))
    still = after(killing, experiment=OPEN, trials=dead, jobs=jobs[:1], pods=(a_pod("otter-xyz"),))
    assert kinds(still) == []
    gone = after(still, experiment=OPEN, trials=dead, jobs=jobs[:1])
    assert (kinds(gone), gone.to_kill) == (["trial_killed"], {})
    trials = (a_trial("t1", TrialState.KILLED), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    assert after(STOPPING, trials=trials, experiment=FAILED).progress.killed == 1
    trials = (*trials, *(a_trial(name, TrialState.STOPPED_EARLY) for name in ("t3", "t4")))
    judged = after(replace(STOPPING, stopped_values={"t4": 0.25}), trials=trials, experiment=FAILED)
    assert (judged.progress.best.trial, judged.progress.best.value) == ("t4", 0.25)


def test_cancel_stops_with_one_event_and_opened_thread_requeues_at_once():
    cancelled = after(RUNNING, experiment=OPEN, commands=(CANCEL,))
    assert (cancelled.phase, cancelled.ending, cancelled.since) == (Phase.STOPPING, Phase.CANCELLED, LATER)
    text = ":no_entry_sign: Cancelled by *ada*; stopping running trials and builds."
    assert (cancelled.reason, cancelled.outbox) == ("cancelled", (Event(kind="stopping", text=text),))
    assert apply_cancels(RUNNING, [CANCEL], CONFIG, LATER) == cancelled
    assert apply_cancels(RUNNING, [], CONFIG, LATER) == RUNNING
    final = a_sweep(Phase.CANCELLED, cancelled_by=OWNER)
    assert after(final) == final
    opening = a_sweep(Phase.OPENING)
    assert requeue_after(opening, replace(opening, thread="1.1"), NOW) == timedelta(0)
    assert requeue_after(replace(opening, plan=None), opening, NOW) == timedelta(seconds=20)
    more = replace(RUNNING, plan=replace(PLAN, branches=("next",)))
    assert requeue_after(RUNNING, more, NOW) == timedelta(0)


STOPPING = a_sweep(Phase.STOPPING, submitted=True, ending=Phase.CANCELLED, reason="cancelled")


@pytest.mark.parametrize(
    "held",
    [
        {"experiment": OPEN},
        {"pods": (a_pod("t1"),)},
        {"jobs": (a_job("t1"),)},
        {"trials": (a_trial("t1"),)},
        building(a_job(MAKES.ref.name)),
    ],
)
def test_stopping_ends_when_nothing_is_held(held):
    assert after(STOPPING, now=NOW, **held).phase is Phase.STOPPING
    ended = after(STOPPING, experiment=FAILED, pods=(a_pod("t1", finished=True),))
    assert (ended.phase, ended.since, kinds(ended)) == (
        Phase.CANCELLED,
        LATER,
        ["results", "result_files"],
    )
    assert after(replace(STOPPING, ending=None)) == replace(STOPPING, ending=None)
    counted = Progress(succeeded=2, running=1, waiting=1, waits_for="GPUs", finishing=1)
    assert after(replace(STOPPING, progress=counted)).progress == Progress(succeeded=2)


def grace(seconds):
    spec = PLAN.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return spec.get("terminationGracePeriodSeconds", 30) + seconds


@pytest.mark.parametrize(("seconds", "events"), [(299, []), (300, []), (301, ["stuck"])])
def test_stuck_pods_are_named_five_minutes_after_their_grace_period(seconds, events):
    now = NOW + timedelta(seconds=grace(seconds))
    stuck = after(STOPPING, now=now, pods=(a_pod("t1"), a_pod("t2", node=""), a_pod("t3", finished=True)))
    assert kinds(stuck) == events
    if events:
        assert stuck.outbox[0].text == (
            ":warning: Pods still terminating: t1-x on n1, t2-x on no node. If a node is down, an admin can "
            "remove its pods with `kubectl delete pod NAME --grace-period=0 --force`. The sweep ends once "
            "they're gone."
        )
        assert after(stuck, now=now, pods=(a_pod("t1"),)) == stuck


def test_stuck_names_ten_pods_and_is_empty_without_a_pod_or_a_plan():
    assert after(STOPPING, jobs=(a_job("t1"),)).outbox == ()
    unplanned = replace(STOPPING, plan=None)
    assert kinds(after(unplanned, now=NOW + timedelta(seconds=301), pods=(a_pod("t1"),))) == ["stuck"]
    assert after(unplanned, now=NOW + timedelta(seconds=300), pods=(a_pod("t1"),)).outbox == ()
    pods = tuple(a_pod(f"t{n}") for n in range(11))
    assert after(STOPPING, pods=pods).outbox[0].text.count(" on n1") == 10


@cases(
    ("before", "now", "due", "seconds"),
    [
        (Phase.PENDING, Phase.RUNNING, None, 0),
        (Phase.OPENING, Phase.BUILDING, None, 0),
        (Phase.RUNNING, Phase.RUNNING, None, 300),
        (Phase.BUILDING, Phase.BUILDING, None, 300),
        (Phase.HELD, Phase.HELD, None, 300),
        (Phase.PAUSED, Phase.PAUSED, None, 300),
        (Phase.PENDING, Phase.PENDING, None, 20),
        (Phase.STOPPING, Phase.STOPPING, None, 20),
        (Phase.RUNNING, Phase.RUNNING, 10, 10),
        (Phase.PENDING, Phase.PENDING, 40, 20),
    ],
)
def test_requeue_after_a_change_is_at_once_else_when_due(before, now, due, seconds):
    due = due and timedelta(seconds=due)
    assert requeue_after(a_sweep(before), a_sweep(now), NOW, due) == timedelta(seconds=seconds)
    assert requeue_after(a_sweep(before), a_sweep(Phase.FAILED), NOW, due) is None


def test_drained_sweep_closes_its_experiment_and_waits_for_running_trials():
    command = replace(CANCEL, action=Action.DRAIN)
    live = (a_trial("t1"), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    running = a_sweep(Phase.RUNNING, submitted=True)
    draining = after(running, experiment=OPEN, trials=live, commands=(command,))
    assert draining.outbox[0].kind == "draining"
    [patch] = required_changes(draining, Observation(experiment=OPEN, trials=live), NOW).patch
    conditions = [(c["type"], c["status"]) for c in patch.body["status"]["conditions"]]
    assert (patch.ref.kind, patch.subresource, conditions) == (
        "Experiment",
        "status",
        [("Succeeded", "True")],
    )
    closed = replace(OPEN, state=ExperimentState.SUCCEEDED, end=End.DRAINED)
    assert after(draining, experiment=closed, trials=live).phase is Phase.RUNNING
    over = (a_trial("t1", TrialState.SUCCEEDED, 0.4), live[1])
    ended = after(draining, experiment=closed, trials=over)
    assert (ended.ending, ended.reason) == (Phase.SUCCEEDED, "drained after 2 trials")


@pytest.mark.parametrize(("experiment", "ending"), [(DONE, Phase.SUCCEEDED), (FAILED, Phase.FAILED)])
@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_stopping_waits_until_no_pod_runs(phase, experiment, ending):
    """Katib leaves the other trials of a finished experiment on their GPUs."""
    sweep = after(a_sweep(phase, submitted=True), experiment=experiment, pods=(a_pod("t2"),))
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, ending)
    assert after(sweep, experiment=experiment, pods=(a_pod("t2"),)).phase is Phase.STOPPING
    assert after(sweep, experiment=experiment, pods=(a_pod("t2", finished=True),)).phase is ending


def test_stopping_closes_the_experiment_before_it_kills_trials():
    """A trial that starts between the two would keep its GPUs."""
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED, image="i", submitted=True)
    live = (a_trial("t1"), a_trial("t2", TrialState.SUCCEEDED))
    jobs = (
        Job(name="t1", uid="j1", state=JobState.ACTIVE),
        Job(name="t2", uid="j2", state=JobState.COMPLETE),
    )
    first = required_changes(sweep, Observation(experiment=OPEN, trials=live, jobs=jobs), NOW)
    assert [p.ref.kind for p in first.patch] == ["Experiment"]
    assert first.delete == ()
    then = required_changes(sweep, Observation(experiment=FAILED, trials=live, jobs=jobs), NOW)
    assert [(p.ref.kind, p.ref.name, p.subresource) for p in then.patch] == [("Trial", "t1", "status")]
    assert [(d.ref.name, d.uid) for d in then.delete] == [("t1", "j1")]
