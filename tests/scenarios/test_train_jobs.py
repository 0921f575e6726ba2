"""Sweeps whose trials are TrainJobs in Kueue's queue, from their admission as a whole to their results."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from k8s.katib.multi_node import SERVICE
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.objects import true_conditions
from k8s.trial_kinds import INDEX_LABEL, JOBSET_LABEL
from tests.bot.factories import ADMIN, REQUEST
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.queued_sweep import QueuedSweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

THREE_NODES = {"trainer": True, "sweep": {"request": replace(REQUEST, gpus=2, nodes=3, parallel=1)}}


def trials(simulation):
    return [job["metadata"]["name"] for job in simulation.kubernetes.list("TrainJob")]


def workers(simulation):
    labels = (pod["metadata"]["labels"] for pod in simulation.kubernetes.list("Pod"))
    return sorted((each[JOBSET_LABEL], each[INDEX_LABEL]) for each in labels if JOBSET_LABEL in each)


def left(simulation):
    """What exists of a sweep's trials, by kind."""
    kinds = ("TrainingRuntime", "TrainJob", "JobSet", "Job", "Pod")
    return {kind: len(found) for kind in kinds if (found := simulation.kubernetes.list(kind))}


@pytest.fixture
async def waiting(redis):
    """Another Job has one of 6 GPUs, so 5 are left for a trial with 6."""
    async with QueuedSweep(redis, gpus=6, **THREE_NODES).started() as simulation:
        simulation.job("report", priority="sweeps-normal")
        await simulation.until(Phase.PENDING)
        await simulation.rounds(4)
        yield simulation


async def test_all_workers_are_admitted_and_preempted_together_and_the_results_are_read(redis):
    async with QueuedSweep(redis, gpus=6, **THREE_NODES).started() as simulation:
        await simulation.until(Phase.RUNNING)
        [trial] = trials(simulation)
        assert workers(simulation) == [(trial, "0"), (trial, "1"), (trial, "2")]
        assert simulation.kubernetes.get("Service", "sweeps", SERVICE) is None  # JobSet creates others
        simulation.job("urgent-report", gpus=2)
        await simulation.rounds(4)
        assert workers(simulation) == []
        [told] = simulation.said("stopped running")
        assert f"Trial `{trial}` stopped running: Kueue preempted it for urgent-report" in told
        progress = (await simulation.record()).progress
        assert (progress.running, progress.waiting, progress.failed) == (0, 1, 0)
        simulation.kubernetes.delete("Job", "sweeps", "urgent-report")
        await simulation.rounds(8)
        assert len(workers(simulation)) == 3
        assert simulation.said("Running again")
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert (ended.progress.succeeded, ended.progress.failed, ended.progress.killed) == (3, 0, 0)
        assert ended.progress.best.value == 0.1
        assert simulation.gpus_held() == []


async def test_trial_waits_without_any_pod_until_its_quota_fits_all_workers(waiting):
    assert workers(waiting) == []
    assert (await waiting.record()).phase is Phase.PENDING
    [job] = waiting.kubernetes.list("TrainJob")
    assert job["spec"]["suspend"]
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting)) == 3


async def test_raised_moved_and_held_trial_changes_its_place(waiting):
    await waiting.asks(Action.HOLD)
    [workload] = [w for w in waiting.kubernetes.list("Workload") if "trainjob" in w["metadata"]["name"]]
    assert workload["spec"]["active"] is False
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.rounds(3)
    assert workers(waiting) == []
    await waiting.asks(Action.RAISE, ADMIN)
    await waiting.asks(Action.MOVE, ADMIN, queue="urgent")
    [job] = waiting.kubernetes.list("TrainJob")
    labels = job["metadata"]["labels"]
    assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("urgent", "sweeps-high")
    await waiting.asks(Action.UNHOLD)
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting)) == 3


async def test_cancel_of_a_queued_trial_leaves_nothing(waiting):
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.asks(Action.CANCEL)
    await waiting.until(Phase.CANCELLED)
    assert trials(waiting) == workers(waiting) == []
    assert [set(true_conditions(trial)) & {"Killed"} for trial in waiting.kubernetes.list("Trial")] == [
        {"Killed"}
    ]


async def test_sweep_is_refused_before_its_build_without_trainer(redis):
    async with QueuedSweep(redis, **THREE_NODES | {"image": False}).started() as simulation:
        simulation.kubernetes.delete("CustomResourceDefinition", "", "trainjobs.trainer.kubeflow.org")
        refused = await simulation.until(Phase.REFUSED)
        assert "Kubeflow Trainer 2 isn't installed in the cluster" in refused.reason
        assert simulation.kubernetes.list("Job") == []


async def test_trial_without_trainer_is_explained_and_starts_once_it_is_back(redis):
    async with FailingTrials(redis, lambda world, pod: world.runs(pod), **THREE_NODES).started() as world:
        await world.operator.close()
        await world.rounds()
        assert workers(world) == []
        await world.after(120)
        assert "Kubeflow Trainer 2 or its JobSet controller isn't responding" in await world.message()
        world.operator.start()
        await world.rounds()
        assert (await world.record()).phase is Phase.RUNNING
        assert len(workers(world)) == 3


async def test_runtime_that_was_deleted_is_created_again_for_the_next_trial(redis):
    async with QueuedSweep(redis, gpus=6, **THREE_NODES).started() as simulation:
        await simulation.until(Phase.RUNNING)
        simulation.kubernetes.delete("TrainingRuntime", "sweeps", SWEEP)
        later = datetime.now(UTC) + timedelta(hours=1)  # the cluster has the machine's time
        simulation.clients = replace(simulation.clients, now=lambda: later)
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert ended.progress.succeeded == 3
        simulation.kubernetes.delete("Experiment", "sweeps", SWEEP)
        await simulation.settle()
        await simulation.rounds(2)
        assert left(simulation) == {}


async def test_held_sweep_that_continues_has_a_runtime_for_each_of_its_experiments(redis):
    request = replace(REQUEST, nodes=3, gate=True)
    story = {"crash": "unseen", "acts": {Action.OPEN: Phase.HELD}, "image": True}
    life = SimulatedSweep(redis, Clock(None), **story, trainer=True, sweep={"request": request})
    await life.run()
    assert life.last.phase is Phase.FAILED
    runtimes = sorted(each["metadata"]["name"] for each in life.kubernetes.list("TrainingRuntime"))
    assert runtimes == [SWEEP, f"{SWEEP}-2"]
    used = {job["spec"]["runtimeRef"]["name"] for job in life.kubernetes.list("TrainJob")}
    assert used == set(runtimes)
    assert life.gpus_held() == []
