"""A sweep moves by what the outside says; chores follow from the phase it is in."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.events import EventKind
from bot.core.record import Phase
from bot.health.diagnosis import Diagnosis
from bot.sweeps.lifecycle import advance, apply_cancels, requeue_after
from bot.sweeps.observation import BuildSeen, Observation
from bot.sweeps.reply_messages import results
from bot.sweeps.required_changes import RequiredChanges, required_changes
from bot.sweeps.thread_messages import event_text
from bot.sweeps.trouble import report_trouble, resolve_trouble
from k8s.jobs import Job, JobState
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState
from k8s.pods import Pod
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep

RAW = {
    "metadata": {"name": "x", "resourceVersion": "7"},
    "spec": {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 2},
    "status": {"conditions": []},
}
OPEN = Experiment(state=ExperimentState.RUNNING, raw=RAW)
DONE = replace(OPEN, state=ExperimentState.SUCCEEDED, reason="ExperimentMaxTrialsReached")
GAVE_UP = replace(OPEN, state=ExperimentState.FAILED, reason="ExperimentFailed")
(MAKES,) = PLAN.builds
BUILD = Job(name=MAKES.ref.name, uid="u1", state=JobState.ACTIVE)
OWN = {MAKES.ref.name: "u1"}
BROKEN = replace(BUILD, state=JobState.FAILED, message="BackoffLimitExceeded")
CANCEL = Command(action=Action.CANCEL, user=OWNER, user_name="ada", response_url="https://hooks/2")


def a_trial(name, state=TrialState.LIVE, value=None):
    return Trial(name=name, state=state, parameters={"lr": "0.01"}, value=value, raw=RAW)


def a_pod(job, **facts):
    facts = {"node": "n1", "finished": False, **facts}
    return Pod(name=f"{job}-x", job=job, **facts)


def after(sweep, **seen):
    return advance(sweep, Observation(**seen), CONFIG, NOW)


def building(job=None, there=None, **facts):
    return {"builds": (BuildSeen(build=MAKES, job=job, there=there, **facts),)}


def kinds(sweep):
    return [event.kind for event in sweep.outbox]


def test_a_good_request_is_planned():
    assert after(a_sweep(), plan=PLAN).phase is Phase.OPENING


def test_a_bad_request_is_refused_privately():
    sweep = after(a_sweep(), refusal="no such branch")
    assert sweep.phase is Phase.REFUSED
    assert (sweep.outbox[0].to_user, sweep.outbox[0].text) == (OWNER, "no such branch")


def test_nothing_is_built_before_the_thread_is_open():
    waiting = a_sweep(Phase.OPENING)
    assert after(waiting) == waiting
    assert required_changes(waiting, Observation(), NOW) == RequiredChanges()
    assert after(replace(waiting, thread="1.1")).phase is Phase.BUILDING


def test_an_image_in_the_registry_is_used_at_once():
    sweep = after(a_sweep(Phase.BUILDING), digest="sha256:ab")
    assert (sweep.phase, sweep.image) == (Phase.PENDING, "registry:5000/sweepbot/digits@sha256:ab")
    assert kinds(sweep) == [EventKind.BUILD_REUSED]


def test_a_missing_image_is_built_and_the_start_said_once():
    seen = building(there=False)
    first = after(a_sweep(Phase.BUILDING), **seen)
    assert kinds(first) == [EventKind.BUILD_STARTED]
    assert after(first, **seen) == first
    assert required_changes(first, Observation(**seen), NOW).create == (MAKES.job,)


def test_the_finished_job_of_an_image_that_is_there_is_left_alone():
    seen = building(replace(BUILD, state=JobState.COMPLETE), there=True)
    assert required_changes(a_sweep(Phase.BUILDING), Observation(**seen), NOW) == RequiredChanges()


def test_the_build_of_another_sweep_is_joined():
    sweep = after(a_sweep(Phase.BUILDING), **building(BUILD))
    assert kinds(sweep) == [EventKind.BUILD_JOINED]
    assert sweep.build_uids == OWN
    assert required_changes(sweep, Observation(**building(BUILD)), NOW) == RequiredChanges()


def test_a_failed_build_ends_the_sweep_with_its_log():
    began = a_sweep(Phase.BUILDING, build_started_at=NOW, build_uids=OWN)
    log = Diagnosis(key="build", text="RUN failed", detail="no such file")
    sweep = after(began, **building(BROKEN, there=False, trouble=log, pod="build-x"))
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, Phase.FAILED)
    told = sweep.outbox[0]
    assert (told.kind, told.text, told.detail) == (EventKind.BUILD_FAILED, "RUN failed", "no such file")
    assert told.pod == "build-x"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETE])
def test_a_build_that_ended_in_vain_for_an_earlier_sweep_is_cleared_and_tried_again(state):
    seen = building(replace(BUILD, state=state), there=False)
    sweep = after(a_sweep(Phase.BUILDING), **seen)
    assert (sweep.phase, kinds(sweep)) == (Phase.BUILDING, [EventKind.BUILD_STARTED])
    assert [d.uid for d in required_changes(sweep, Observation(**seen), NOW).delete] == ["u1"]


def test_a_build_without_its_image_is_a_failure():
    done = replace(BUILD, state=JobState.COMPLETE)
    waited = a_sweep(Phase.BUILDING, build_started_at=NOW, build_uids=OWN)
    sweep = after(waited, **building(done, there=False))
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, Phase.FAILED)


def test_the_experiment_is_submitted_with_the_image_by_digest_and_only_once():
    sweep = a_sweep(Phase.PENDING, image="registry:5000/x@sha256:ab")
    (made,) = required_changes(sweep, Observation(), NOW).create
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry:5000/x@sha256:ab"
    submitted = after(sweep, experiment=OPEN)
    assert kinds(submitted) == [EventKind.SUBMITTED]
    assert required_changes(submitted, Observation(), NOW) == RequiredChanges()


def test_a_first_trial_runs_when_its_pod_runs_not_when_katib_says_so():
    sweep = a_sweep(Phase.PENDING, submitted=True)
    trial = a_trial("t1")
    assert after(sweep, experiment=OPEN, trials=(trial,), pods=(a_pod("t1"),)).phase is Phase.PENDING
    running = after(sweep, experiment=OPEN, trials=(trial,), pods=(a_pod("t1", running_since=NOW),))
    assert (running.phase, kinds(running)) == (Phase.RUNNING, [EventKind.FIRST_TRIAL_RUNNING])
    assert running.progress.running == 1


def test_a_first_trial_that_is_done_before_its_pod_was_seen_running_is_named():
    trials = (a_trial("t1"), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    sweep = after(a_sweep(Phase.PENDING, submitted=True), experiment=OPEN, trials=trials)
    [told] = [e for e in sweep.outbox if e.kind is EventKind.FIRST_TRIAL_RUNNING]
    assert (sweep.phase, told.trial, told.more) == (Phase.RUNNING, "t2", 0)


def test_a_trial_that_runs_after_the_first_has_failed_is_not_called_the_first():
    trials = (a_trial("t1", TrialState.FAILED), a_trial("t2"))
    sweep = a_sweep(Phase.PENDING, submitted=True)
    running = after(sweep, experiment=OPEN, trials=trials, pods=(a_pod("t2", running_since=NOW),))
    [told] = [e for e in running.outbox if e.kind is EventKind.FIRST_TRIAL_RUNNING]
    assert event_text(running, told) == ":runner: Trial `t2` is running; 1 trial failed earlier."
    first = after(sweep, experiment=OPEN, trials=trials[1:], pods=(a_pod("t2", running_since=NOW),))
    assert event_text(first, first.outbox[-1]) == ":runner: First trial is running: `t2`."


def test_katibs_own_failure_is_told_in_its_words():
    gave_up = replace(GAVE_UP, message="Suggestion has failed")
    sweep = after(a_sweep(Phase.RUNNING, submitted=True), experiment=gave_up)
    assert sweep.reason == "Katib ended the experiment: Suggestion has failed"
    failed = (a_trial("t1", TrialState.FAILED),)
    assert after(a_sweep(Phase.RUNNING, submitted=True), experiment=gave_up, trials=failed).reason == (
        "1 trial failed"
    )


def test_only_better_results_are_told():
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    first = after(sweep, experiment=OPEN, trials=(a_trial("t1", TrialState.SUCCEEDED, 0.5),))
    worse = (a_trial("t1", TrialState.SUCCEEDED, 0.5), a_trial("t2", TrialState.SUCCEEDED, 0.9))
    second = after(first, experiment=OPEN, trials=worse)
    third = after(second, experiment=OPEN, trials=(*worse, a_trial("t3", TrialState.SUCCEEDED, 0.1)))
    assert [e.result.value for e in third.outbox] == [0.5, 0.1]
    assert third.progress.best.trial == "t3"


def test_a_trial_whose_metrics_never_come_is_ended():
    """Katib would ask for ever, and train again when the Job is gone (katib#1795)."""
    sweep, trials = a_sweep(Phase.RUNNING, submitted=True), (a_trial("t1"),)
    for minutes, doomed in ((1, {}), (5, {}), (11, {"t1": ""})):
        over = Job(name="t1", uid="j", state=JobState.COMPLETE, ended=NOW - timedelta(minutes=minutes))
        seen = after(sweep, experiment=OPEN, trials=trials, jobs=(over,))
        assert seen.to_kill == doomed


def test_pods_that_do_not_end_are_named_once():
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED, since=NOW - timedelta(minutes=6))
    once = after(sweep, pods=(a_pod("t1"),))
    assert (kinds(once), "t1-x on n1" in once.outbox[0].text) == ([EventKind.STUCK], True)
    assert after(once, pods=(a_pod("t1"),)) == once


