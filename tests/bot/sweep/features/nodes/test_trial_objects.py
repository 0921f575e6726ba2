"""When the TrainingRuntime of TrainJobs is created."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.launch.plan import plan
from bot.sweep.model.observation import Observation
from k8s.engine import ExperimentState, TrialState
from k8s.katib.pod_shape import PodShape
from k8s.katib.train_job import owned
from k8s.trial_kinds import TRAIN_JOB
from tests.bot.factories import NOW, ORDER, REQUEST, SETTINGS, a_sweep
from tests.bot.sweep.model.observations import OPEN, a_job, a_trial

NODES = replace(REQUEST, nodes=3)
PLAN = plan(replace(ORDER, request=NODES, shape=PodShape(multi_node=TRAIN_JOB)), SETTINGS)
EXPERIMENT = replace(OPEN, uid="e1")
RUNTIME = owned(PLAN.runtime, PLAN.experiment, "e1")


def created(phase=Phase.PENDING, **seen):
    sweep = a_sweep(phase, plan=PLAN, image="registry/x@sha256:1")
    return list(required_changes(sweep, Observation(**seen), NOW).create)


def test_submission_creates_the_experiment_and_then_the_runtime_once():
    """The runtime's owner has no UID before, and Trainer creates the Services of its trials."""
    [made] = created()
    assert made["kind"] == "Experiment"
    job = made["spec"]["trialTemplate"]["trialSpec"]
    assert job["spec"]["trainer"]["image"] == "registry/x@sha256:1"
    sweep = a_sweep(Phase.PENDING, plan=plan(replace(ORDER, request=NODES), SETTINGS), image="i")
    for changed, kinds in ((sweep, ["Service", "Experiment"]), (replace(sweep, phase=Phase.RUNNING), [])):
        made = required_changes(changed, Observation(), NOW).create
        assert [each["kind"] for each in made] == kinds
    assert created(experiment=EXPERIMENT) == [RUNTIME]
    assert created(experiment=EXPERIMENT, trials=(a_trial("t1"),)) == [RUNTIME]
    assert created(experiment=EXPERIMENT, jobs=(a_job("earlier"),)) == [RUNTIME]
    ended = replace(EXPERIMENT, state=ExperimentState.SUCCEEDED)
    assert created(Phase.RUNNING, experiment=ended, trials=(a_trial("t1"),)) == []
    assert created(Phase.CANCELLED, experiment=EXPERIMENT) == []


@pytest.mark.parametrize(("seconds", "made"), [(None, []), (29, []), (31, [RUNTIME])])
def test_runtime_is_created_again_if_a_trial_gets_no_job(seconds, made):
    started = NOW - timedelta(seconds=seconds) if seconds else None
    trials = a_trial("t1", TrialState.SUCCEEDED), replace(a_trial("t2"), started=started)
    assert created(Phase.RUNNING, experiment=EXPERIMENT, trials=trials, jobs=(a_job("t1"),)) == made


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_runtime_costs_no_request_while_each_live_trial_has_its_job(phase):
    trials = (a_trial("t1", TrialState.KILLED), a_trial("t2"))
    assert created(phase, experiment=EXPERIMENT, trials=trials, jobs=(a_job("t2"),)) == []
