"""Trials that are stopped or restarted, the end of a sweep, and events other than phase changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Event, EventKind, Health, HealthStatus, Progress
from bot.core.record import Phase
from bot.sweeps.lifecycle import apply_cancels, extension_refused, requeue_after
from bot.sweeps.trouble import quarantine, release, report_restored, report_trouble, resolve_trouble
from k8s.jobs import JobState
from k8s.katib.status import TrialState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.sweeps.observations import (
    CANCEL,
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


@pytest.mark.parametrize(("minutes", "stopped"), [(9, {}), (10, {}), (10.1, {"t1": ""})])
def test_completed_trial_without_metrics_is_stopped_after_ten_minutes(minutes, stopped):
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
    assert one.outbox == (Event(kind=EventKind.TRIAL_KILLED, trial="t2", by=ADMIN),)


PULLING = ("ErrImagePull", "unexpected EOF")
MISSING = ("ErrImagePull", "not found")
LONG_AGO, JUST_NOW = LATER - timedelta(seconds=61), LATER - timedelta(seconds=60)


@pytest.mark.parametrize(
    ("pod", "before", "restarts"),
    [
        ({"abandoned": NOW, "running_since": NOW}, (), True),
        ({"abandoned": NOW, "running_since": NOW}, ("u-a",), True),
        ({"abandoned": NOW, "running_since": NOW}, ("u-a", "u-b"), False),
        ({"abandoned": LONG_AGO, "waiting": PULLING}, (), True),
        ({"abandoned": LONG_AGO, "waiting": PULLING}, ("u-a",), False),
        ({"abandoned": JUST_NOW, "waiting": PULLING}, (), False),
        ({"abandoned": LONG_AGO, "waiting": MISSING}, (), False),
        ({"running_since": NOW}, (), False),
        ({"abandoned": NOW, "running_since": NOW, "deleted": True}, (), False),
        ({"abandoned": NOW, "running_since": NOW, "job_uid": "u-old"}, (), False),
    ],
)
def test_trial_without_a_collector_is_restarted(pod, before, restarts):
    sweep = replace(RUNNING, restarted=dict.fromkeys(before, "t1") | {"u-z": "t9"})
    seen = {"experiment": OPEN, "trials": (a_trial("t1"),), "jobs": (a_job("t1"),)}
    restarted = after(sweep, **seen, pods=(a_pod("t1", **pod),))
    assert restarted.restarted == sweep.restarted | ({"u-t1": "t1"} if restarts else {})
    assert kinds(restarted) == [EventKind.TRIAL_RESTARTED] * restarts
    detail = pod.get("waiting", ("", ""))[1]
    assert [(e.trial, e.detail) for e in restarted.outbox] == [("t1", detail)] * restarts


ABANDONED = a_pod("t1", abandoned=NOW, running_since=NOW)


@pytest.mark.parametrize(
    ("sweep", "trials", "jobs"),
    [
        (replace(RUNNING, to_kill={"t1": OWNER}), (a_trial("t1"),), (a_job("t1"),)),
        (replace(RUNNING, restarted={"u-t1": "t1"}), (a_trial("t1"),), (a_job("t1"),)),
        (RUNNING, (a_trial("t1", TrialState.SUCCEEDED, 0.5),), (a_job("t1"),)),
        (RUNNING, (a_trial("t1"),), ()),
    ],
)
def test_trial_that_ends_or_restarts_already_is_not_restarted(sweep, trials, jobs):
    found = after(sweep, experiment=OPEN, trials=trials, jobs=jobs, pods=(ABANDONED,))
    assert found.restarted == sweep.restarted


@pytest.mark.parametrize(("trial", "detail"), [("t1", "connection refused"), ("t2", "")])
def test_restarted_trial_is_reported_with_the_error_of_its_earlier_pull(trial, detail):
    known = Health(
        status=HealthStatus.WAITING, key="image-pull", text="x", detail="connection refused", trial=trial
    )
    seen = {"experiment": OPEN, "trials": (a_trial("t1"),), "jobs": (a_job("t1"),), "pods": (ABANDONED,)}
    [event] = after(replace(RUNNING, health=known), **seen).outbox
    assert (event.kind, event.detail) == (EventKind.TRIAL_RESTARTED, detail)


def test_each_trial_without_a_collector_is_restarted():
    trials = (a_trial("t0"), a_trial("t1"))
    pods = (a_pod("t0"), ABANDONED)
    found = after(RUNNING, experiment=OPEN, trials=trials, jobs=(a_job("t0"), a_job("t1")), pods=pods)
    assert found.restarted == {"u-t1": "t1"}


def test_cancel_stops_with_one_event():
    cancelled = after(RUNNING, experiment=OPEN, commands=(CANCEL,))
    assert (cancelled.phase, cancelled.ending, cancelled.since) == (Phase.STOPPING, Phase.CANCELLED, LATER)
    assert (cancelled.reason, kinds(cancelled)) == ("cancelled", [EventKind.STOPPING])
    assert apply_cancels(RUNNING, [CANCEL], CONFIG, LATER) == cancelled
    assert apply_cancels(RUNNING, [], CONFIG, LATER) == RUNNING
    final = a_sweep(Phase.CANCELLED, cancelled_by=OWNER)
    assert after(final) == final


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
    assert (ended.phase, ended.since, kinds(ended)) == (Phase.CANCELLED, LATER, [EventKind.CANCELLED])
    assert after(replace(STOPPING, ending=None)) == replace(STOPPING, ending=None)


def test_stopping_counts_the_trials_that_were_stopped():
    trials = (a_trial("t1", TrialState.KILLED), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    assert after(STOPPING, trials=trials, experiment=FAILED).progress.killed == 1


def grace(seconds):
    spec = PLAN.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return spec.get("terminationGracePeriodSeconds", 30) + seconds


@pytest.mark.parametrize(("seconds", "events"), [(299, []), (300, []), (301, [EventKind.STUCK])])
def test_stuck_pods_are_named_five_minutes_after_their_grace_period(seconds, events):
    now = NOW + timedelta(seconds=grace(seconds))
    stuck = after(STOPPING, now=now, pods=(a_pod("t1"), a_pod("t2", node=""), a_pod("t3", finished=True)))
    assert kinds(stuck) == events
    if events:
        assert stuck.outbox[0].text == "t1-x on n1, t2-x on no node"
        assert after(stuck, now=now, pods=(a_pod("t1"),)) == stuck


def test_stuck_without_a_pod_or_a_plan():
    assert after(STOPPING, jobs=(a_job("t1"),)).outbox == ()
    unplanned = replace(STOPPING, plan=None)
    assert kinds(after(unplanned, now=NOW + timedelta(seconds=301), pods=(a_pod("t1"),))) == [EventKind.STUCK]
    assert after(unplanned, now=NOW + timedelta(seconds=300), pods=(a_pod("t1"),)).outbox == ()


def test_stuck_names_ten_pods():
    pods = tuple(a_pod(f"t{n}") for n in range(11))
    assert after(STOPPING, pods=pods).outbox[0].text.count(" on n1") == 10


def test_report_restored_only_to_active_sweeps():
    assert report_restored(RUNNING).outbox == (Event(kind=EventKind.RESTORED),)
    assert report_restored(a_sweep(Phase.RECEIVED)).outbox[0].to_user == OWNER
    final = a_sweep(Phase.FAILED)
    assert report_restored(final) == final


def test_quarantine_and_release_are_reported_and_shown():
    held = quarantine(replace(RUNNING, shown="x"), "it crashed")
    assert (held.quarantined, held.shown) == (True, "")
    assert held.outbox == (Event(kind=EventKind.QUARANTINED, detail="it crashed"),)
    free = release(replace(held, outbox=()))
    assert (free.quarantined, free.outbox) == (False, (Event(kind=EventKind.RELEASED),))


def test_extension_that_katib_rejects_ends_the_sweep_as_before():
    sweep = replace(RUNNING, extending=True, progress=Progress(succeeded=4))
    ended = extension_refused(sweep, "not LongRunning", LATER)
    assert (ended.phase, ended.ending, ended.extending) == (Phase.SUCCEEDED, Phase.SUCCEEDED, False)
    assert (ended.reason, ended.since) == ("4 trials done", LATER)
    event = Event(kind=EventKind.SUBMIT_REFUSED, text="extension", detail="not LongRunning")
    assert ended.outbox == (event,)


def test_trouble_is_reported_once_per_phase():
    once = report_trouble(RUNNING, "no answer")
    assert once.outbox == (Event(kind=EventKind.TROUBLE, detail="no answer"),)
    assert report_trouble(once, "still") == once
    assert len(report_trouble(replace(once, phase=Phase.STOPPING), "again").outbox) == 2
    final = a_sweep(Phase.FAILED)
    assert report_trouble(final, "no answer") == final


def test_resolved_trouble_is_reported_in_the_thread_only():
    once = replace(report_trouble(RUNNING, "no answer"), outbox=())
    kept = replace(once, sent_keys=("build_waiting/queued", *once.sent_keys))
    resolved = resolve_trouble(kept)
    assert (resolved.sent_keys, kinds(resolved)) == (("build_waiting/queued",), [EventKind.TROUBLE_OVER])
    ended = resolve_trouble(replace(once, phase=Phase.FAILED))
    assert (ended.sent_keys, ended.outbox) == ((), ())
    private = replace(report_trouble(a_sweep(Phase.RECEIVED), "no answer"), outbox=())
    assert (resolve_trouble(private).sent_keys, resolve_trouble(private).outbox) == ((), ())
    assert resolve_trouble(RUNNING) == RUNNING


@pytest.mark.parametrize(
    ("before", "now", "due", "seconds"),
    [
        (Phase.PENDING, Phase.RUNNING, None, 0),
        (Phase.RUNNING, Phase.RUNNING, None, 300),
        (Phase.BUILDING, Phase.BUILDING, None, 300),
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


def test_requeue_after_the_thread_opened_is_at_once():
    opening = a_sweep(Phase.OPENING)
    assert requeue_after(opening, replace(opening, thread="1.1"), NOW) == timedelta(0)
