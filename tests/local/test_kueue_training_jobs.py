"""PyTorchJobs and TrainJobs in the local world's Kueue: all pods of one are admitted together, or none."""

from contextlib import asynccontextmanager

import pytest

from local import trainer, training_operator
from local.kubernetes.apiserver.kinds import Refused
from local.kueue.workloads import PRIORITY, QUEUE, condition
from tests.local.test_kueue import GPU, GPUS, admission, cluster, is_suspended, job, priorities
from tests.local.trainer.conftest import train_job, training_runtime
from tests.local.training_jobs import started
from tests.local.training_operator.conftest import pytorch_job


class Lab:
    """A cluster with a queue, the operator of one kind of job, and jobs with one GPU for each pod."""

    def __init__(self, store):
        self.store = store

    def train(self, name, pods=2, **labels):
        made = self.job(name, pods)
        made["metadata"]["labels"] = labels
        self.store.create(made)

    def spec(self, name):
        return self.store.get(self.kind, "default", name)["spec"]

    def workload(self, name):
        found = self.store.list("Workload", "default")
        return next((w for w in found if w["metadata"]["ownerReferences"][0]["name"] == name), None)

    def message(self, name):
        return condition(self.workload(name), "QuotaReserved")["message"]

    def pods(self, name):
        found = [pod["metadata"]["name"] for pod in self.store.list("Pod")]
        return [each for each in found if each.startswith(f"{name}-")]

    def succeeds(self, *pods):
        for pod in pods:
            self.store.set_status(self.store.get("Pod", "default", pod), {"phase": "Succeeded"})


class PyTorchLab(Lab):
    kind, pod_sets = "PyTorchJob", [("master", 1), ("worker", 1)]
    preempted = (("Created", "True"), ("Suspended", "True"))
    end = "PyTorchJob first is successfully completed."

    def operator(self):
        training_operator.install(self.store)
        return training_operator.TrainingOperator(self.store)

    def job(self, name, pods):
        made = pytorch_job(name, pods - 1)
        for replica in made["spec"]["pytorchReplicaSpecs"].values():
            replica["template"]["spec"]["containers"][0]["resources"] = GPUS
        return made

    def waits(self, name):
        return self.spec(name)["runPolicy"]["suspend"]

    def deciding_pods(self, name):
        """Return the pods whose success ends the job."""
        return [f"{name}-master-0"]