def test_an_equal_result_is_not_a_better_one():
    first = after(
        a_sweep(Phase.RUNNING, submitted=True),
        experiment=OPEN,
        trials=(a_trial("t9", TrialState.SUCCEEDED, 0.5),),
    )
    tie = (a_trial("t1", TrialState.SUCCEEDED, 0.5), a_trial("t9", TrialState.SUCCEEDED, 0.5))
    second = after(first, experiment=OPEN, trials=tie)
    assert len(second.outbox) == 1
    assert second.progress.best.trial == "t9", "what was told stays the best"
    table, _ = results(second, PLAN.space, tie)
    assert table.text.splitlines()[-2].startswith("`val_loss` 0.5 in `t9`")


def test_a_job_made_again_after_its_trial_was_killed_is_deleted():
    dead = a_trial("t1", TrialState.KILLED)
    job = Job(name="t1", uid="second", state=JobState.ACTIVE)
    todo = required_changes(
        a_sweep(Phase.RUNNING, submitted=True), Observation(experiment=OPEN, trials=(dead,), jobs=(job,)), NOW
    )
    assert [d.uid for d in todo.delete] == ["second"]


def test_whoever_cancels_is_heard_while_all_else_is_away():
    heard = apply_cancels(a_sweep(Phase.BUILDING), [CANCEL], CONFIG, NOW)
    assert (heard.phase, heard.ending) == (Phase.STOPPING, Phase.CANCELLED)


