"""Trials on several machines: when they count as running, what one worker's failure shows, and all logs."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.measure.gpus.pod_owners import by_labels
from k8s.nodes.gpu_pods import read_gpu_pod
from k8s.objects import GPU
from k8s.pods import is_trial_pod
from k8s.trial_kinds import pod_index
from tests.bot.factories import OWNER, REQUEST
from tests.bot.sweep.features.health import real_messages
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.simulated_monitor import SimulatedMonitor
from tests.scenarios.sweep_in_memory import SWEEP

pytestmark = pytest.mark.features("nodes")

NODES = {"sweep": {"request": replace(REQUEST, nodes=3, gpus=8)}}


EACH_KIND = pytest.mark.parametrize(
    "kind", [{}, {"pytorch": True}, {"trainer": True}], ids=["Job", "PyTorchJob", "TrainJob"]
)


def workers_in(world):
    return [pod for pod in world.kubernetes.list("Pod") if is_trial_pod(pod)]


def second_waits(world, pod):
    if pod_index(pod) == 1:
        world.unscheduled(pod, real_messages.UNSCHEDULABLE)
    else:
        world.runs(pod)


def third_fails(world, pod):
    if pod_index(pod) == 2 and world.scenario.get("fails"):
        world.cluster.logs[pod["metadata"]["name"]] = real_messages.CUDA_OOM
        world.ends(pod, 1)
    else:
        world.runs(pod)
        world.cluster.logs[pod["metadata"]["name"]] = f"log of worker {pod_index(pod)}"


@EACH_KIND
async def test_trial_runs_once_all_of_its_workers_run_and_has_the_log_of_each(redis, kind):
    async with FailingTrials(redis, second_waits, **NODES, **kind).started() as world:
        await world.rounds()
        await world.after(120)
        assert (await world.record()).phase is Phase.PENDING
        assert "Worker 2 of 3: The pod is pending: not enough free GPUs" in await world.message()
        world.happens = third_fails
        await world.rounds()
        assert (await world.record()).phase is Phase.RUNNING
        ask = Command(action=Action.LOGS, user=OWNER, user_name="ada", in_thread=True)
        await world.store.add_command(SWEEP, ask)
        await world.round()
        answer = next(text for text in world.slack.posted if text.startswith("Log of trial"))
        assert "worker 1 of 3" in answer
        assert "log of worker 0" in answer
        name, whole = world.slack.files[-1]
        assert name.endswith(".log")
        assert [f"==> Worker {n + 1} of 3" in whole and f"log of worker {n}" in whole for n in range(3)] == [
            True
        ] * 3


@EACH_KIND
async def test_first_failed_worker_is_the_diagnosis_and_the_others_are_gone(redis, kind):
    async with FailingTrials(redis, third_fails, fails=True, **NODES, **kind).started() as world:
        await world.rounds(14)
        text = await world.message()
        assert "Worker 3 of 3: Out of GPU memory" in text
        assert world.gpus_held() == []
        left = workers_in(world)
        assert {pod_index(pod) for pod in left} == {2}


@EACH_KIND
async def test_trial_without_some_workers_waits_for_the_quota_that_refuses_them(redis, kind):
    async with FailingTrials(redis, third_fails, **NODES, **kind).started() as world:
        meta, hard = {"name": "team", "namespace": "sweeps"}, {f"requests.{GPU}": "8"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        world.kubernetes.create(quota)
        await world.rounds()
        assert [pod_index(pod) for pod in workers_in(world)] == [0]
        assert (await world.record()).phase is Phase.PENDING
        assert (
            "can never start: it requests 3 nodes × 8 GPUs, and the namespace quota is 8"
            in await world.message()
        )


@EACH_KIND
async def test_cancelled_trial_and_then_the_cancelled_sweep_free_the_gpus_of_all_workers(redis, kind):
    async with FailingTrials(redis, third_fails, **NODES, **kind).started() as world:
        await world.rounds()
        for action in (Action.KILL, Action.CANCEL):
            pods = workers_in(world)
            assert [each["spec"]["containers"][0]["resources"]["limits"][GPU] for each in pods] == ["8"] * 3
            trial = pods[0]["metadata"]["labels"]["katib.kubeflow.org/trial"]
            command = Command(action=action, user=OWNER, user_name="ada", trial=trial)
            await world.store.add_command(SWEEP, command)
            await world.rounds()
            alive = {each["metadata"]["name"] for each in world.kubernetes.list("Pod")}
            assert not alive & {pod["metadata"]["name"] for pod in pods}, action


async def uses_of(redis, kind):
    """Return the allocated GPUs of a running trial with three workers, by its pods, without measurements."""
    async with FailingTrials(redis, third_fails, **NODES, **kind).started() as world:
        await world.rounds()
        held = filter(None, map(read_gpu_pod, workers_in(world)))
        return [(one, by_labels(one.labels)) for one in sorted(held, key=lambda one: one.name)]


@EACH_KIND
async def test_idle_warning_counts_the_gpus_of_all_workers(redis, kind):
    used = await uses_of(redis, kind)
    for worker, said in (
        (QUIET, "24 GPUs idle for 30 min"),
        (BUSY, "16 of 24 GPUs idle for 30 min"),
        (None, ""),  # of which nothing is known
    ):
        pods = []
        for number, (one, owner) in enumerate(used):
            use = worker if number == 2 else QUIET
            facts = {"pod": one.name, "sweep": owner.sweep, "trial": owner.trial, "allocated": one.gpus}
            pods.append(a_pod(*[use] * one.gpus if use else (), **facts))
        monitor = SimulatedMonitor(redis, *pods)
        await monitor.sweep()
        await monitor.run()
        assert len({pod.trial for pod in pods}) == 1
        assert [said in text for text in monitor.texts()] == ([True] if said else []), worker
        await redis.flushall()
