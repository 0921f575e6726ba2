"""Which failed trials start again after a disruption, and when the experiment is reopened."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.features.interruptions.decide import MAX_DISRUPTIONS, changes, follow, with_disruptions
from bot.sweep.features.interruptions.state import Interruption, InterruptionsSeen, InterruptionState
from bot.sweep.model.changes import Delete
from bot.sweep.model.observation import Observation
from k8s.engine import End, ExperimentState, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.katib.status import read_experiment
from k8s.objects import Ref
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.model.observations import META

SPEC = {"maxTrialCount": 3, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
CONDITIONS = [{"type": "Running", "status": "False"}, {"type": "Failed", "status": "True"}]
RAW = {"metadata": META, "spec": SPEC, "status": {"conditions": CONDITIONS}}
OPEN = read_experiment(RAW | {"status": {}})
BROKEN = replace(read_experiment(RAW), end=End.TOO_MANY_FAILED)
SWEEP = a_sweep(Phase.RUNNING, InterruptionState(disrupted={"u-t1": "t1"}), submitted=True)


def a_trial(name, state):
    return Trial(name=name, state=state, parameters={}, value=None, uid=f"uid-{name}")


FAILED, OTHER_FAILED = a_trial("t1", TrialState.FAILED), a_trial("t2", TrialState.FAILED)
DONE = a_trial("t2", TrialState.SUCCEEDED)


def a_job(uid, **more):
    return Job(name="t1", uid=uid, state=JobState.FAILED, **more)


def seen(*trials, experiment=BROKEN, sweep=SWEEP, interruptions=(), **more):
    observed = Observation(trials=trials, experiment=experiment, **more)
    return with_disruptions(sweep, observed.put(InterruptionsSeen(interruptions=interruptions)))


def ended(end, state=ExperimentState.SUCCEEDED):
    return replace(BROKEN, state=state, end=end)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
@pytest.mark.parametrize("jobs", [(), (a_job("u-t1"),)], ids=["deleted", "there"])
def test_failed_trial_of_a_disrupted_job_is_shown_as_live(jobs, phase):
    found = seen(FAILED, DONE, jobs=jobs, sweep=replace(SWEEP, phase=phase))
    assert [trial.state for trial in found.trials] == [TrialState.LIVE, TrialState.SUCCEEDED]
    assert found.starting_again == {"t1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": Phase.STOPPING},
        {"to_kill": {"t1": "U1"}},
        {"draining": "drained"},
        {"attempt_features": {}},
    ],
)
def test_failed_trial_stays_failed_if_the_sweep_does_not_start_it(changes):
    found = seen(FAILED, sweep=replace(SWEEP, **changes))
    assert (found.trials, found.starting_again) == ((FAILED,), frozenset())


def test_ends_of_a_disrupted_jobs_workers_are_not_diagnosed():
    trouble = tuple(Diagnosis(key="crash", text="", trial=trial) for trial in ("t1", "t2"))
    running = (a_trial("t1", TrialState.LIVE), a_trial("t2", TrialState.LIVE))
    jobs = (a_job("u-t1"), replace(a_job("u-t2"), name="t2"))
    found = seen(*running, experiment=OPEN, jobs=jobs, trouble=trouble)
    assert [each.trial for each in found.trouble] == ["t2"]


def test_trial_stays_failed_after_its_next_job_many_disruptions_or_others_failures():
    assert not seen(FAILED, experiment=OPEN, jobs=(a_job("u-next"),)).starting_again
    before = {f"u-{number}": "t1" for number in range(MAX_DISRUPTIONS)}
    why = Interruption(trial="t1", why="", queued=False, job_uid="u-last")
    for known, again in ((before, False), (dict(list(before.items())[1:]), True)):
        sweep = SWEEP.put(InterruptionState(disrupted=known))
        found = seen(FAILED, sweep=sweep, jobs=(a_job("u-last"),), interruptions=(why,), experiment=OPEN)
        assert bool(found.starting_again) is again
    known = {f"u-{number}": "t1" for number in range(MAX_DISRUPTIONS)}
    why = Interruption(trial="t1", why="", queued=False, job_uid="u-last")
    sweep = SWEEP.put(InterruptionState(disrupted=known))
    new = {"jobs": (a_job("u-last"),), "interruptions": (why,), "experiment": OPEN}
    sweep = follow(sweep, seen(FAILED, sweep=sweep, **new), NOW)
    for later in (new, {"experiment": OPEN}):
        found = seen(FAILED, sweep=sweep, **later)
        assert not found.starting_again
        assert required_changes(sweep, found, NOW).delete == ()
        sweep = follow(sweep, found, NOW)
    assert not seen(FAILED, OTHER_FAILED).starting_again
    assert not seen(OTHER_FAILED).reopens


@pytest.mark.parametrize(("before", "told"), [(MAX_DISRUPTIONS, 0), (MAX_DISRUPTIONS - 1, 1)])
def test_only_a_trial_that_starts_again_is_reported_as_interrupted(before, told):
    sweep = SWEEP.put(InterruptionState(disrupted={f"u-{number}": "t1" for number in range(before)}))
    why = Interruption(trial="t1", why="", queued=False, job_uid="u-last")
    active = replace(a_job("u-last"), state=JobState.ACTIVE)
    found = seen(
        a_trial("t1", TrialState.LIVE), sweep=sweep, jobs=(active,), interruptions=(why,), experiment=OPEN
    )
    after = follow(sweep, found, NOW)
    assert len(after.outbox) == told
    assert len(required_changes(after, found, NOW).delete) == told


@pytest.mark.parametrize(("most", "again"), [(2, False), (3, True)])
def test_experiment_is_not_reopened_if_enough_trials_ended(most, again):
    experiment = replace(ended(End.ALL_TRIALS), max_trials=most)
    others = (DONE, a_trial("t3", TrialState.SUCCEEDED), a_trial("t4", TrialState.LIVE))
    assert seen(*others, experiment=experiment).reopens is again


def test_experiment_without_a_limit_of_failures_can_end():
    """`parallel=auto` omits a limit that the throttled experiment can't reach."""
    experiment = replace(ended(End.ALL_TRIALS), max_trials=2, max_failed=None)
    assert seen(FAILED, DONE, experiment=experiment).starting_again == {"t1"}
    assert not seen(OTHER_FAILED, DONE, experiment=experiment).starting_again