class TrainJobLab(Lab):
    kind, pod_sets = "TrainJob", [("node", 2)]
    preempted = (("Suspended", "True"),)
    end = "jobset completed successfully"

    def operator(self):
        trainer.install(self.store)
        # Kueue's webhook adds its patch after Trainer's has seen the job: it doesn't object to it.
        made = trainer.Trainer(self.store)
        self.create_runtime()
        return made

    def create_runtime(self):
        made = training_runtime()
        [replicated] = made["spec"]["template"]["spec"]["replicatedJobs"]
        replicated["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = GPUS
        self.store.create(made)

    def job(self, name, pods):
        return train_job(name, pods)

    def waits(self, name):
        return self.spec(name)["suspend"]

    def deciding_pods(self, name):
        return self.pods(name)


@asynccontextmanager
async def lab(kind, gpus):
    async with cluster(gpus) as store:
        here = kind(store)
        async with started(here.operator()):
            yield here


@pytest.fixture(params=[PyTorchLab, TrainJobLab], ids=lambda kind: kind.kind)
def kind(request):
    return request.param


async def test_job_is_one_workload_that_is_admitted_as_a_whole(kind, wait_until):
    async with lab(kind, "3") as here:
        here.train("first")
        await wait_until(lambda: len(here.pods("first")) == 2, "both pods are there")
        made = here.workload("first")
        assert made["metadata"]["name"].startswith(f"{here.kind.lower()}-first-")
        assert [(each["name"], each["count"]) for each in made["spec"]["podSets"]] == here.pod_sets
        here.train("second")
        await wait_until(lambda: here.workload("second"), "the second has a Workload")
        last, _ = here.pod_sets[-1]
        assert here.message("second") == (
            f"couldn't assign flavors to pod set {last}: insufficient unused quota for {GPU} in "
            "flavor a100, 1 more needed"
        )
        assert here.waits("second")
        assert here.pods("second") == []


async def test_preempted_job_loses_all_pods_and_runs_again_later(kind, wait_until):
    async with lab(kind, "2") as here:
        store = here.store
        priorities(store)
        here.train("first", **{PRIORITY: "low"})
        await wait_until(lambda: len(here.pods("first")) == 2, "the first has its pods")
        job(store, "second", GPUS, **{PRIORITY: "high"})
        await wait_until(lambda: here.waits("first"), "the first is preempted")
        await wait_until(lambda: here.pods("first") == [], "its pods are gone")
        await wait_until(lambda: not is_suspended(store, "second"), "the second is admitted")
        await wait_until(lambda: len(here.pods("second")) == 1, "the second has its pod")
        conditions = store.get(here.kind, "default", "first")["status"]["conditions"]
        assert tuple((each["type"], each["status"]) for each in conditions) == here.preempted
        here.succeeds(*here.pods("second"))
        await wait_until(lambda: len(here.pods("first")) == 2, "the first runs again")
        assert admission(store, "second")[0] == "True"


async def test_finished_job_releases_its_quota(kind, wait_until):
    async with lab(kind, "2") as here:
        here.train("first")
        here.train("second")
        await wait_until(lambda: len(here.pods("first")) == 2, "the first has its pods")
        here.succeeds(*here.deciding_pods("first"))
        await wait_until(lambda: not here.waits("second"), "the second is admitted")
        finished = condition(here.workload("first"), "Finished")
        assert (finished["reason"], finished["message"]) == ("Succeeded", here.end)


async def test_deleted_job_takes_its_workload_along(kind, wait_until):
    async with lab(kind, "2") as here:
        here.train("first")
        await wait_until(lambda: here.workload("first"), "it has a Workload")
        here.store.delete(here.kind, "default", "first")
        await wait_until(lambda: here.store.list("Workload") == [], "the Workload is gone")


async def test_queue_of_an_admitted_job_is_immutable(kind, wait_until):
    async with lab(kind, "2") as here:
        here.train("first")
        await wait_until(lambda: not here.waits("first"), "it is admitted")
        change = {"metadata": {"labels": {QUEUE: "other"}}}
        denied = rf'^admission webhook "v{here.kind.lower()}.kb.io" denied the request'
        with pytest.raises(Refused, match=denied):
            here.store.patch(here.kind, "default", "first", change)


async def test_each_pod_set_that_lacks_quota_is_named(wait_until):
    async with lab(PyTorchLab, "2") as here:
        here.train("first")
        await wait_until(lambda: not here.waits("first"), "the first is admitted")
        here.train("second")
        await wait_until(lambda: here.workload("second"), "the second waits")
        start = "couldn't assign flavors to pod set"
        lack = "insufficient unused quota for nvidia.com/gpu in flavor a100"
        assert (
            here.message("second")
            == f"{start} master: {lack}, 1 more needed; {start} worker: {lack}, 2 more needed"
        )


async def test_job_above_the_quota_never_fits(wait_until):
    async with lab(PyTorchLab, "2") as here:
        here.train("big", pods=4)
        await wait_until(lambda: here.workload("big"), "it waits")
        assert here.message("big").endswith(
            "previously considered podsets requests (1) + current podset request (3) > maximum capacity (2)"
        )


async def test_admitted_train_job_gets_a_patch_of_its_runtime(wait_until):
    async with lab(TrainJobLab, "2") as here:
        here.train("first")
        await wait_until(lambda: len(here.pods("first")) == 2, "both pods are there")
        [patch] = here.spec("first")["runtimePatches"]
        assert patch["manager"] == "kueue.x-k8s.io/manager"
        [patched] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        assert patched["name"] == "node"
        assert "runtimePatches" not in here.store.get("JobSet", "default", "first")["spec"]


async def test_waiting_train_job_has_a_suspended_job_set(wait_until):
    async with lab(TrainJobLab, "1") as here:
        here.train("first")
        await wait_until(lambda: here.store.get("Job", "default", "first-node-0"), "it has a Job")
        assert here.store.get("JobSet", "default", "first")["spec"]["suspend"]
        assert here.store.get("Job", "default", "first-node-0")["spec"]["suspend"]
        assert [w["metadata"]["name"].split("-")[0] for w in here.store.list("Workload")] == ["trainjob"]


async def test_train_job_without_its_runtime_is_preempted_once_it_has_one_again(wait_until):
    """Trainer's webhook refuses Kueue's suspension of it."""
    async with lab(TrainJobLab, "2") as here:
        priorities(here.store)
        here.train("first", **{PRIORITY: "low"})
        await wait_until(lambda: len(here.pods("first")) == 2, "the first has its pods")
        here.store.delete("TrainingRuntime", "default", "torch")
        job(here.store, "second", GPUS, **{PRIORITY: "high"})
        preempted = lambda: condition(here.workload("first"), "Preempted")  # noqa: E731
        await wait_until(preempted, "it is to be preempted")
        assert not here.waits("first")
        here.create_runtime()
        job(here.store, "third", GPUS)
        await wait_until(lambda: here.pods("first") == [], "its pods are gone")
