"""Sweeps with profiles and teams, and the scheduler: the machine of each pod, and what is refused."""

import asyncio
import contextlib
from dataclasses import replace

from bot.core.record import Phase
from bot.platform.config.policy import parse_config
from local.kubernetes import scheduler
from local.kubernetes.apiserver.store import place
from local.kubernetes.controllers.jobs import Controllers
from tests.bot.factories import CONFIG, OWNER, REQUEST
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

TEXT = f"""\
repositories: {{digits: {{url: https://git.example/digits.git}}}}
profiles:
  h100: {{gpus: 1, cpu: 4, memory: 8Gi, shared_memory: 2048Mi, nodes: {{gpu: [h100, h100-nvl]}}}}
  8xh100: {{gpus: 8, cpu: 32, memory: 64Gi, nodes: {{gpu: [h100, h100-nvl]}}}}
teams:
  vision:
    members: [{OWNER}]
    nodes: {{team: vision}}
    tolerations: [{{key: team, value: vision}}]
    gpus_total: 2
output: {{claim: checkpoints, at: /ckpt, flag: output_dir}}
"""
ALLOWED = ("profiles", "volumes", "env", "secrets", "output")
CLUSTER = replace(CONFIG, **{name: getattr(parse_config(TEXT, "c.yaml"), name) for name in ALLOWED})
WITH_TEAM = replace(CLUSTER, teams=parse_config(TEXT, "c.yaml").teams)
TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


class Machines(SimulatedSweep):
    """Nodes of 4 GPUs, and the scheduler, which binds the pods."""

    def __init__(self, redis, config, **options):
        request = replace(REQUEST, **options)
        super().__init__(redis, Clock(None), sweep={"request": request}, endless="trainings", image=True)
        self.clients.config = config
        self.controllers = Controllers(self.kubernetes, backoff=0)

    @contextlib.asynccontextmanager
    async def started(self):
        async with super().started():
            self.node("gpu-1", {"gpu": "h100"})
            self.node("gpu-2", {"gpu": "h100"})
            self.node("gpu-3", {"gpu": "h100", "team": "vision"}, TAINT)
            self.node("gpu-4", {"gpu": "a100"})
            task = asyncio.create_task(scheduler.run(self.kubernetes))
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def node(self, name, labels, *taints):
        sizes = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}
        meta = {"name": name, "labels": labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [*taints]}}
        self.kubernetes.set_status(self.kubernetes.create(node), {"capacity": sizes, "allocatable": sizes})

    def neighbor(self, node):
        """Another sweep's trial, which runs on this node."""
        meta = {"name": "other-trial", "namespace": "sweeps", "labels": {"sweepbot/sweep": "other"}}
        main = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec = {"containers": [main], "nodeName": node}
        self.kubernetes.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def trials(self):
        return [
            p for p in self.kubernetes.list("Pod") if p["metadata"]["labels"].get("sweepbot/sweep") == SWEEP
        ]

    async def until(self, phase, rounds=12):
        for _ in range(rounds):
            await self.round()
            if (await self.record()).phase is phase:
                return
        raise AssertionError(f"{self.last.phase}, not {phase}: {self.last.reason}")


def directory_of(pod):
    [line] = pod["spec"]["containers"][0]["args"]
    return line.partition("--output_dir=")[2].partition("'")[0]


async def test_trials_of_a_profile_run_where_other_trials_run(redis):
    async with Machines(redis, CLUSTER).started() as sweep:
        sweep.neighbor("gpu-2")
        await sweep.until(Phase.RUNNING)
        assert {pod["spec"]["nodeName"] for pod in sweep.trials()} == {"gpu-2"}
        [main, *_] = sweep.trials()[0]["spec"]["containers"]
        assert main["resources"]["requests"]["memory"] == "8Gi"
        assert "cpu" not in main["resources"]["limits"]


async def test_sweep_that_no_machine_can_run_is_refused_before_its_build(redis):
    async with Machines(redis, CLUSTER, gpus=8, profile="8xh100").started() as sweep:
        await sweep.until(Phase.REFUSED)
        assert not sweep.kubernetes.list("Job")
        [(user, text)] = sweep.slack.ephemeral_messages
        assert user == OWNER
        assert "The largest machine that it can use (node gpu-1) has 4 GPUs and 16 CPUs." in text
        assert "*Fix:* Use gpus=4 or profile=h100." in text


async def test_sweep_without_profiles_that_needs_more_gpus_than_any_node_has_is_refused(redis):
    async with Machines(redis, CONFIG, gpus=8).started() as sweep:
        await sweep.until(Phase.REFUSED)
        assert not sweep.kubernetes.list("Job")
        [(_, text)] = sweep.slack.ephemeral_messages
        assert "gpus=8 can't run on this cluster" in text


async def test_sweep_of_a_team_runs_on_its_machines_up_to_its_limit(redis):
    async with Machines(redis, WITH_TEAM).started() as sweep:
        await sweep.until(Phase.RUNNING)
        assert {pod["spec"]["nodeName"] for pod in sweep.trials()} == {"gpu-3"}
    async with Machines(redis, WITH_TEAM, gpus=2).started() as sweep:
        await sweep.until(Phase.REFUSED)
        assert "team vision can use 2" in sweep.last.reason


async def test_evicted_trial_gets_its_output_directory_again(redis):
    async with Machines(redis, CLUSTER).started() as sweep:
        await sweep.until(Phase.RUNNING)
        first = min(sweep.trials(), key=lambda pod: pod["metadata"]["name"])
        trial = first["metadata"]["labels"]["katib.kubeflow.org/trial"]
        gone = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        status = {"phase": "Failed", "conditions": [gone]}
        sweep.kubernetes.patch(*place(first), {"status": status}, subresource="status")
        sweep.kubernetes.delete(*place(first), grace=0)
        await sweep.round()
        pods = [p for p in sweep.trials() if p["metadata"]["labels"]["katib.kubeflow.org/trial"] == trial]
        [again] = [pod for pod in pods if pod["metadata"]["uid"] != first["metadata"]["uid"]]
        assert directory_of(again) == directory_of(first) == f"/ckpt/{SWEEP}/{trial}"
        assert sweep.last.phase is Phase.RUNNING
