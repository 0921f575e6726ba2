"""A sweep on GPUs that ResourceSlices publish: its claims, what is counted, and what is refused."""

import asyncio
import contextlib
from dataclasses import replace

from bot.core.record import Phase
from bot.measure.gpus.dcgm_source import Sampler
from bot.measure.gpus.pod_owners import OwnerStore
from bot.platform.config.policy import parse_config
from bot.watch.home.gpu_query_job import free_and_total
from k8s.nodes.listed import list_gpu_pods, list_nodes, list_pods
from local.kubernetes.controllers.resource_claims import ResourceClaims
from tests.scenarios.test_machines import CONFIG, Machines

TEXT = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles:
  h100: {gpus: 1, cpu: 4, memory: 8Gi, device_class: gpu.nvidia.com}
"""
CLUSTER = replace(CONFIG, profiles=parse_config(TEXT, "c.yaml").profiles)
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


def device_class(name="gpu.nvidia.com", expression=SELECTOR):
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
    return head | {"spec": spec}


def resource_slice(node, gpus, driver="gpu.nvidia.com"):
    """As NVIDIA's driver publishes whole GPUs, of fewer attributes."""
    devices = [
        {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{n}"}}}
        for n in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    meta = {"name": f"{node}-{driver}-x7k2p"}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


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


async def test_trials_claim_gpus_that_count_as_allocated_until_they_end(redis):
    async with Claiming(redis, CLUSTER).started() as sweep:
        cluster = sweep.clients.cluster
        assert free_and_total(await list_nodes(cluster), await list_pods(cluster)) == (4, 4)
        await sweep.until(Phase.RUNNING)
        [template] = sweep.kubernetes.list("ResourceClaimTemplate")
        [main, *_] = sweep.trials()[0]["spec"]["containers"]
        assert main["resources"]["claims"] == [{"name": "gpus"}]
        assert not [name for name in main["resources"]["limits"] if "/" in name]
        claims = sweep.kubernetes.list("ResourceClaim")
        assert len(claims) == len(sweep.trials()) == 2
        requests = template["spec"]["spec"]["devices"]["requests"]
        assert [claim["spec"]["devices"]["requests"] for claim in claims] == [requests, requests]
        assert free_and_total(await list_nodes(cluster), await list_pods(cluster)) == (2, 4)
        for pod in sweep.trials():
            sweep.kubernetes.set_status(pod, pod["status"] | {"phase": "Succeeded"})
        await asyncio.sleep(0.01)
        assert free_and_total(await list_nodes(cluster), await list_pods(cluster)) == (4, 4)
        assert not sweep.kubernetes.list("ResourceClaim")