@pytest.mark.parametrize(
    "experiment",
    [
        ended(End.TARGET),
        ended(End.DRAINED),
        ended(End.FAILED, ExperimentState.FAILED),
        ended(End.OTHER, ExperimentState.FAILED),
    ],
)
def test_failed_trial_stays_failed_if_the_experiment_ended_for_another_reason(experiment):
    assert not seen(FAILED, experiment=experiment).starting_again
    assert not seen(DONE, experiment=experiment).reopens


@pytest.mark.parametrize("experiment", [OPEN, ended(End.PAUSED)])
def test_trial_of_an_open_or_paused_experiment_needs_no_reopening(experiment):
    assert seen(FAILED, OTHER_FAILED, experiment=experiment).starting_again == {"t1"}
    assert not seen(DONE, experiment=experiment).reopens


def deletions(observed):
    return required_changes(SWEEP, observed, NOW).delete


def test_job_is_deleted_first_with_its_pods_and_then_the_trial():
    namespace = SWEEP.plan.experiment_ref.namespace
    job = Delete(ref=Ref("Job", namespace, "t1"), uid="u-t1", wait=True)
    assert deletions(seen(FAILED, jobs=(a_job("u-t1"),))) == (job,)
    assert deletions(seen(FAILED, jobs=(a_job("u-t1", deleted=True),))) == ()
    assert deletions(seen(FAILED)) == (Delete(ref=Ref("Trial", namespace, "t1"), uid="uid-t1"),)


def test_job_that_completed_after_the_loss_of_a_worker_does_not_run_again():
    live = a_trial("t1", TrialState.LIVE)
    done = replace(a_job("u-t1"), state=JobState.COMPLETE)
    assert deletions(seen(live, jobs=(done,), experiment=OPEN)) == ()


@pytest.mark.parametrize("experiment", [BROKEN, ended(End.ALL_TRIALS)])
def test_experiment_is_reopened_once_the_trial_is_gone(experiment):
    assert not seen(FAILED, DONE, experiment=experiment).reopens
    gone = seen(DONE, experiment=experiment)
    [patch] = required_changes(SWEEP, gone, NOW).patch
    assert (patch.ref, patch.subresource) == (SWEEP.plan.experiment_ref, "status")
    status = patch.body["status"]
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Running", "True")]
    assert (status["trials"], status["trialsFailed"]) == (1, 0)  # Katib counts no empty list again


@pytest.mark.parametrize(("most_failed", "deleted"), [(1, ["t2"]), (2, [])])
def test_failed_trials_are_deleted_one_after_the_other_unless_none_could_start(most_failed, deleted):
    """Katib creates all missing trials at once, and deletes the newest if they are more than `parallel`."""
    sweep = SWEEP.put(InterruptionState(disrupted={"u-t1": "t1", "u-t2": "t2"}))

    def changes(*trials, **experiment):
        broken = replace(BROKEN, max_failed=most_failed, **experiment)
        found = seen(*trials, sweep=sweep, experiment=broken)
        required = required_changes(sweep, found, NOW)
        return [each.ref.name for each in required.delete], bool(required.patch)

    assert changes(FAILED, OTHER_FAILED) == (["t1"], False)
    assert changes(OTHER_FAILED) == (deleted, not deleted)
    assert changes(OTHER_FAILED, state=ExperimentState.RUNNING, end=End.NONE) == ([], False)


def test_completed_job_and_trial_whose_metrics_are_lost_are_replaced():
    state = InterruptionState(disrupted={"u-t1": "t1"}, restarted={"u-t1": "t1"})
    sweep, unread = SWEEP.put(state), a_trial("t1", TrialState.NO_METRICS)
    full = ended(End.ALL_TRIALS)
    job = replace(a_job("u-t1"), state=JobState.COMPLETE)
    assert seen(unread, experiment=full, sweep=sweep, jobs=(job,)).starting_again == {"t1"}
    found = seen(unread, experiment=full, sweep=sweep)
    assert found.starting_again == {"t1"}
    for completed, uids in ((True, ["u-t1"]), (False, [])):
        before = sweep if completed else SWEEP
        there = seen(unread, experiment=full, sweep=before, jobs=(job,))
        assert [each.uid for each in changes(before, PLAN, there, NOW).delete] == uids