@pytest.mark.parametrize(("phase", "to"), [(Phase.RECEIVED, OWNER), (Phase.BUILDING, "")])
def test_lasting_trouble_is_told_once_in_the_thread_or_privately_before_there_is_one(phase, to):
    told = report_trouble(a_sweep(phase), "the registry does not answer")
    assert [(e.kind, e.to_user) for e in told.outbox] == [(EventKind.TROUBLE, to)]
    assert report_trouble(told, "still") == told


def test_the_end_of_trouble_is_said_where_the_trouble_was():
    private = report_trouble(a_sweep(Phase.RECEIVED), "git does not answer")
    opened = replace(private, outbox=(), thread="1.0", phase=Phase.BUILDING)
    assert resolve_trouble(opened).outbox == ()
    both = resolve_trouble(replace(report_trouble(opened, "the registry does not answer"), outbox=()))
    assert kinds(both) == [EventKind.TROUBLE_OVER]
    assert (both.sent_keys, resolve_trouble(both)) == ((), both)


@pytest.mark.parametrize(("experiment", "ending"), [(DONE, Phase.SUCCEEDED), (GAVE_UP, Phase.FAILED)])
@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_the_end_waits_until_no_pod_runs(phase, experiment, ending):
    """Katib leaves the other trials of a finished experiment on their GPUs."""
    sweep = after(a_sweep(phase, submitted=True), experiment=experiment, pods=(a_pod("t2"),))
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, ending)
    assert after(sweep, experiment=experiment, pods=(a_pod("t2"),)).phase is Phase.STOPPING
    assert after(sweep, experiment=experiment, pods=(a_pod("t2", finished=True),)).phase is ending


