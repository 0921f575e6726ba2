"""The next record of each phase, whole: what changes with an observation, and what doesn't."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, AuditEntry
from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.space import Goal
from bot.platform.config.limits import Launch
from bot.platform.config.permissions import OtherPeaks
from bot.sweep.answers.messages import results
from bot.sweep.decisions.advance import advance, apply_cancels
from bot.sweep.lifecycle.building import refuse
from bot.sweep.lifecycle.trials import submitted
from bot.sweep.model.observation import Observation
from bot.sweep.results.collect import Sources, collect
from k8s.engine import End, Experiment, ExperimentState, TrialState
from k8s.jobs import JobState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.sweep.model.observations import (
    CANCEL,
    DONE,
    FAILED,
    LATER,
    OPEN,
    PENDING,
    RUNNING,
    a_job,
    a_pod,
    a_trial,
    after,
    kinds,
)


def launch(refused=""):
    return AuditEntry(at=LATER, user=OWNER, name="ada", action=Action.LAUNCH, refused=refused)


def test_received_plan_opens_the_thread():
    received = a_sweep()
    opened = replace(received, phase=Phase.OPENING, since=LATER, plan=PLAN, audit_log=(launch(),))
    assert after(received, plan=PLAN) == opened
    assert after(received) == received, "an older sweep of this user is planned first"
    opening = a_sweep(Phase.OPENING)
    assert after(opening) == opening
    assert after(replace(opening, thread="1.1")) == replace(
        opening, thread="1.1", phase=Phase.BUILDING, since=LATER
    )


@pytest.mark.parametrize(
    ("config", "others", "kind", "why"),
    [
        (replace(CONFIG, launch=Launch(people=("UX",))), 0, "not_allowed", "permission to start"),
        (replace(CONFIG, launch=Launch(channels=("C9",))), 0, "not_allowed", "only be started in"),
        (replace(CONFIG, launch=Launch(gpus=1)), 0, "not_allowed", "the limit is 1 per sweep"),
        (replace(CONFIG, launch=Launch(gpus_per_person=3)), 2, "not_allowed", "one person can use 3"),
    ],
)
def test_received_plan_without_permission_is_refused(config, others, kind, why):
    sweep = after(a_sweep(), config=config, plan=PLAN, others=OtherPeaks(person=others))
    [event] = sweep.outbox
    assert (sweep.phase, sweep.plan, sweep.since) == (Phase.REFUSED, None, LATER)
    assert (event.kind, event.to_user, event.response_url) == (kind, OWNER, "https://hooks/1")
    assert why in event.text
    assert (sweep.reason, sweep.audit_log) == (event.text, (launch(event.text),))


def test_received_invalid_request_is_refused_with_each_error_on_its_own_line():
    sweep = after(a_sweep(), refusal="no such branch")
    [event] = sweep.outbox
    assert (sweep.phase, event.kind) == (Phase.REFUSED, "refused")
    assert (event.to_user, event.text) == (OWNER, "`lr-brave-otter` didn't start. no such branch")
    both = after(a_sweep(), config=replace(CONFIG, launch=Launch(people=("UX",))), refusal="no such branch")
    assert kinds(both) == ["not_allowed"], "who can't start sweeps learns nothing about the repository"
    why = "sweeps/lr.yaml@01234567:100: trials.max: must be at least 1\nsweeps/lr.yaml@01234567:7: `x` is odd"
    invalid = refuse(a_sweep(), why, LATER)
    [event] = invalid.outbox
    assert (invalid.phase, invalid.reason, event.kind) == (Phase.REFUSED, why, "refused")
    assert event.text.splitlines() == [
        "`lr-brave-otter` didn't start.",
        "`sweeps/lr.yaml@01234567:100` trials.max: must be at least 1",
        "`sweeps/lr.yaml@01234567:7` `x` is odd",
    ]


def test_pending_experiment_is_reported_once():
    sweep = a_sweep(Phase.PENDING)
    once = after(sweep, experiment=OPEN)
    assert once == replace(
        sweep, submitted=True, steps={"submitted": "✓ Submitted", "first": "○ First trial"}
    )
    assert after(sweep) == sweep
    started = once.step(first="✓ First trial started")
    assert submitted(started) == started
    assert submitted(sweep) == once
    plan = replace(PLAN, space=replace(PLAN.space, notes=("`x` is unused.", "<y>")))
    sweep = a_sweep(Phase.PENDING, plan=plan)
    [event] = submitted(sweep).outbox
    assert event.text == (":warning: Notes on this sweep:\n• `x` is unused.\n• &lt;y&gt;")
    assert submitted(replace(sweep, attempt=2)).outbox == ()
    failed = after(a_sweep(Phase.PENDING), experiment=OPEN, foreign=True)
    assert (failed.phase, failed.ending) == (Phase.STOPPING, Phase.FAILED)
    assert failed.reason == "A Katib experiment named lr-brave-otter already exists"
    pod = a_pod("t1", running_since=NOW, abandoned=NOW)
    assert after(PENDING, experiment=OPEN, trials=(a_trial("t1"),), pods=(pod,)).phase is Phase.PENDING


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"namespace": "other"}, "✓ Submitted to namespace `sweeps`"),
        ({"plan": replace(PLAN, queue="q", priority="high")}, "✓ Submitted, queue `q`, priority high"),
    ],
)
def test_step_says_where_trials_run(changes, words):
    assert submitted(replace(a_sweep(Phase.PENDING), **changes)).steps["submitted"] == words


@pytest.mark.parametrize("sweep", [PENDING, RUNNING])
def test_deleted_experiment_fails_the_sweep(sweep):
    failed = after(sweep)
    assert (failed.phase, failed.ending) == (Phase.STOPPING, Phase.FAILED)
    assert failed.reason == "The Katib experiment was deleted, or isn't in this cluster"
    assert after(replace(sweep, submitted=False)).phase is sweep.phase


@pytest.mark.parametrize(
    ("experiment", "trials", "ending", "reason"),
    [
        (DONE, (a_trial("t1", TrialState.SUCCEEDED, 0.5),), Phase.SUCCEEDED, "1 trial done"),
        (FAILED, (a_trial("t1", TrialState.FAILED),), Phase.FAILED, "1 trial failed"),
    ],
)
@pytest.mark.parametrize("sweep", [PENDING, RUNNING])
def test_closed_experiment_ends_the_sweep(sweep, experiment, trials, ending, reason):
    ended = after(sweep, experiment=experiment, trials=trials)
    assert (ended.phase, ended.ending, ended.reason, ended.since) == (Phase.STOPPING, ending, reason, LATER)


@pytest.mark.parametrize(
    ("end", "finish", "phase"),
    [
        (End.DRAINED, False, Phase.RUNNING),
        (End.TARGET, True, Phase.RUNNING),
        (End.TARGET, False, Phase.STOPPING),
        (End.ALL_TRIALS, True, Phase.STOPPING),
    ],
)
def test_trials_of_a_closed_experiment_finish_if_drained_or_configured(end, finish, phase):
    sweep = replace(RUNNING, plan=replace(PLAN, space=replace(PLAN.space, finish_running=finish)))
    closed = replace(DONE, end=end)
    live, ended = (a_trial("t1"),), (a_trial("t1", TrialState.SUCCEEDED, 0.5),)
    assert after(sweep, experiment=closed, trials=live).phase is phase
    assert after(sweep, experiment=closed, trials=ended).phase is Phase.STOPPING


@pytest.mark.parametrize(("finished", "phase"), [(3, Phase.RUNNING), (4, Phase.STOPPING)])
def test_extending_waits_for_katib_until_all_trials_finished(finished, phase):
    trials = tuple(a_trial(f"t{n}", TrialState.SUCCEEDED, 0.5) for n in range(finished))
    sweep = replace(RUNNING, extending=True)
    assert after(sweep, experiment=DONE, trials=trials).phase is phase
    assert after(sweep, experiment=OPEN, trials=trials).extending is False
    target = replace(DONE, end=End.TARGET)
    failed = Experiment(state=ExperimentState.FAILED, end=End.TOO_MANY_FAILED)
    for closed, ending in ((target, Phase.SUCCEEDED), (failed, Phase.FAILED)):  # opened and ended meanwhile
        assert after(sweep, experiment=closed, trials=trials).ending is ending


def test_progress_counts_trials_by_state_and_pod():
    states = (*[TrialState.SUCCEEDED] * 2, TrialState.FAILED, TrialState.NO_METRICS, TrialState.KILLED)
    ended = tuple(a_trial(f"t{n}", state, 0.5 if n == 0 else None) for n, state in enumerate(states))
    live = (a_trial("a"), a_trial("b"), a_trial("c"))
    over = a_pod("c", finished=True, exit=(0, "Completed", ""))
    pods = (a_pod("a", running_since=NOW), a_pod("b"), over)
    sweep = after(RUNNING, experiment=OPEN, trials=(*ended, *live), pods=pods)
    best = Result(trial="t0", value=0.5, parameters={})
    counts = {"running": 1, "waiting": 1, "finishing": 1, "succeeded": 2, "failed": 2, "killed": 1}
    assert sweep.progress == Progress(**counts, best=best)
    assert after(sweep, experiment=OPEN).progress == sweep.progress, "the trials aren't observed for now"


@pytest.mark.parametrize(
    ("pods", "jobs", "finishing"),
    [
        ((a_pod("a", exit=(0, "Completed", "")),), (), True),
        ((a_pod("a", finished=True, exit=(1, "Error", "")),), (), True),
        ((), (a_job("a", JobState.COMPLETE),), True),
        ((), (a_job("a"),), False),
        ((a_pod("a", finished=True, exit=(143, "Error", ""), deleted=True),), (a_job("a"),), False),
        ((a_pod("a", finished=True, failure=("Evicted", "")),), (a_job("a"),), False),
        ((a_pod("a", finished=True, exit=(1, "Error", "")), a_pod("a")), (a_job("a"),), False),
    ],
)
def test_trial_that_katib_does_not_count_yet_is_finishing_and_not_waiting(pods, jobs, finishing):
    progress = after(RUNNING, experiment=OPEN, trials=(a_trial("a"),), pods=pods, jobs=jobs).progress
    assert (progress.finishing, progress.waiting, progress.running) == (finishing, not finishing, 0)


@pytest.mark.parametrize(("goal", "best"), [(Goal.MINIMIZE, "t2"), (Goal.MAXIMIZE, "t3")])
def test_best_follows_the_goal_and_ignores_trials_without_a_value(goal, best):
    values = {"t1": 0.5, "t2": -1.0, "t3": 2.0, "t4": None}
    trials = tuple(a_trial(name, TrialState.SUCCEEDED, value, lr="0.1") for name, value in values.items())
    sweep = replace(RUNNING, plan=replace(PLAN, space=replace(PLAN.space, goal=goal)))
    found = after(sweep, experiment=OPEN, trials=trials)
    result = Result(trial=best, value=values[best], parameters={"lr": "0.1"})
    assert (found.progress.best, found.outbox) == (result, ())
    assert after(found, experiment=OPEN, trials=trials) == found
    assert after(found, experiment=OPEN, trials=trials[3:]).progress.best is None


@pytest.mark.parametrize("reported", ["t1", "t2"])
def test_best_of_equal_results_stays_the_reported_one(reported):
    before = Progress(best=Result(trial=reported, value=0.0, parameters={}))
    trials = tuple(a_trial(name, TrialState.SUCCEEDED, 0.0) for name in ("t1", "t2"))
    sweep = after(replace(RUNNING, progress=before), experiment=OPEN, trials=trials)
    assert (sweep.progress.best.trial, sweep.outbox) == (reported, ())


def test_seeds_have_their_results_and_no_best_one():
    space = replace(PLAN.space, seed="seed")
    trials = (
        a_trial("t1", TrialState.SUCCEEDED, 0.5, seed="0"),
        a_trial("t2", TrialState.FAILED, seed="1"),
        a_trial("t3", seed="2"),
        a_trial("t4", TrialState.SUCCEEDED, 0.1),
    )
    sweep = after(replace(RUNNING, plan=replace(PLAN, space=space)), experiment=OPEN, trials=trials)
    assert (sweep.progress.seeds, sweep.progress.best) == ({"0": 0.5, "1": None}, None)
    assert after(RUNNING, experiment=OPEN, trials=trials).progress.seeds == {}


def test_pending_first_trial_runs_once_its_pod_runs_or_has_finished():
    sweep = a_sweep(Phase.PENDING, submitted=True)
    trial = a_trial("t1")
    assert after(sweep, experiment=OPEN, trials=(trial,), pods=(a_pod("t1"),)).phase is Phase.PENDING
    running = after(sweep, experiment=OPEN, trials=(trial,), pods=(a_pod("t1", running_since=NOW),))
    assert (running.phase, running.outbox) == (Phase.RUNNING, ())
    assert running.steps["first"] == "✓ First trial started"
    assert running.progress.running == 1
    trials = (a_trial("t1"), a_trial("t2", TrialState.SUCCEEDED, 0.5))
    sweep = after(a_sweep(Phase.PENDING, submitted=True), experiment=OPEN, trials=trials)
    assert (sweep.phase, sweep.steps["first"]) == (Phase.RUNNING, "✓ First trial started")


def test_closed_experiment_quotes_katibs_own_failure():
    failed_experiment = replace(FAILED, message="Suggestion has failed")
    sweep = after(a_sweep(Phase.RUNNING, submitted=True), experiment=failed_experiment)
    assert sweep.reason == "Katib ended the experiment: Suggestion has failed"
    failed = (a_trial("t1", TrialState.FAILED),)
    assert after(
        a_sweep(Phase.RUNNING, submitted=True), experiment=failed_experiment, trials=failed
    ).reason == ("1 trial failed")


def test_running_equal_result_keeps_the_reported_best():
    first = after(
        a_sweep(Phase.RUNNING, submitted=True),
        experiment=OPEN,
        trials=(a_trial("t9", TrialState.SUCCEEDED, 0.5),),
    )
    tie = (a_trial("t1", TrialState.SUCCEEDED, 0.5), a_trial("t9", TrialState.SUCCEEDED, 0.5))
    second = after(first, experiment=OPEN, trials=tie)
    assert second.outbox == ()
    assert second.progress.best.trial == "t9", "the reported trial stays the best"
    table = results(second, collect(second, PLAN, Sources(trials=tie)))
    assert table.text.splitlines()[-2].startswith("`val_loss` 0.5 in `t9`")


@pytest.mark.parametrize(
    "phase", [Phase.RECEIVED, Phase.OPENING, Phase.BUILDING, Phase.PENDING, Phase.RUNNING]
)
def test_cancel_stops_the_sweep_in_every_phase(phase):
    sweep = after(a_sweep(phase), commands=(CANCEL,))
    assert (sweep.phase, sweep.ending, sweep.cancelled_by) == (Phase.STOPPING, Phase.CANCELLED, OWNER)
    assert apply_cancels(a_sweep(phase), [CANCEL], CONFIG, LATER) == sweep


def test_cancel_repeated_by_the_same_user_changes_nothing():
    once = after(a_sweep(Phase.RUNNING, submitted=True), experiment=OPEN, commands=(CANCEL,))
    assert after(once, experiment=OPEN, commands=(CANCEL,)) == once
    ended = replace(once, phase=Phase.CANCELLED)
    assert after(ended, commands=(CANCEL,)) == ended
    later = advance(ended, Observation(commands=(CANCEL,)), CONFIG, LATER + timedelta(hours=1))
    assert "already ended" in later.outbox[-1].text
    other = after(once, experiment=OPEN, commands=(replace(CANCEL, user=ADMIN),))
    assert f"<@{OWNER}> already cancelled" in other.outbox[-1].text
