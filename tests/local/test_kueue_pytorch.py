"""PyTorchJobs in the local world's Kueue: all pods of one are admitted together, or none."""

from contextlib import asynccontextmanager

import pytest

from local import training_operator
from local.kubernetes.apiserver.kinds import Refused
from local.kueue.workloads import PRIORITY, QUEUE
from tests.local.test_kueue import GPU, admission, cluster, is_suspended, job, priorities
from tests.local.training_operator.conftest import pytorch_job


@asynccontextmanager
async def lab(gpus):
    """A cluster with a queue of this quota, and the operator."""
    async with cluster(gpus) as store:
        training_operator.install(store)
        operator = training_operator.TrainingOperator(store)
        operator.start()
        try:
            yield store
        finally:
            await operator.close()


def train(store, name, workers=1, **labels):
    """A PyTorchJob with one GPU for each pod."""
    made = pytorch_job(name, workers)
    made["metadata"]["labels"] = labels
    for replica in made["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}}
    store.create(made)


def workload(store, name):
    found = store.list("Workload", "default")
    return next((w for w in found if w["metadata"]["ownerReferences"][0]["name"] == name), None)


def message(store, name):
    conditions = workload(store, name)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == "QuotaReserved")


def waits(store, name):
    found = store.get("PyTorchJob", "default", name)
    return found["spec"]["runPolicy"]["suspend"]


def pods(store, name):
    found = [pod["metadata"] for pod in store.list("Pod")]
    return [each["name"] for each in found if each["name"].startswith(f"{name}-")]


async def test_job_is_one_workload_that_is_admitted_as_a_whole(wait_until):
    async with lab("3") as store:
        train(store, "first")
        await wait_until(lambda: len(pods(store, "first")) == 2, "both pods are there")
        made = workload(store, "first")
        assert made["metadata"]["name"].startswith("pytorchjob-first-")
        assert [(each["name"], each["count"]) for each in made["spec"]["podSets"]] == [
            ("master", 1),
            ("worker", 1),
        ]
        train(store, "second")
        await wait_until(lambda: workload(store, "second"), "the second has a Workload")
        assert message(store, "second") == (
            "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in "
            "flavor a100, 1 more needed"
        )
        assert waits(store, "second")
        assert pods(store, "second") == []


async def test_each_pod_set_that_lacks_quota_is_named(wait_until):
    async with lab("2") as store:
        train(store, "first")
        await wait_until(lambda: not waits(store, "first"), "the first is admitted")
        train(store, "second")
        await wait_until(lambda: workload(store, "second"), "the second waits")
        start = "couldn't assign flavors to pod set"
        lack = "insufficient unused quota for nvidia.com/gpu in flavor a100"
        assert (
            message(store, "second")
            == f"{start} master: {lack}, 1 more needed; {start} worker: {lack}, 2 more needed"
        )


async def test_job_above_the_quota_never_fits(wait_until):
    async with lab("2") as store:
        train(store, "big", workers=3)
        await wait_until(lambda: workload(store, "big"), "it waits")
        assert message(store, "big").endswith(
            "previously considered podsets requests (1) + current podset request (3) > maximum capacity (2)"
        )


async def test_preempted_job_loses_all_pods_and_runs_again_later(wait_until):
    async with lab("2") as store:
        priorities(store)
        train(store, "first", **{PRIORITY: "low"})
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first has its pods")
        job(store, "second", {"limits": {GPU: "1"}}, **{PRIORITY: "high"})
        await wait_until(lambda: waits(store, "first"), "the first is preempted")
        await wait_until(lambda: pods(store, "first") == [], "its pods are gone")
        await wait_until(lambda: not is_suspended(store, "second"), "the second is admitted")
        await wait_until(lambda: len(pods(store, "second")) == 1, "the second has its pod")
        store.set_status(store.get("Pod", "default", pods(store, "second")[0]), {"phase": "Succeeded"})
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first runs again")
        assert admission(store, "second")[0] == "True"


async def test_finished_job_releases_its_quota(wait_until):
    async with lab("2") as store:
        train(store, "first")
        train(store, "second")
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first has its pods")
        store.set_status(store.get("Pod", "default", "first-master-0"), {"phase": "Succeeded"})
        await wait_until(lambda: not waits(store, "second"), "the second is admitted")
        finished = next(
            c for c in workload(store, "first")["status"]["conditions"] if c["type"] == "Finished"
        )
        assert (finished["reason"], finished["message"]) == (
            "Succeeded",
            "PyTorchJob first is successfully completed.",
        )


async def test_deleted_job_takes_its_workload_along(wait_until):
    async with lab("2") as store:
        train(store, "first")
        await wait_until(lambda: workload(store, "first"), "it has a Workload")
        store.delete("PyTorchJob", "default", "first")
        await wait_until(lambda: store.list("Workload") == [], "the Workload is gone")


async def test_labels_of_an_admitted_job_are_immutable(wait_until):
    async with lab("2") as store:
        train(store, "first")
        await wait_until(lambda: not waits(store, "first"), "it is admitted")
        change = {"metadata": {"labels": {QUEUE: "other"}}}
        with pytest.raises(Refused, match=r'^admission webhook "vpytorchjob.kb.io" denied the request'):
            store.patch("PyTorchJob", "default", "first", change)
