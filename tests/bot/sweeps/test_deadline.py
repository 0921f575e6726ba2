"""The time limit of a whole sweep: no new trials start after it, running ones finish."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.sweeps.lifecycle import advance, requeue_after
from bot.sweeps.observation import Observation
from bot.sweeps.required_changes import required_changes
from bot.sweeps.thread_messages import event_text
from k8s.katib.patches import DRAINED
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState
from k8s.pods import Pod
from tests.bot.factories import CONFIG, NOW, PLAN, a_sweep

COUNTS = {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 2}
RAW = {"metadata": {"name": "x", "resourceVersion": "7"}, "spec": COUNTS, "status": {"conditions": []}}
OPEN = Experiment(state=ExperimentState.RUNNING, raw=RAW)
LIVE = Trial(name="t1", state=TrialState.LIVE, parameters={}, value=None, raw=RAW)
POD = Pod(name="t1-x", job="t1", node="n1", finished=False, running_since=NOW)
LIMITED = replace(PLAN, space=replace(PLAN.space, max_hours=2))


def running(at=NOW):
    sweep = a_sweep(Phase.PENDING, submitted=True, plan=LIMITED)
    return advance(sweep, Observation(experiment=OPEN, trials=(LIVE,), pods=(POD,)), CONFIG, at)


def test_deadline_counts_from_the_first_trial():
    sweep = running(NOW + timedelta(hours=5))
    assert (sweep.phase, sweep.deadline) == (Phase.RUNNING, NOW + timedelta(hours=7))


def test_deadline_wakes_the_sweep_in_time():
    sweep = running()
    due = requeue_after(sweep, sweep, NOW + timedelta(hours=2) - timedelta(seconds=30))
    assert due == timedelta(seconds=30)


def test_sweep_past_its_deadline_drains_once_and_ends_when_its_trials_have():
    later = NOW + timedelta(hours=2)
    seen = Observation(experiment=OPEN, trials=(LIVE,), pods=(POD,))
    drained = advance(replace(running(), outbox=()), seen, CONFIG, later)
    assert event_text(drained, drained.outbox[-1]) == (
        ":hourglass_flowing_sand: Time limit of 2 h reached: no new trials start; running trials finish."
    )
    [patch] = required_changes(drained, seen, later).patch
    assert patch.subresource == "status"
    assert patch.body["status"]["conditions"][-1]["reason"] == DRAINED
    assert advance(drained, seen, CONFIG, later) == drained
    over = replace(OPEN, state=ExperimentState.SUCCEEDED, reason=DRAINED)
    assert advance(drained, replace(seen, experiment=over), CONFIG, later).phase is Phase.RUNNING
    done = replace(LIVE, state=TrialState.SUCCEEDED, value=0.5)
    ended = advance(drained, Observation(experiment=over, trials=(done,)), CONFIG, later)
    assert (ended.ending, ended.reason) == (Phase.SUCCEEDED, "time limit reached after 1 trial")
