"""Which disrupted workers start a trial of several nodes again."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.sweep.features.interruptions.observe import of_collectors, of_workers
from bot.sweep.features.interruptions.state import Interruption, InterruptionState
from bot.sweep.model.observation import Observation
from k8s.engine import Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.kueue import QUEUE_LABEL
from k8s.pods import Pod, read_pod
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.features.health import real_messages

SWEEP = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, nodes=2))
TRIAL = Trial(name="t1", state=TrialState.FAILED, parameters={}, value=None)
FAILED = Job(name="t1", uid="u-t1", state=JobState.FAILED, ended=NOW)
WORKER = Pod(name="t1-1", index=1, job="t1", job_uid="u-t1", node="n1", finished=True)


def evicted(at, reason="EvictionByEvictionAPI"):
    return replace(WORKER, disruption=(reason, ""), disrupted_at=at)


def interrupted(*pods, jobs=(FAILED,), trials=(TRIAL,)):
    found = of_workers(SWEEP, 2, Observation(trials=trials, jobs=jobs), pods)
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


def test_trial_is_not_interrupted_after_its_first_worker_succeeded_or_for_a_full_disk():
    lost, first = evicted(NOW - timedelta(minutes=1)), replace(WORKER, name="t1-0", index=0)
    other = replace(WORKER, name="t1-2", index=2, exit=(0, "Completed", ""))
    assert interrupted(lost, replace(first, exit=(0, "Completed", ""))) == []
    for pod in (first, replace(first, exit=(1, "Error", "")), other):
        assert interrupted(lost, pod) == ["u-t1"]
    kubelet = ("TerminationByKubelet", real_messages.OVER_DISK)
    assert interrupted(replace(lost, disruption=kubelet)) == []
    assert interrupted(replace(lost, failure=("Evicted", real_messages.OVER_DISK))) == []
    assert interrupted(replace(lost, finished=False)) == [], "it is still running"
    assert interrupted(replace(lost, finished=False, deleted=True)) == ["u-t1"]
    failed = replace(FAILED, disruption="its pod was evicted", kueue_labels={QUEUE_LABEL: "ml"})
    [found] = of_workers(SWEEP, 2, Observation(trials=(TRIAL,), jobs=(failed,)), [])
    assert found == Interruption(trial="t1", why="its pod was evicted", queued=True, job_uid="u-t1")


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
