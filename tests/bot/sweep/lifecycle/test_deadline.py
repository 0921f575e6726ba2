"""The time limit of a whole sweep: no new trials start after it, running ones finish."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.sweep.decisions.advance import advance, requeue_after
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.lifecycle.trials import out_of_time, time_left
from bot.sweep.model.observation import Observation
from k8s.engine import End, ExperimentState, TrialState
from tests.bot.factories import CONFIG, NOW, PLAN, a_sweep
from tests.bot.sweep.model.observations import OPEN, a_pod, a_trial

LIVE = a_trial("t1")
POD = a_pod("t1", running_since=NOW)
LIMITED = replace(PLAN, space=replace(PLAN.space, max_hours=2))


def running(at=NOW):
    sweep = a_sweep(Phase.PENDING, submitted=True, plan=LIMITED)
    return advance(sweep, Observation(experiment=OPEN, trials=(LIVE,), pods=(POD,)), CONFIG, at)


def test_deadline_counts_from_the_first_trial_and_wakes_the_sweep_in_time():
    sweep = running(NOW + timedelta(hours=5))
    assert (sweep.phase, sweep.deadline) == (Phase.RUNNING, NOW + timedelta(hours=7))
    sweep = running()
    due = requeue_after(sweep, sweep, NOW + timedelta(hours=2) - timedelta(seconds=30))
    assert due == timedelta(seconds=30)
    seen = Observation(experiment=OPEN, trials=(LIVE,), pods=(POD,))
    unlimited = advance(a_sweep(Phase.PENDING, submitted=True), seen, CONFIG, NOW)
    assert (unlimited.phase, unlimited.deadline) == (Phase.RUNNING, None)
    again = replace(running(), phase=Phase.PENDING)  # of a held sweep in a new experiment
    assert advance(again, seen, CONFIG, NOW + timedelta(hours=1)).deadline == again.deadline
    late, soon = NOW + timedelta(days=9), NOW + timedelta(hours=2) - timedelta(seconds=1)
    for sweep in (replace(running(), deadline=None), replace(running(), draining="drained")):
        assert out_of_time(sweep, Observation(), late) == sweep
    assert out_of_time(running(), Observation(), soon) == running()


def test_sweep_past_its_deadline_drains_once_and_ends_when_its_trials_have():
    later = NOW + timedelta(hours=2)
    seen = Observation(experiment=OPEN, trials=(LIVE,), pods=(POD,))
    drained = advance(replace(running(), outbox=()), seen, CONFIG, later)
    assert drained.outbox[-1].text == (
        ":hourglass_flowing_sand: Time limit of 2 h reached: no new trials start; running trials finish."
    )
    [patch] = required_changes(drained, seen, later).patch
    assert patch.subresource == "status"
    assert patch.body["status"]["conditions"][-1]["reason"] == "SweepbotDrained"
    assert advance(drained, seen, CONFIG, later) == drained
    over = replace(OPEN, state=ExperimentState.SUCCEEDED, end=End.DRAINED)
    assert advance(drained, replace(seen, experiment=over), CONFIG, later).phase is Phase.RUNNING
    done = replace(LIVE, state=TrialState.SUCCEEDED, value=0.5)
    ended = advance(drained, Observation(experiment=over, trials=(done,)), CONFIG, later)
    assert (ended.ending, ended.reason) == (Phase.SUCCEEDED, "time limit reached after 1 trial")


def test_time_left_is_at_least_a_second_of_a_running_sweep():
    sweep, deadline = running(), NOW + timedelta(hours=2)
    assert time_left(sweep, deadline - timedelta(minutes=1)) == timedelta(minutes=1)
    assert (
        time_left(sweep, deadline) == time_left(sweep, deadline + timedelta(hours=1)) == timedelta(seconds=1)
    )
    for changes in (
        {"phase": Phase.STOPPING},
        {"deadline": None},
        {"draining": "drained"},
        {"holds": ("pause",)},
    ):
        assert time_left(replace(sweep, **changes), NOW) is None
