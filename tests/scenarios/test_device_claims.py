"""A sweep on GPUs that ResourceSlices publish: its claims, what is counted, and what is refused."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources.dcgm_source import Sampler
from bot.platform.config.policy import parse_config
from bot.watch.home.gpu_query_job import free_and_total
from k8s.nodes.devices import with_devices
from k8s.nodes.listed import list_devices, list_gpu_pods, list_unclaimed_nodes
from local.kubernetes.controllers.resource_claims import ResourceClaims
from local.world import NAMESPACE, world
from tests.bot.factories import NOW
from tests.scenarios.device_cluster import device_class, publish, resource_slice
from tests.scenarios.dra_drivers import example_class, example_slices
from tests.scenarios.local_world import prepared, until
from tests.scenarios.test_machines import CONFIG, Machines

pytestmark = pytest.mark.features("device_claims")
TEXT = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles:
  h100: {gpus: 1, cpu: 4, memory: 8Gi, device_class: gpu.nvidia.com}
"""
CLUSTER = replace(CONFIG, profiles=parse_config(TEXT, "c.yaml").profiles)


class Claiming(Machines):
    """Two nodes with two GPUs each, without a device plugin."""

    @contextlib.asynccontextmanager
    async def started(self):
        async with super().started():
            self.kubernetes.create(device_class())
            for node in ("gpu-1", "gpu-2"):
                self.kubernetes.create(resource_slice(node, 2))
            claims = ResourceClaims(self.kubernetes)
            claims.start()
            try:
                yield self
            finally:
                await claims.close()

    def node(self, name, labels, *taints):
        meta = {"name": name, "labels": labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [*taints]}}
        sizes = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "0"}  # of a device plugin that is gone
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": sizes, "allocatable": sizes, "conditions": ready}
        self.kubernetes.set_status(self.kubernetes.create(node), status)


async def counted(cluster):
    devices = await list_devices(cluster)
    nodes = with_devices(await cluster.list("Node", ""), devices)
    return free_and_total(nodes, await list_gpu_pods(cluster, devices))


async def test_trials_claim_gpus_that_count_as_allocated_until_they_end(redis):
    async with Claiming(redis, CLUSTER).started() as sweep:
        cluster = sweep.clients.cluster
        assert await counted(cluster) == (4, 4)
        await sweep.until(Phase.RUNNING)
        [template] = sweep.kubernetes.list("ResourceClaimTemplate")
        [main, *_] = sweep.trials()[0]["spec"]["containers"]
        assert main["resources"]["claims"] == [{"name": "gpus"}]
        assert not [name for name in main["resources"]["limits"] if "/" in name]
        claims = sweep.kubernetes.list("ResourceClaim")
        assert len(claims) == len(sweep.trials()) == 2
        requests = template["spec"]["spec"]["devices"]["requests"]
        assert [claim["spec"]["devices"]["requests"] for claim in claims] == [requests, requests]
        assert await counted(cluster) == (2, 4)
        assert free_and_total(await list_unclaimed_nodes(cluster), []) == (2, 2)
        for pod in sweep.trials():
            sweep.kubernetes.set_status(pod, pod["status"] | {"phase": "Succeeded"})
        await asyncio.sleep(0.01)
        assert await counted(cluster) == (4, 4)
        assert not sweep.kubernetes.list("ResourceClaim")


@pytest.mark.parametrize("watched", [True, False])
async def test_claims_end_the_rest_of_an_idle_cluster(redis, watched):
    """Its nodes are read every five minutes only; here, none have passed."""
    async with Claiming(redis, CLUSTER).started() as sweep:
        sampler = Sampler(sweep.clients.cluster, lambda: ["sweeps"], OwnerStore(redis, tuple))
        watch = asyncio.create_task(sampler.watch()) if watched else None
        await asyncio.sleep(0)

        async def allocated():
            sample = await sampler.sample(NOW, 30)
            return len(sample.pods), sum(node.allocated for node in sample.nodes)

        assert await allocated() == (0, 0)
        await sweep.until(Phase.RUNNING)
        assert await allocated() == (2, 2)
        for pod in sweep.trials():
            sweep.kubernetes.set_status(pod, pod["status"] | {"phase": "Succeeded"})
        await asyncio.sleep(0.01)
        assert await allocated() == (0, 0)
        if watch:
            watch.cancel()
            await asyncio.wait([watch])


@pytest.mark.slow
async def test_sweep_on_gpus_of_the_example_driver_from_the_command_to_its_end(tmp_path, mlflow_url):
    async with world(tmp_path, mlflow_url) as here:
        publish(here.store, 2, example_class(), example_slices)
        lab = prepared(here, "profiles: {h100: {gpus: 1, device_class: gpu.example.com}}\n")
        await here.start_bot("all")

        async def gpus(text=""):
            before = len(here.slack.ephemerals("ada"))
            answered = await here.slack.command("ada", "sweeps", "/gpus", text)
            if answered.startswith("Loading"):
                return await lab.whispered("ada", before, answered)
            return answered

        found = await lab.answer("doctor")
        assert "0 broken, 0 warnings" in found
        assert "GPU device classes" in found
        assert "4 of 4 GPUs free" in await gpus()
        refusal = await lab.answer("branch=main space=held profile=h100 gpus=3")
        assert "3 GPUs. The largest machine that it can use (node gpu-1) has 2 GPUs. *Fix:*" in refusal, (
            refusal
        )
        sweep = await lab.sweep("branch=main space=held profile=h100")
        await sweep.shows("2 running")
        while "2 of 4 GPUs free" not in (text := await gpus()):
            assert "4 of 4 GPUs free" in text
            await asyncio.sleep(1)
        mine = await gpus("mine")
        assert sweep.id in mine, mine
        lab.hold.unlink()
        await sweep.posts("Finished:", "2 trials done")
        await until(lambda: not here.store.list("ResourceClaim", NAMESPACE), "no claim is left")
        [template] = here.store.list("ResourceClaimTemplate", NAMESPACE)
        assert template["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "sweepbot"}
        made = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": "gpu.example.com"}
        assert template["spec"]["spec"]["devices"]["requests"] == [{"name": "gpus", "exactly": made}]