def test_an_experiment_deleted_by_hand_is_not_made_again():
    sweep = after(a_sweep(Phase.RUNNING, submitted=True))
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, Phase.FAILED)
    assert "deleted" in sweep.reason


@pytest.mark.parametrize(
    "phase", [Phase.RECEIVED, Phase.OPENING, Phase.BUILDING, Phase.PENDING, Phase.RUNNING]
)
def test_cancel_wins_in_every_phase(phase):
    sweep = after(a_sweep(phase), commands=(CANCEL,))
    assert (sweep.phase, sweep.ending, sweep.cancelled_by) == (Phase.STOPPING, Phase.CANCELLED, OWNER)


def test_an_own_double_click_is_no_other_wish():
    once = after(a_sweep(Phase.RUNNING, submitted=True), experiment=OPEN, commands=(CANCEL,))
    assert after(once, experiment=OPEN, commands=(CANCEL,)) == once
    ended = replace(once, phase=Phase.CANCELLED)
    assert after(ended, commands=(CANCEL,)) == ended
    later = advance(ended, Observation(commands=(CANCEL,)), CONFIG, NOW + timedelta(hours=1))
    assert "already ended" in later.outbox[-1].text
    other = after(once, experiment=OPEN, commands=(replace(CANCEL, user=ADMIN),))
    assert f"<@{OWNER}> already cancelled" in other.outbox[-1].text


def test_a_trial_whose_cancel_is_pressed_twice_is_noted_once():
    kill = replace(CANCEL, action=Action.KILL, trial="xyz")
    seen = {"experiment": OPEN, "trials": (a_trial("otter-abc"), a_trial("otter-xyz"))}
    once = after(a_sweep(Phase.RUNNING, submitted=True), **seen, commands=(kill,))
    assert after(once, **seen, commands=(kill,)) == once


@pytest.mark.parametrize(("user", "allowed"), [(OWNER, True), (ADMIN, True), (STRANGER, False)])
def test_who_may_cancel(user, allowed):
    sweep = after(
        a_sweep(Phase.RUNNING, submitted=True), experiment=OPEN, commands=(replace(CANCEL, user=user),)
    )
    assert (sweep.phase is Phase.STOPPING) is allowed
    if not allowed:
        assert (sweep.outbox[0].to_user, sweep.cancelled_by) == (STRANGER, None)
        assert f"<@{OWNER}>" in sweep.outbox[0].text


