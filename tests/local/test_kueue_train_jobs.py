"""TrainJobs in the local world's Kueue: the nodes of one are admitted together, or none."""

from contextlib import asynccontextmanager

import pytest

from local import trainer
from local.kubernetes.apiserver.kinds import Refused
from local.kueue.workloads import PRIORITY, QUEUE, condition
from tests.local.test_kueue import GPU, admission, cluster, is_suspended, job, priorities
from tests.local.test_kueue_pytorch import message, pods, workload
from tests.local.trainer.conftest import train_job, training_runtime


@asynccontextmanager
async def lab(gpus):
    """A cluster with a queue of this quota, Kubeflow Trainer, and a runtime with one GPU for each node."""
    # Kueue's webhook adds its patch after Trainer's has seen the job: it doesn't object to it.
    async with cluster(gpus) as store:
        trainer.install(store)
        part = trainer.Trainer(store)
        part.start()
        store.create(runtime_with_gpu())
        try:
            yield store
        finally:
            await part.close()


def runtime_with_gpu():
    made = training_runtime()
    [replicated] = made["spec"]["template"]["spec"]["replicatedJobs"]
    [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {GPU: "1"}}
    return made


def train(store, name, nodes=2, **labels):
    made = train_job(name, nodes)
    made["metadata"]["labels"] = labels
    store.create(made)


def spec(store, name):
    return store.get("TrainJob", "default", name)["spec"]


async def test_job_is_one_workload_that_is_admitted_as_a_whole(wait_until):
    async with lab("3") as store:
        train(store, "first")
        await wait_until(lambda: len(pods(store, "first")) == 2, "both pods are there")
        made = workload(store, "first")
        assert made["metadata"]["name"].startswith("trainjob-first-")
        [pod_set] = made["spec"]["podSets"]
        assert (pod_set["name"], pod_set["count"]) == ("node", 2)
        [patch] = spec(store, "first")["runtimePatches"]
        assert patch["manager"] == "kueue.x-k8s.io/manager"
        [patched] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        assert patched["name"] == "node"
        assert "runtimePatches" not in store.get("JobSet", "default", "first")["spec"]
        train(store, "second")
        await wait_until(lambda: workload(store, "second"), "the second has a Workload")
        assert message(store, "second") == (
            "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in "
            "flavor a100, 1 more needed"
        )
        assert spec(store, "second")["suspend"]
        assert pods(store, "second") == []


async def test_waiting_job_has_a_suspended_job_set(wait_until):
    async with lab("1") as store:
        train(store, "first")
        await wait_until(lambda: store.get("Job", "default", "first-node-0"), "it has a Job")
        assert store.get("JobSet", "default", "first")["spec"]["suspend"]
        assert store.get("Job", "default", "first-node-0")["spec"]["suspend"]
        assert [w["metadata"]["name"].split("-")[0] for w in store.list("Workload")] == ["trainjob"]


async def test_preempted_job_loses_all_pods_and_runs_again_later(wait_until):
    async with lab("2") as store:
        priorities(store)
        train(store, "first", **{PRIORITY: "low"})
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first has its pods")
        job(store, "second", {"limits": {GPU: "1"}}, **{PRIORITY: "high"})
        await wait_until(lambda: spec(store, "first")["suspend"], "the first is preempted")
        await wait_until(lambda: pods(store, "first") == [], "its pods are gone")
        await wait_until(lambda: not is_suspended(store, "second"), "the second is admitted")
        await wait_until(lambda: len(pods(store, "second")) == 1, "the second has its pod")
        conditions = store.get("TrainJob", "default", "first")["status"]["conditions"]
        assert [(each["type"], each["status"]) for each in conditions] == [("Suspended", "True")]
        store.set_status(store.get("Pod", "default", pods(store, "second")[0]), {"phase": "Succeeded"})
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first runs again")
        assert admission(store, "second")[0] == "True"


async def test_finished_job_releases_its_quota(wait_until):
    async with lab("2") as store:
        train(store, "first")
        train(store, "second")
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first has its pods")
        for name in pods(store, "first"):
            store.set_status(store.get("Pod", "default", name), {"phase": "Succeeded"})
        await wait_until(lambda: not spec(store, "second")["suspend"], "the second is admitted")
        conditions = workload(store, "first")["status"]["conditions"]
        finished = next(each for each in conditions if each["type"] == "Finished")
        assert (finished["reason"], finished["message"]) == ("Succeeded", "jobset completed successfully")


async def test_job_without_its_runtime_is_preempted_once_it_has_one_again(wait_until):
    """Trainer's webhook refuses Kueue's suspension of it."""
    async with lab("2") as store:
        priorities(store)
        train(store, "first", **{PRIORITY: "low"})
        await wait_until(lambda: len(pods(store, "first")) == 2, "the first has its pods")
        store.delete("TrainingRuntime", "default", "torch")
        job(store, "second", {"limits": {GPU: "1"}}, **{PRIORITY: "high"})
        preempted = lambda: condition(workload(store, "first"), "Preempted")  # noqa: E731
        await wait_until(preempted, "it is to be preempted")
        assert not spec(store, "first")["suspend"]
        store.create(runtime_with_gpu())
        job(store, "third", {"limits": {GPU: "1"}})
        await wait_until(lambda: pods(store, "first") == [], "its pods are gone")


async def test_deleted_job_takes_its_workload_along(wait_until):
    async with lab("2") as store:
        train(store, "first")
        await wait_until(lambda: workload(store, "first"), "it has a Workload")
        store.delete("TrainJob", "default", "first")
        await wait_until(lambda: store.list("Workload") == [], "the Workload is gone")


async def test_queue_of_an_admitted_job_is_immutable(wait_until):
    async with lab("2") as store:
        train(store, "first")
        await wait_until(lambda: not spec(store, "first")["suspend"], "it is admitted")
        change = {"metadata": {"labels": {QUEUE: "other"}}}
        with pytest.raises(Refused, match=r'^admission webhook "vtrainjob.kb.io" denied the request'):
            store.patch("TrainJob", "default", "first", change)
