"""Kueue in the local world: what it suspends, reports, and releases [katib/08-B-workloads]."""

from contextlib import asynccontextmanager

import pytest

from local import kueue
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers
from local.kueue.status import pending
from local.kueue.workloads import PRIORITY, QUEUE

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
    quota(store, "team-cq", gpus, preemption={"withinClusterQueue": "LowerPriority"})
    make(store, "LocalQueue", "default", clusterQueue="team-cq")
    parts = kueue.Kueue(store), Controllers(store)
    for part in parts:
        part.start()
    try:
        yield store
    finally:
        for part in parts:
            await part.close()


def quota(store, name, gpus, limits=None, **spec):
    resources = [{"name": GPU, "nominalQuota": gpus} | (limits or {})]
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": resources}]}
    make(store, "ClusterQueue", name, resourceGroups=[group], **spec)


def priorities(store):
    for name, value in {"low": 10, "high": 1000}.items():
        head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass"}
        store.create({**head, "metadata": {"name": name}, "value": value})


def make(store, kind, name, **spec):
    meta = {"name": name, "namespace": "default"} if kind != "ClusterQueue" else {"name": name}
    store.create({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec})


def job(store, name, resources, **labels):
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    meta = {"name": name, "namespace": "default", "labels": labels}
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


async def test_job_without_a_local_queue_is_not_managed_and_the_kinds_are_served():
    async with cluster("1") as store:
        store.delete("LocalQueue", "default", "default")
        job(store, "free", GPUS)
        assert not store.get("Job", "default", "free")["spec"]["suspend"]
    store = Store()
    assert "Workload" not in {kind.name for kind in store.kinds()}
    kueue.install(store)
    assert "Workload" in {kind.name for kind in store.kinds()}


def workload(store, name):
    uid = store.get("Job", "default", name)["metadata"]["uid"]
    return next(iter(store.list("Workload", "default", {"kueue.x-k8s.io/job-uid": uid})), None)


