"""Kueue in the local world: what it suspends, reports, and releases [katib/08-B-workloads]."""

from contextlib import asynccontextmanager

import pytest

from local import kueue
from local.kubernetes.jobs import Controllers
from local.kubernetes.store import Store

GPU = "nvidia.com/gpu"
GPUS = {"limits": {GPU: "1"}}
TOO_MUCH = (
    "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets requests (0) + "
    "current podset request (8) > maximum capacity (2)"
)


@asynccontextmanager
async def cluster(gpus):
    """With a queue of this quota as the default of its namespace."""
    store = Store()
    kueue.install(store)
    resources = [{"name": GPU, "nominalQuota": gpus}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": resources}]}
    make(store, "ClusterQueue", "team-cq", resourceGroups=[group])
    make(store, "LocalQueue", "default", clusterQueue="team-cq")
    parts = kueue.Kueue(store), Controllers(store)
    for part in parts:
        part.start()
    try:
        yield store
    finally:
        for part in parts:
            await part.close()


def make(store, kind, name, **spec):
    meta = {"name": name, "namespace": "default"} if kind != "ClusterQueue" else {"name": name}
    store.create({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec})


def job(store, name, resources):
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    meta = {"name": name, "namespace": "default"}
    store.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}}
    )


def admission(store, name):
    uid = store.get("Job", "default", name)["metadata"]["uid"]
    [*conditions] = [
        (c["status"], c["message"])
        for workload in store.list("Workload", "default", {"kueue.x-k8s.io/job-uid": uid})
        for c in workload.get("status", {}).get("conditions", [])
    ]
    return conditions[0] if conditions else ()


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"cpu": "1", "memory": "2Gi"}}, "resource cpu unavailable in ClusterQueue"),
        ({"limits": {GPU: "8"}}, TOO_MUCH),
    ],
)
async def test_job_that_never_fits_stays_suspended(resources, words, wait_until):
    async with cluster("2") as store:
        job(store, "build", resources)
        await wait_until(lambda: admission(store, "build"), "Kueue reports the reason")
        assert admission(store, "build") == ("False", f"couldn't assign flavors to pod set main: {words}")
        assert store.get("Job", "default", "build")["spec"]["suspend"]
        assert store.list("Pod") == []


async def test_job_waits_for_the_one_before_it(wait_until):
    async with cluster("1") as store:
        job(store, "first", GPUS)
        await wait_until(lambda: len(store.list("Pod")) == 1, "the first has its pod")
        job(store, "second", GPUS)
        await wait_until(lambda: admission(store, "second"), "Kueue reports the reason")
        assert admission(store, "second")[1].endswith(
            "unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
        )
        [pod] = store.list("Pod")
        store.set_status(pod, {"phase": "Succeeded"})
        await wait_until(lambda: admission(store, "second")[0] == "True", "the second is admitted")
        await wait_until(lambda: len(store.list("Pod")) == 2, "the second has its pod")


async def test_job_without_a_local_queue_is_not_managed():
    async with cluster("1") as store:
        store.delete("LocalQueue", "default", "default")
        job(store, "free", GPUS)
        assert not store.get("Job", "default", "free")["spec"]["suspend"]


def test_kueue_kinds_are_served_once_installed():
    store = Store()
    assert "Workload" not in {kind.name for kind in store.kinds()}
    kueue.install(store)
    assert "Workload" in {kind.name for kind in store.kinds()}
