"""Sweeps whose trials are PyTorchJobs or TrainJobs in Kueue's queue, from admission as a whole to results."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from k8s.katib.multi_node import SERVICE
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.objects import true_conditions
from k8s.trial_kinds import PYTORCH_JOB, TRAIN_JOB, is_suspended
from tests.bot.factories import ADMIN, REQUEST
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.queued_sweep import QueuedSweep
from tests.scenarios.sweep_in_memory import OPERATORS, SWEEP, Clock, SimulatedSweep

pytestmark = pytest.mark.features("nodes")

CRDS = {PYTORCH_JOB: "pytorchjobs.kubeflow.org", TRAIN_JOB: "trainjobs.trainer.kubeflow.org"}
WORKERS = {
    PYTORCH_JOB: ("master-0", "worker-0", "worker-1"),
    TRAIN_JOB: ("node-0-0", "node-0-1", "node-0-2"),
}


def three_nodes(kind):
    [operator] = [name for name, each in OPERATORS.items() if each is kind]
    return {operator: True, "sweep": {"request": replace(REQUEST, gpus=2, nodes=3, parallel=1)}}


def trials(simulation, kind):
    return [job["metadata"]["name"] for job in simulation.kubernetes.list(kind.kind)]


def workers(simulation, kind):
    """Return the names by which the pods of this kind find each other."""
    pods = [pod for pod in simulation.kubernetes.list("Pod") if kind.label in pod["metadata"]["labels"]]
    return sorted(pod["spec"].get("hostname", pod["metadata"]["name"]) for pod in pods)


def left(simulation):
    """What exists of a sweep's trials, by kind."""
    kinds = ("TrainingRuntime", "TrainJob", "JobSet", "Job", "Pod")
    return {kind: len(found) for kind in kinds if (found := simulation.kubernetes.list(kind))}


def an_hour_passes(simulation):
    later = datetime.now(UTC) + timedelta(hours=1)  # the cluster has the machine's time
    simulation.clients = replace(simulation.clients, now=lambda: later)


@pytest.fixture(params=[PYTORCH_JOB, TRAIN_JOB], ids=lambda kind: kind.kind)
def kind(request):
    return request.param


@pytest.fixture
async def waiting(redis, kind):
    """Another Job has one of 6 GPUs, so 5 are left for a trial with 6."""
    async with QueuedSweep(redis, gpus=6, **three_nodes(kind)).started() as simulation:
        simulation.job("report", priority="sweeps-normal")
        await simulation.until(Phase.PENDING)
        await simulation.rounds(4)
        yield simulation


@pytest.mark.features("interruptions")
async def test_all_workers_are_admitted_and_preempted_together_and_the_results_are_read(redis, kind):
    async with QueuedSweep(redis, gpus=6, **three_nodes(kind)).started() as simulation:
        await simulation.until(Phase.RUNNING)
        [trial] = trials(simulation, kind)
        assert workers(simulation, kind) == [f"{trial}-{name}" for name in WORKERS[kind]]
        assert simulation.kubernetes.get("Service", "sweeps", SERVICE) is None  # the operator creates others
        simulation.job("urgent-report", gpus=2)
        await simulation.rounds(4)
        assert workers(simulation, kind) == []
        [told] = simulation.said("stopped running")
        assert f"Trial `{trial}` stopped running: Kueue preempted it for urgent-report" in told
        progress = (await simulation.record()).progress
        assert (progress.running, progress.waiting, progress.failed) == (0, 1, 0)
        simulation.kubernetes.delete("Job", "sweeps", "urgent-report")
        await simulation.rounds(8)
        assert len(workers(simulation, kind)) == 3
        assert simulation.said("Running again")
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert (ended.progress.succeeded, ended.progress.failed, ended.progress.killed) == (3, 0, 0)
        assert ended.progress.best.value == 0.1
        assert simulation.gpus_held() == []


