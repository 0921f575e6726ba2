"""Sweeps whose trials are PyTorchJobs in Kueue's queue, from their admission as a whole to their results."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from k8s.katib.multi_node import SERVICE
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.objects import true_conditions
from k8s.trial_kinds import PYTORCH_JOB_LABEL
from tests.bot.factories import ADMIN, REQUEST
from tests.scenarios.queued_sweep import QueuedSweep

THREE_NODES = {"pytorch": True, "sweep": {"request": replace(REQUEST, gpus=2, nodes=3, parallel=1)}}


def trials(simulation):
    return [job["metadata"]["name"] for job in simulation.kubernetes.list("PyTorchJob")]


def workers(simulation):
    found = (pod["metadata"] for pod in simulation.kubernetes.list("Pod"))
    return sorted(meta["name"] for meta in found if PYTORCH_JOB_LABEL in meta["labels"])


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
        assert workers(simulation) == [f"{trial}-{name}" for name in ("master-0", "worker-0", "worker-1")]
        assert simulation.kubernetes.get("Service", "sweeps", SERVICE) is None  # the operator has its own
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
    [job] = waiting.kubernetes.list("PyTorchJob")
    assert job["spec"]["runPolicy"]["suspend"]
    later = datetime.now(UTC) + timedelta(hours=1)  # the cluster has the machine's time
    waiting.clients = replace(waiting.clients, now=lambda: later)
    await waiting.rounds(2)
    assert waiting.said("Queued by Kueue: needs 1 more GPU in a100")
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting)) == 3


async def test_raised_moved_and_held_trial_changes_its_place(waiting):
    await waiting.asks(Action.HOLD)
    [workload] = [w for w in waiting.kubernetes.list("Workload") if "pytorchjob" in w["metadata"]["name"]]
    assert workload["spec"]["active"] is False
    waiting.kubernetes.delete("Job", "sweeps", "report")
    await waiting.rounds(3)
    assert workers(waiting) == []
    await waiting.asks(Action.RAISE, ADMIN)
    await waiting.asks(Action.MOVE, ADMIN, queue="urgent")
    [job] = waiting.kubernetes.list("PyTorchJob")
    labels = job["metadata"]["labels"]
    assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("urgent", "sweeps-high")
    await waiting.asks(Action.UNHOLD)
    await waiting.until(Phase.RUNNING)
    assert len(workers(waiting)) == 3


async def test_cancel_of_a_queued_trial_leaves_nothing(waiting):
    await waiting.asks(Action.CANCEL)
    await waiting.until(Phase.CANCELLED)
    assert trials(waiting) == workers(waiting) == []
    assert [set(true_conditions(trial)) & {"Killed"} for trial in waiting.kubernetes.list("Trial")] == [
        {"Killed"}
    ]


async def test_sweep_is_refused_before_its_build_without_the_operator(redis):
    async with QueuedSweep(redis, **THREE_NODES | {"image": False}).started() as simulation:
        simulation.kubernetes.delete("CustomResourceDefinition", "", "pytorchjobs.kubeflow.org")
        refused = await simulation.until(Phase.REFUSED)
        assert "Kubeflow's Training Operator isn't installed in the cluster" in refused.reason
        assert simulation.kubernetes.list("Job") == []


async def test_trial_resumed_while_its_pods_terminate_fails_and_the_thread_says_why(redis):
    async with QueuedSweep(redis, gpus=6, **THREE_NODES).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.rounds(3)
        simulation.job("urgent-report", gpus=2)
        await simulation.settle()
        simulation.kubernetes.delete("Job", "sweeps", "urgent-report")  # before any pod has terminated
        await simulation.until(Phase.FAILED)
        assert simulation.said("The trial started again while its earlier pods were terminating")
        assert simulation.gpus_held() == []