def test_one_trial_is_killed_and_said_when_its_gpus_are_free():
    running = a_sweep(Phase.RUNNING, submitted=True)
    live = (a_trial("otter-abc"), a_trial("otter-xyz"))
    jobs = tuple(Job(name=t.name, uid=f"u-{t.name}", state=JobState.ACTIVE) for t in live)
    ask = replace(CANCEL, action=Action.KILL, trial="xyz")
    asked = after(running, experiment=OPEN, trials=live, jobs=jobs, commands=(ask,))
    assert (asked.phase, asked.to_kill, kinds(asked)) == (Phase.RUNNING, {"otter-xyz": OWNER}, [])
    todo = required_changes(asked, Observation(experiment=OPEN, trials=live, jobs=jobs), NOW)
    assert [p.ref.name for p in todo.patch] == ["otter-xyz"]
    assert [d.uid for d in todo.delete] == ["u-otter-xyz"]
    dead = (live[0], replace(live[1], state=TrialState.KILLED))
    still = after(asked, experiment=OPEN, trials=dead, jobs=jobs[:1], pods=(a_pod("otter-xyz"),))
    assert kinds(still) == []
    gone = after(still, experiment=OPEN, trials=dead, jobs=jobs[:1])
    assert (kinds(gone), gone.to_kill) == ([EventKind.TRIAL_KILLED], {})


@pytest.mark.parametrize("name", ["", "nope", "otter"])
def test_a_trial_that_does_not_run_is_not_killed(name):
    ask = replace(CANCEL, action=Action.KILL, trial=name)
    trials = (a_trial("a-1"), a_trial("otter", TrialState.SUCCEEDED, 0.1))
    sweep = after(a_sweep(Phase.RUNNING, submitted=True), experiment=OPEN, trials=trials, commands=(ask,))
    assert sweep.to_kill == {}
    assert "Active: `a-1`" in sweep.outbox[0].text


def test_a_drained_sweep_starts_nothing_and_waits_for_what_runs():
    ask = replace(CANCEL, action=Action.DRAIN)
    live = (a_trial("t1"), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    running = a_sweep(Phase.RUNNING, submitted=True)
    draining = after(running, experiment=OPEN, trials=live, commands=(ask,))
    assert draining.outbox[0].kind is EventKind.DRAINING
    [patch] = required_changes(draining, Observation(experiment=OPEN, trials=live), NOW).patch
    conditions = [(c["type"], c["status"]) for c in patch.body["status"]["conditions"]]
    assert (patch.ref.kind, patch.subresource, conditions) == (
        "Experiment",
        "status",
        [("Succeeded", "True")],
    )
    closed = replace(OPEN, state=ExperimentState.SUCCEEDED, reason="SweepbotDrained")
    assert after(draining, experiment=closed, trials=live).phase is Phase.RUNNING
    over = (a_trial("t1", TrialState.SUCCEEDED, 0.4), live[1])
    ended = after(draining, experiment=closed, trials=over)
    assert (ended.ending, ended.reason) == (Phase.SUCCEEDED, "drained after 2 trials")


@pytest.mark.parametrize(("finish", "phase"), [(False, Phase.STOPPING), (True, Phase.RUNNING)])
def test_running_trials_at_the_target_are_ended_unless_the_space_says_finish(finish, phase):
    space = replace(PLAN.space, finish_running=finish)
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=space))
    reached = replace(DONE, reason="ExperimentGoalReached")
    assert after(sweep, experiment=reached, trials=(a_trial("t1"),)).phase is phase


def an_ended(*, extendable=True, **changes):
    space = replace(PLAN.space, extendable=extendable)
    done = {"submitted": True, "plan": replace(PLAN, space=space), "ending": Phase.SUCCEEDED}
    return a_sweep(Phase.SUCCEEDED, **done | changes)