def condition(store, name, type_):
    conditions = workload(store, name)["status"]["conditions"]
    return next(((c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == type_), ())


def is_suspended(store, name):
    return store.get("Job", "default", name)["spec"]["suspend"]


async def test_higher_priority_preempts_a_lower_one_which_runs_again_later(wait_until):
    async with cluster("1") as store:
        priorities(store)
        job(store, "first", GPUS, **{PRIORITY: "low"})
        await wait_until(lambda: len(store.list("Pod")) == 1, "the first has its pod")
        job(store, "second", GPUS, **{PRIORITY: "high"})
        await wait_until(lambda: is_suspended(store, "first"), "the first is preempted")
        await wait_until(lambda: not is_suspended(store, "second"), "the second is admitted")
        status, reason, message = condition(store, "first", "Preempted")
        uid = store.get("Job", "default", "second")["metadata"]["uid"]
        assert (status, reason) == ("True", "InClusterQueue")
        assert f"JobUID: {uid}) due to prioritization in the ClusterQueue" in message
        assert condition(store, "first", "Evicted")[:2] == ("True", "Preempted")
        await wait_until(lambda: owners(store) == ["second"], "only the second has a pod")
        [pod] = store.list("Pod")
        store.set_status(pod, {"phase": "Succeeded"})
        await wait_until(lambda: not is_suspended(store, "first"), "the first is admitted again")
        assert condition(store, "first", "Evicted")[:2] == ("False", "QuotaReserved")
        assert "Failed" not in str(store.get("Job", "default", "first")["status"])


def owners(store):
    return [pod["metadata"]["ownerReferences"][0]["name"] for pod in store.list("Pod")]


async def test_labels_change_while_suspended_and_are_immutable_once_admitted(wait_until):
    async with cluster("1") as store:
        priorities(store)
        make(store, "LocalQueue", "other", clusterQueue="team-cq")
        job(store, "first", GPUS, **{PRIORITY: "high"})
        await wait_until(lambda: not is_suspended(store, "first"), "the first is admitted")
        for label, value in ((QUEUE, "other"), (PRIORITY, "low")):
            with pytest.raises(Refused) as refused:
                store.patch("Job", "default", "first", {"metadata": {"labels": {label: value}}})
            denied = 'admission webhook "vjob.kb.io" denied the request: metadata.labels'
            assert str(refused.value) == f'{denied}[{label}]: Invalid value: "{value}": field is immutable'
            assert (refused.value.code, refused.value.body["reason"]) == (403, "Forbidden")
        job(store, "second", GPUS, **{PRIORITY: "low"})
        await wait_until(lambda: workload(store, "second"), "the second waits")
        store.patch("Job", "default", "second", {"metadata": {"labels": {QUEUE: "other", PRIORITY: "high"}}})
        await wait_until(lambda: workload(store, "second")["spec"]["queueName"] == "other", "it moved")
        assert workload(store, "second")["spec"]["priority"] == 1000


async def test_inactive_workload_leaves_the_queue_until_it_is_active_again(wait_until):
    async with cluster("1") as store:
        job(store, "first", GPUS)
        await wait_until(lambda: not is_suspended(store, "first"), "it is admitted")
        name = workload(store, "first")["metadata"]["name"]
        store.patch("Workload", "default", name, {"spec": {"active": False}})
        await wait_until(lambda: is_suspended(store, "first"), "it is evicted")
        assert condition(store, "first", "Evicted")[:2] == ("True", "Deactivated")
        assert pending(store, "default", "default")["items"] == []
        store.patch("Workload", "default", name, {"spec": {"active": True}})
        await wait_until(lambda: not is_suspended(store, "first"), "it is admitted again")


async def test_unknown_priority_class_leaves_no_workload_and_no_event(wait_until):
    async with cluster("1") as store:
        job(store, "lost", GPUS, **{PRIORITY: "nope"})
        job(store, "known", GPUS)
        await wait_until(lambda: not is_suspended(store, "known"), "the other is admitted")
        assert workload(store, "lost") is None
        assert is_suspended(store, "lost")


async def test_unsuspending_a_queued_job_by_hand_is_undone(wait_until):
    async with cluster("1") as store:
        job(store, "big", {"limits": {GPU: "8"}})
        await wait_until(lambda: workload(store, "big"), "it waits")
        store.patch("Job", "default", "big", {"spec": {"suspend": False}})
        await wait_until(lambda: is_suspended(store, "big"), "it is suspended again")


async def test_queue_without_quota_borrows_from_its_cohort(wait_until):
    async with cluster("1") as store:
        store.patch("ClusterQueue", "", "team-cq", {"spec": {"cohort": "lab"}})
        quota(store, "other-cq", "1", cohort="lab")
        for name in ("first", "second", "third"):
            job(store, name, GPUS)
        await wait_until(lambda: len(store.list("Pod")) == 2, "two have pods")

        def used():
            return store.get("ClusterQueue", "", "team-cq")["status"]["flavorsUsage"][0]["resources"]

        borrows = [{"name": GPU, "total": "2", "borrowed": "1"}]
        await wait_until(lambda: used() == borrows, "the queue reports what it borrows")
        [waiting] = pending(store, "default", "default")["items"]
        assert (waiting["positionInLocalQueue"], waiting["positionInClusterQueue"]) == (0, 0)


@pytest.mark.parametrize(("lends", "pods"), [({}, 3), ({"lendingLimit": "1"}, 2), ({"lendingLimit": "0"}, 1)])
async def test_queue_borrows_no_more_than_the_lending_limit(wait_until, lends, pods):
    async with cluster("1") as store:
        store.patch("ClusterQueue", "", "team-cq", {"spec": {"cohort": "lab"}})
        quota(store, "other-cq", "2", lends, cohort="lab")
        for number in range(4):
            job(store, f"job-{number}", GPUS)
        await wait_until(lambda: len(pending(store, "default", "default")["items"]) == 4 - pods, "they wait")
        job(store, "large", {"limits": {GPU: "4"}})
        await wait_until(lambda: admission(store, "large"), "it is refused")
        assert f"maximum capacity ({pods})" in admission(store, "large")[1]


def active(store):
    [found] = store.get("LocalQueue", "default", "default")["status"]["conditions"]
    return found["status"], found["reason"]


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "reason"),
    [
        ("ClusterQueue", "", "team-cq", "ClusterQueueIsInactive"),
        ("LocalQueue", "default", "default", "Stopped"),
    ],
)
async def test_stopped_queue_admits_nothing(wait_until, kind, namespace, name, reason):
    async with cluster("1") as store:
        store.patch(kind, namespace, name, {"spec": {"stopPolicy": "Hold"}})
        job(store, "first", GPUS)
        await wait_until(lambda: workload(store, "first"), "it waits")
        why = ("Inadmissible", f"{kind} {name} is inactive")
        assert condition(store, "first", "QuotaReserved")[1:] == why
        await wait_until(lambda: active(store)[0] == "False", "its LocalQueue is inactive")
        assert active(store) == ("False", reason)
