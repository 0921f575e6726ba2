"""GPUs of the example driver and of NVIDIA's: what is counted while their demos run."""

import asyncio
import contextlib

import pytest

from bot.watch.home.gpu_query_job import free_and_total
from k8s.nodes.devices import with_devices
from k8s.nodes.gpus import node_sizes
from k8s.nodes.listed import list_devices, list_gpu_pods, list_machines
from k8s.objects import CLASS_PREFIX
from local import cluster_fixtures
from local.kubernetes import scheduler
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.resource_claims import ResourceClaims
from tests.bot.sweep.launch.test_cluster_choice import add, node
from tests.scenarios.dra_drivers import (
    EXAMPLE,
    MIG,
    demo_pod,
    demo_template,
    example_class,
    example_slices,
    nvidia_classes,
    nvidia_slices,
    one,
    preferring,
)
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.local_world import until

EXAMPLE_GPU = f"{CLASS_PREFIX}{EXAMPLE}"


@contextlib.asynccontextmanager
async def cluster(*published):
    """A node whose GPUs only slices have, the scheduler, and the controller of claims."""
    store = Store()
    cluster_fixtures.install(store, [])
    add(store, node("n1", 0))
    for each in published:
        store.create(each)
    claims, task = ResourceClaims(store), asyncio.create_task(scheduler.run(store))
    claims.start()
    try:
        yield store
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await claims.close()


async def seen(store):
    """What is free, all, and what each pod has, by resource."""
    there = DirectCluster(store)
    devices = await list_devices(there)
    pods = await list_gpu_pods(there, devices)
    nodes = with_devices(await there.list("Node", ""), devices)
    holders = {pod.name: pod.sizes for pod in pods if pod.sizes}
    return (*free_and_total(nodes, pods), holders)


async def run(store, *objects):
    for each in objects:
        store.create(each)
    pods = [each["metadata"]["name"] for each in objects if each["kind"] == "Pod"]
    placed = lambda name: store.get("Pod", "default", name)["spec"].get("nodeName")  # noqa: E731
    await until(lambda: all(map(placed, pods)), "the demo's pods have a node")


def of_template(*requests, pods=("pod0",)):
    made = demo_template("demo", "default", *requests)
    return [made, *(demo_pod(name, "default", template="demo") for name in pods)]


def shared_claim():
    spec = {"devices": {"requests": [one()]}}
    meta = {"name": "single-gpu", "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}
    return [claim, *(demo_pod(name, "default", claim="single-gpu") for name in ("pod0", "pod1"))]


@pytest.mark.parametrize(
    ("demo", "free", "holders"),
    [
        (of_template(one(), pods=("pod0", "pod1")), 6, {"pod0": 1, "pod1": 1}),
        (of_template(one("gpu-1"), one("gpu-2")), 6, {"pod0": 2}),
        (shared_claim(), 7, {"pod0": 1}),
        (of_template(one(allocationMode="All", adminAccess=True)), 8, {}),
        (of_template(preferring("BLEEDING-EDGE-GPU", "LATEST-GPU-MODEL")), 7, {"pod0": 1}),
        (of_template(preferring("BLEEDING-EDGE-GPU")), 7, {"pod0": 1}),
    ],
    ids=["claim-template", "two-requests", "shared-claim", "admin-access", "preferred", "fallback"],
)
async def test_demo_of_the_example_driver_is_counted(demo, free, holders):
    async with cluster(example_class(), *example_slices("n1")) as store:
        assert await seen(store) == (8, 8, {})
        await run(store, *demo)
        expected = {name: {EXAMPLE_GPU: gpus} for name, gpus in holders.items()}
        assert await seen(store) == (free, 8, expected)


async def test_gpu_of_which_a_demo_has_two_parts_counts_as_two_and_others_stay_free():
    async with cluster(example_class(), *example_slices("n1", 4, partitions=4)) as store:
        assert await seen(store) == (4, 4, {})
        await run(store, *of_template(one(count=2)))
        assert await seen(store) == (3, 5, {"pod0": {EXAMPLE_GPU: 2}})


async def test_gpu_that_two_claims_share_by_capacity_counts_as_two_and_others_stay_free():
    async with cluster(example_class(), *example_slices("n1", 4, shared=True)) as store:
        claim, *_ = shared_claim()
        for at in range(2):
            made = store.create(claim | {"metadata": {"name": f"shared-gpu-pod{at}", "namespace": "default"}})
            device = {
                "request": "gpu",
                "driver": EXAMPLE,
                "pool": "n1",
                "device": "gpu-0",
                "shareID": str(at),
            }
            store.set_status(made, {"allocation": {"devices": {"results": [device]}}})
            pod = demo_pod(f"pod{at}", "default", claim=f"shared-gpu-pod{at}")
            store.create(pod | {"spec": pod["spec"] | {"nodeName": "n1"}})
        assert await seen(store) == (3, 5, {name: {EXAMPLE_GPU: 1} for name in ("pod0", "pod1")})


async def test_slices_that_a_driver_has_not_deleted_yet_do_not_count():
    old, new = example_slices("n1", 8), example_slices("n1", 2, generation=2)
    async with cluster(example_class(), *old, *new) as store:
        assert await seen(store) == (2, 2, {})


async def test_gpus_of_nvidias_driver_are_requested_like_those_of_its_device_plugin():
    async with cluster(*nvidia_classes(), *nvidia_slices("n1", 4)) as store:
        assert await seen(store) == (4, 4, {})
        [found] = with_devices([node("n1", 0)], await list_devices(DirectCluster(store)))
        assert node_sizes(found) == {"nvidia.com/gpu": (4, 4)}


async def test_gpus_that_nvidias_driver_divides_on_demand_count_as_whole_ones_until_parts_are_claimed():
    profiles = [("1g.10gb", 19, 1), ("3g.40gb", 9, 4)]
    async with cluster(*nvidia_classes(), *nvidia_slices("n1", 2, profiles=profiles)) as store:
        assert await seen(store) == (2, 2, {})
        [machine] = await list_machines(DirectCluster(store))
        gpus = {name: size for name, size in machine.resources.items() if "/" in name and size}
        mig = f"{CLASS_PREFIX}mig.nvidia.com"
        assert gpus == {"nvidia.com/gpu": 2, f"{CLASS_PREFIX}gpu.nvidia.com": 2, mig: 20}
        profile = f"{MIG.split(' && ')[1].replace('type', 'profile')[:-5]}'3g.40gb'"
        part = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": profile}}]}
        demo = of_template({"name": "gpu", "exactly": part}, pods=("pod0", "pod1"))
        await run(store, *demo)
        assert await seen(store) == (1, 3, {name: {"nvidia.com/gpu": 1} for name in ("pod0", "pod1")})