def test_an_extendable_sweep_goes_on_with_more_trials():
    ask = replace(CANCEL, action=Action.EXTEND, trials=9)
    again = after(an_ended(), experiment=DONE, commands=(ask,))
    assert (
        required_changes(
            again, Observation(experiment=replace(DONE, raw={"spec": {"maxTrialCount": 9}})), NOW
        ).patch
        == ()
    )
    assert (again.phase, again.extending, again.plan.space.max_trials) == (Phase.RUNNING, True, 9)
    [patch] = required_changes(again, Observation(experiment=DONE), NOW).patch
    assert (patch.body, patch.subresource) == ({"spec": {"maxTrialCount": 9}}, "")
    waiting = after(again, experiment=DONE)
    assert waiting == again
    assert after(waiting, experiment=OPEN) == waiting  # Katib runs on with the old number
    more = RAW | {"spec": RAW["spec"] | {"maxTrialCount": 9}}
    reopened = after(waiting, experiment=replace(OPEN, raw=more))
    assert (reopened.extending, after(reopened, experiment=DONE).phase) == (False, Phase.STOPPING)


@pytest.mark.parametrize(
    ("sweep", "experiment", "trials", "why"),
    [
        (an_ended(extendable=False, since=NOW - timedelta(hours=25)), DONE, 9, "extendable: true"),
        (an_ended(), None, 9, "experiment was deleted"),
        (an_ended(), replace(DONE, reason="ExperimentGoalReached"), 9, "used all its trials"),
        (an_ended(), DONE, 4, "higher total"),
        (an_ended(), DONE, 501, "up to 500 trials"),
        (a_sweep(Phase.RUNNING, submitted=True), DONE, 9, "is still running"),
    ],
)
def test_what_katib_would_not_extend_is_refused_with_the_reason(sweep, experiment, trials, why):
    ask = replace(CANCEL, action=Action.EXTEND, trials=trials)
    told = after(sweep, experiment=experiment, commands=(ask,))
    assert why in told.outbox[0].text


def test_a_click_on_an_ended_sweep_is_answered():
    sweep = after(a_sweep(Phase.SUCCEEDED), commands=(CANCEL,))
    assert (sweep.phase, sweep.outbox[0].to_user) == (Phase.SUCCEEDED, OWNER)


def test_stopping_closes_the_experiment_first_and_then_kills():
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
    then = required_changes(sweep, Observation(experiment=GAVE_UP, trials=live, jobs=jobs), NOW)
    assert [(p.ref.kind, p.ref.name, p.subresource) for p in then.patch] == [("Trial", "t1", "status")]
    assert [(d.ref.name, d.uid) for d in then.delete] == [("t1", "j1")]


def test_a_cancelled_build_is_ended_unless_another_sweep_waits_for_it():
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED)
    seen, shared = building(BUILD), building(BUILD, shared=True)
    assert required_changes(sweep, Observation(**seen), NOW).delete[0].ref == MAKES.ref
    assert required_changes(sweep, Observation(**shared), NOW) == RequiredChanges()
    assert after(sweep, **seen).phase is Phase.STOPPING
    assert after(sweep, **shared).phase is Phase.CANCELLED


def test_a_cancelled_build_is_over_when_its_pod_is_and_a_pod_that_does_not_end_is_named():
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED, since=NOW - timedelta(minutes=6))
    left = building(alive=(a_pod("build"),))
    assert required_changes(sweep, Observation(**left), NOW) == RequiredChanges()
    assert "build-x on n1" in after(sweep, **left).outbox[0].text
    assert after(sweep, **building()).phase is Phase.CANCELLED


@pytest.mark.parametrize("end", [Phase.CANCELLED, Phase.FAILED, Phase.SUCCEEDED])
def test_an_experiment_that_appears_after_the_end_is_closed(end):
    """A worker paused in the middle of its turn may submit after the sweep was cancelled."""
    late = required_changes(a_sweep(end, image="i"), Observation(experiment=OPEN), NOW)
    assert [p.ref.kind for p in late.patch] == ["Experiment"]


def test_a_step_is_followed_by_a_look_at_once_and_an_end_by_none():
    building = a_sweep(Phase.BUILDING)
    assert requeue_after(a_sweep(Phase.OPENING), building, NOW).total_seconds() == 0
    assert requeue_after(building, building, NOW).total_seconds() > 60
    assert requeue_after(building, a_sweep(Phase.FAILED), NOW) is None