async def test_trial_waits_without_any_pod_until_its_quota_fits_all_workers(waiting, kind):
    assert workers(waiting, kind) == []
    assert (await waiting.record()).phase is Phase.PENDING
    [job] = waiting.kubernetes.list(kind.kind)
    assert is_suspended(job)
    an_hour_passes(waiting)
    await waiting.rounds(2)
    assert waiting.said("Queued by Kueue: needs 1 more GPU in a100")
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting, kind)) == 3


@pytest.mark.features("queue")
async def test_raised_moved_and_held_trial_changes_its_place(waiting, kind):
    await waiting.asks(Action.HOLD)
    workloads = waiting.kubernetes.list("Workload")
    [workload] = [each for each in workloads if each["metadata"]["name"].startswith(kind.kind.lower())]
    assert workload["spec"]["active"] is False
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.rounds(3)
    assert workers(waiting, kind) == []
    await waiting.asks(Action.RAISE, ADMIN)
    await waiting.asks(Action.MOVE, ADMIN, queue="urgent")
    [job] = waiting.kubernetes.list(kind.kind)
    labels = job["metadata"]["labels"]
    assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("urgent", "sweeps-high")
    await waiting.asks(Action.UNHOLD)
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting, kind)) == 3


@pytest.mark.parametrize("quota", ["none is free", "some is free now"])
async def test_cancel_of_a_queued_trial_leaves_nothing(waiting, kind, quota):
    if quota == "some is free now":
        waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.asks(Action.CANCEL)
    await waiting.until(Phase.CANCELLED)
    assert trials(waiting, kind) == workers(waiting, kind) == []
    [trial] = waiting.kubernetes.list("Trial")
    assert "Killed" in true_conditions(trial)


async def test_sweep_is_refused_before_its_build_without_the_operator(redis, kind):
    async with QueuedSweep(redis, **three_nodes(kind) | {"image": False}).started() as simulation:
        simulation.kubernetes.delete("CustomResourceDefinition", "", CRDS[kind])
        refused = await simulation.until(Phase.REFUSED)
        assert f"{kind.operator} isn't installed in the cluster" in refused.reason
        assert simulation.kubernetes.list("Job") == []


@pytest.mark.features("interruptions")
async def test_pytorch_job_resumed_while_its_pods_terminate_starts_again_and_has_not_failed(redis):
    async with QueuedSweep(redis, gpus=6, **three_nodes(PYTORCH_JOB)).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.rounds(3)
        simulation.job("urgent-report", gpus=2)
        await simulation.settle()
        simulation.kubernetes.delete("Job", "sweeps", "urgent-report")  # before any pod has terminated
        await simulation.rounds(8)
        [told] = simulation.said("its earlier pods were still terminating")
        again = "all of its 3 workers start again once its queue has quota and 3 nodes have room"
        assert f"This isn't a failure: {again}" in told
        assert len(workers(simulation, PYTORCH_JOB)) == 3
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert (ended.progress.succeeded, ended.progress.failed) == (3, 0)
        assert simulation.gpus_held() == []


async def test_train_job_without_trainer_is_explained_and_starts_once_it_is_back(redis):
    script = FailingTrials(redis, lambda world, pod: world.runs(pod), **three_nodes(TRAIN_JOB))
    async with script.started() as world:
        await world.operator.close()
        await world.rounds()
        assert workers(world, TRAIN_JOB) == []
        await world.after(120)
        assert "Kubeflow Trainer 2 or its JobSet controller isn't responding" in await world.message()
        world.operator.start()
        await world.rounds()
        assert (await world.record()).phase is Phase.RUNNING
        assert len(workers(world, TRAIN_JOB)) == 3


async def test_runtime_that_was_deleted_is_created_again_for_the_next_trial(redis):
    async with QueuedSweep(redis, gpus=6, **three_nodes(TRAIN_JOB)).started() as simulation:
        await simulation.until(Phase.RUNNING)
        simulation.kubernetes.delete("TrainingRuntime", "sweeps", SWEEP)
        an_hour_passes(simulation)
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert ended.progress.succeeded == 3
        simulation.kubernetes.delete("Experiment", "sweeps", SWEEP)
        await simulation.settle()
        await simulation.rounds(2)
        assert left(simulation) == {}


@pytest.mark.features("gate")
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
