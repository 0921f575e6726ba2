"""The data about a trial, from Katib, its pods, and the measured hours."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.space import Goal
from bot.measure.gpus.models import HourUse
from bot.platform.config.teams import Price
from bot.sweep.launch.plan import plan
from bot.sweep.results.collect import Sources, collect, trial_of
from k8s.engine import Trial, TrialState
from k8s.katib.pod_shape import PodShape
from k8s.pods import Pod, read_pod
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB
from tests.bot.factories import NOW, ORDER, PLAN, REQUEST, SETTINGS, a_sweep

LATER = NOW + timedelta(hours=2)


def a_trial(name="t1", state=TrialState.SUCCEEDED, **facts):
    return Trial(name=name, state=state, parameters={"lr": "0.1"}, value=0.5, **facts)


def a_pod(name="t1-abcde", **facts):
    return Pod(name=name, job=name.rpartition("-")[0], node="n1", finished=True, **facts)


def an_hour(pod="t1-abcde", **facts):
    sums = {"allocated": 1.0, "observed": 0.8, "used": 0.4, "idle": 0.1, "node": "n9", "model": "NVIDIA A100"}
    return HourUse(hour=NOW, namespace="sweeps", pod=pod, **sums | facts)


def one(trial=None, plan=PLAN, **sources):
    sweep = a_sweep(Phase.SUCCEEDED, submitted=True)
    [found] = collect(sweep, plan, Sources(trials=[trial or a_trial()], **sources)).trials
    return found


def test_collect_keeps_what_the_record_has():
    sweep, best = a_sweep(Phase.SUCCEEDED, submitted=True), Result(trial="t1", value=0.5, parameters={})
    full = replace(sweep, thread="1.2", image="i@sha256:1", results_url="https://mlflow.example/1")
    full = replace(full, progress=replace(full.progress, best=best))

    def kept(sweep, plan=PLAN):
        found = collect(sweep, plan, Sources(trials=[]))
        return found.thread, found.image, found.mlflow_url, found.best

    assert kept(full) == ("1.2", "i@sha256:1", "https://mlflow.example/1", "t1")
    assert kept(replace(full, thread=None, image=None, results_url="", progress=Progress())) == ("",) * 4


def test_collect_takes_times_and_gpu_hours_from_pods_or_what_was_measured():
    pods = [
        a_pod("t1-aaaaa", scheduled=NOW, began=NOW + timedelta(minutes=30), ended=NOW + timedelta(hours=1)),
        a_pod("t1-bbbbb", scheduled=NOW + timedelta(hours=1), began=NOW + timedelta(hours=1), ended=LATER),
    ]
    found = one(a_trial(started=NOW - timedelta(days=1), ended=LATER), pods=pods)
    assert (found.started, found.ended, found.node) == (NOW + timedelta(minutes=30), LATER, "n1")
    assert found.gpu_hours == 2.0 * PLAN.gpus
    prices = (Price(model="NVIDIA A100", hourly=2.5),)
    found = one(uses=[an_hour(), an_hour(used=0.0), an_hour("t2-abcde")], prices=prices)
    assert (found.node, found.gpu_model, found.gpu_hours, found.cost) == ("n9", "NVIDIA A100", 2.0, 5.0)
    assert found.utilization == pytest.approx(0.25)
    changed = one(uses=[an_hour(price=1.5), an_hour(price=2.0), an_hour(allocated=0.5)], prices=prices)
    assert changed.cost == pytest.approx(2.5 * 1.75)  # the price of the hours before and after the change
    plan = replace(PLAN, gpus=8, nodes=4)
    first = a_pod("t1-aaaaa", index=0, scheduled=NOW, began=NOW, ended=LATER)
    third = a_pod("t1-bbbbb", index=2, scheduled=NOW, began=NOW, ended=NOW + timedelta(hours=1))
    assert one(plan=plan, pods=[first, third]).gpu_hours == 2 * 4 * 8
    uses = [an_hour(f"t1-{number}-abcde", allocated=8.0) for number in range(4)]
    assert one(plan=plan, uses=uses).gpu_hours == 32
    found = one()
    assert (found.started, found.ended, found.node, found.gpu_model) == (None, None, "", "")
    assert (found.gpu_hours, found.utilization, found.cost) == (None, None, None)


def test_trial_has_a_name_and_only_the_times_and_cost_that_are_known():
    """Katib's start is when it created the trial's Job."""
    found = one(a_trial(state=TrialState.NOT_STARTED, started=NOW, ended=LATER))
    assert (found.state, found.started, found.ended, found.cost) == (
        TrialState.NOT_STARTED,
        None,
        LATER,
        None,
    )
    assert one(uses=[an_hour()]).cost is None
    assert trial_of("lr-brave-otter-k2x9-q7wzp", PLAN) == "lr-brave-otter-k2x9"


@pytest.mark.parametrize(
    ("kind", "pods"),
    [
        (JOB, ("t1-0-abcde", "t1-1-fghij")),
        (PYTORCH_JOB, ("t1-master-0", "t1-worker-0")),
        (TRAIN_JOB, ("t1-node-0-0-abcde", "t1-node-0-1-fghij")),
    ],
)
def test_collect_adds_up_the_measured_hours_of_all_workers(kind, pods):
    order = replace(ORDER, request=replace(REQUEST, nodes=2), shape=PodShape(multi_node=kind))
    planned = plan(order, SETTINGS)
    found = one(plan=planned, uses=[an_hour(pod, allocated=4.0) for pod in pods])
    assert (found.gpu_hours, found.gpu_model) == (8.0, "NVIDIA A100")


def test_times_of_a_real_pods_status_are_read():
    state = {
        "terminated": {
            "exitCode": 0,
            "startedAt": "2026-11-21T12:10:00Z",
            "finishedAt": "2026-11-21T13:00:00Z",
        }
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    status = {"conditions": [scheduled], "containerStatuses": [{"name": JOB.container, "state": state}]}
    pod = read_pod({"metadata": {"name": "t1-abcde"}, "status": status}, JOB.container)
    assert (pod.scheduled, pod.began) == (NOW, NOW + timedelta(minutes=10))
    assert (pod.ended, pod.seconds) == (NOW + timedelta(hours=1), 3000.0)


def test_collect_finds_the_pareto_front_of_several_objectives():
    space = replace(PLAN.space, additional=("latency",), goals={"latency": Goal.MINIMIZE})
    trials = [a_trial("t1", more={"latency": 2.0}), a_trial("t2", more={"latency": 1.0}), a_trial("t3")]
    sweep = a_sweep(Phase.SUCCEEDED, submitted=True)
    assert collect(sweep, replace(PLAN, space=space), Sources(trials=trials)).front == ("t2",)
    assert collect(sweep, PLAN, Sources(trials=trials)).front == ()
