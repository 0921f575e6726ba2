"""Which disrupted workers start a trial of several nodes again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.lifecycle.observation import Observation
from bot.sweeps.observe_queue import observe_queue
from k8s.jobs import Job, JobState
from k8s.katib.status import Trial, TrialState
from k8s.pods import Pod, read_pod
from tests.bot.factories import NOW, PLAN, a_sweep

SWEEP = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, nodes=2))
TRIAL = Trial(name="t1", state=TrialState.FAILED, parameters={}, value=None, raw={})
FAILED = Job(name="t1", uid="u-t1", state=JobState.FAILED, ended=NOW)
WORKER = Pod(name="t1-1", index=1, job="t1", job_uid="u-t1", node="n1", finished=True)


def evicted(at, reason="EvictionByEvictionAPI"):
    return replace(WORKER, disruption=(reason, ""), disrupted_at=at)


async def interrupted(pod, *, jobs=(FAILED,), trials=(TRIAL,), gone=False):
    pods = {"gone" if gone else "pods": (pod,)}
    seen = await observe_queue(SWEEP, Observation(trials=trials, jobs=jobs, **pods), None)
    return [each.job_uid for each in seen.interruptions]


@pytest.mark.parametrize("gone", [False, True])
async def test_ended_worker_of_a_failed_job_that_is_drained_later_explains_nothing(gone):
    """The API server and the taint manager give ended pods the condition, too."""
    late, early = evicted(NOW + timedelta(minutes=5)), evicted(NOW - timedelta(minutes=1))
    assert await interrupted(late, gone=gone) == []
    assert await interrupted(early, gone=gone) == ["u-t1"]
    assert await interrupted(late, gone=gone, jobs=(replace(FAILED, ended=None),)) == ["u-t1"]


async def test_kubelet_only_stops_workers_that_run_so_its_clock_may_be_ahead():
    assert await interrupted(evicted(NOW + timedelta(seconds=5), "TerminationByKubelet")) == ["u-t1"]


async def test_worker_of_an_earlier_experiment_is_ignored():
    other = replace(TRIAL, name="next-t1")
    assert await interrupted(evicted(NOW), trials=(other,)) == []


async def test_worker_that_is_remembered_after_its_job_is_gone_is_ignored():
    """A TrainJob's pod has the UID of the Job below it, which belongs to no trial without the TrainJob."""
    assert await interrupted(replace(evicted(NOW), job_uid="u-inner"), jobs=(), gone=True) == []


def test_time_of_a_disruption_is_read_from_the_pod():
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    pod = {"metadata": {"name": "t1-1"}, "status": {"conditions": [condition]}}
    assert read_pod(pod, "main").disrupted_at == NOW
