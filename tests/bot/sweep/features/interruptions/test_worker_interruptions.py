"""Which disrupted workers start a trial of several nodes again."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.sweep.features.interruptions.observe import of_collectors, of_workers
from bot.sweep.features.interruptions.state import InterruptionState
from bot.sweep.model.observation import Observation
from k8s.engine import Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.pods import Pod, read_pod
from tests.bot.factories import NOW, PLAN, a_sweep

SWEEP = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, nodes=2))
TRIAL = Trial(name="t1", state=TrialState.FAILED, parameters={}, value=None)
FAILED = Job(name="t1", uid="u-t1", state=JobState.FAILED, ended=NOW)
WORKER = Pod(name="t1-1", index=1, job="t1", job_uid="u-t1", node="n1", finished=True)


def evicted(at, reason="EvictionByEvictionAPI"):
    return replace(WORKER, disruption=(reason, ""), disrupted_at=at)


def interrupted(pod, *, jobs=(FAILED,), trials=(TRIAL,)):
    found = of_workers(SWEEP, 2, Observation(trials=trials, jobs=jobs), [pod])
    return [each.job_uid for each in found]


def test_worker_explains_only_its_own_running_job():
    """The API server and the taint manager give ended pods the condition, too."""
    late, early = evicted(NOW + timedelta(minutes=5)), evicted(NOW - timedelta(minutes=1))
    assert interrupted(late) == []
    assert interrupted(early) == ["u-t1"]
    assert interrupted(late, jobs=(replace(FAILED, ended=None),)) == ["u-t1"]
    assert interrupted(evicted(NOW + timedelta(seconds=5), "TerminationByKubelet")) == ["u-t1"]
    other = replace(TRIAL, name="next-t1")
    assert interrupted(evicted(NOW), trials=(other,)) == []
    # A TrainJob's pod has the UID of the Job below it, which belongs to no trial without the TrainJob.
    assert interrupted(replace(evicted(NOW), job_uid="u-inner"), jobs=()) == []
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    pod = {"metadata": {"name": "t1-1"}, "status": {"conditions": [condition]}}
    assert read_pod(pod, "main").disrupted_at == NOW


def test_trial_whose_reader_could_not_report_starts_again_once():
    """Its Job is complete then, and Katib counts the trial as one without metrics."""
    manifest = {"spec": {**PLAN.experiment["spec"], "metricsCollectorSpec": {"collector": {"kind": "Push"}}}}
    plan = replace(PLAN, nodes=2, experiment=PLAN.experiment | manifest)
    done = replace(FAILED, state=JobState.COMPLETE)
    pod = replace(WORKER, index=0, unread="its metrics weren't stored: timed out")
    seen = Observation(trials=(TRIAL,), jobs=(done,), pods=(pod,))
    [found] = of_collectors(SWEEP, plan, seen)
    assert (found.job_uid, found.why) == (
        "u-t1",
        "its training finished, but its metrics weren't stored: timed out",
    )
    again = SWEEP.put(InterruptionState(restarted={"u-t0": "t1"}))
    assert of_collectors(again, plan, seen) == []
    assert of_collectors(again, PLAN, seen) == [found], "Katib's collector gets one more try"
