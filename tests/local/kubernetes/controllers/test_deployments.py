"""Deployments scale as the real controllers do; the scheduler preempts by priority as the real one does."""

import asyncio

import pytest

from local.kubernetes import scheduler
from local.kubernetes.apiserver import scale
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.deployments import COST, Deployments
from tests.local.kubernetes.test_scheduler import GPU, node
from tests.settled import settled

LABELS = {"app": "llm"}


def deployment(replicas, **spec):
    main = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [main]} | spec}
    meta = {"name": "llm", "namespace": "serving"}
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def priority(name, value, **fields):
    meta = {"name": name}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": meta,
        "value": value,
    } | fields


@pytest.fixture
async def store():
    """A cluster whose controllers and scheduler run."""
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "serving"}})
    store.create(priority("low", -100))
    controllers = Deployments(store)
    controllers.start()
    task = asyncio.create_task(scheduler.run(store))
    await settled()
    yield store
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await controllers.close()


def pods(store):
    found = store.list("Pod", "serving", LABELS)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def start(store, name="user", gpus="1", **spec):
    main = {"name": "main", "image": "x", "resources": {"limits": {GPU: gpus}}}
    meta = {"name": name, "namespace": "serving"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [main]} | spec}
    return store.create(pod)


async def test_deployment_has_its_replicas_and_replaces_deleted_ones(store):
    node(store, "n", **{GPU: "4"})
    store.create(deployment(2))
    await settled()
    assert len(pods(store)) == 2
    store.delete("Pod", "serving", pods(store)[0]["metadata"]["name"], grace=0)
    await settled()
    assert len(pods(store)) == 2
    assert store.get("Deployment", "serving", "llm")["status"]["replicas"] == 2
    store.delete("Deployment", "serving", "llm")


async def test_deployment_that_is_invalid_is_rejected_and_scale_answers_as_the_api_does(store):
    store.create(deployment(2))
    found = scale.patch(store, "Deployment", "serving", "llm", {"spec": {"replicas": 0}})
    assert (found["kind"], found["spec"]) == ("Scale", {})
    assert found["status"]["selector"] == "app=llm"
    with pytest.raises(Refused, match="must be greater than or equal to 0"):
        scale.patch(store, "Deployment", "serving", "llm", {"spec": {"replicas": -1}})
    with pytest.raises(Refused, match="not found"):
        scale.patch(store, "Deployment", "serving", "asr", {})
    with pytest.raises(Refused, match="the object has been modified"):
        scale.patch(store, "Deployment", "serving", "llm", {"metadata": {"resourceVersion": "1"}})
    wrong = deployment(1)
    wrong["spec"]["selector"] = {"matchLabels": {"app": "asr"}}
    with pytest.raises(Refused, match="`selector` does not match template `labels`"):
        store.create(wrong)
    with pytest.raises(Refused, match='pods "user" is forbidden: no PriorityClass with name high was found'):
        start(store, priorityClassName="high")
    with pytest.raises(Refused, match="must not be provided in pod spec"):
        start(store, priority=7)
    assert start(store)["spec"]["preemptionPolicy"] == "PreemptLowerPriority"


async def test_lowered_deployment_loses_unassigned_pods_then_those_of_the_lowest_cost(store):
    node(store, "n", **{GPU: "2"})
    store.create(deployment(3))
    await settled()
    bound = [pod["metadata"]["name"] for pod in pods(store) if "nodeName" in pod["spec"]]
    store.patch("Pod", "serving", bound[1], {"metadata": {"annotations": {COST: "-1"}}})
    scale.patch(store, "Deployment", "serving", "llm", {"spec": {"replicas": 2}})
    await settled()
    assert [pod["metadata"]["name"] for pod in pods(store)] == bound
    scale.patch(store, "Deployment", "serving", "llm", {"spec": {"replicas": 1}})
    await settled()
    assert [pod["metadata"]["name"] for pod in pods(store)] == bound[:1]


async def test_pod_preempts_the_fewest_of_a_lower_priority(store):
    node(store, "a", **{GPU: "1"})
    node(store, "b", **{GPU: "3"})
    store.create(deployment(4, priorityClassName="low"))
    await settled()
    start(store, gpus="2")
    await settled()
    user = store.get("Pod", "serving", "user")
    assert user["status"]["nominatedNodeName"] == "b"
    leaving = [p for p in store.list("Pod", "serving", LABELS) if "deletionTimestamp" in p["metadata"]]
    assert [pod["spec"]["nodeName"] for pod in leaving] == ["b", "b"]
    reasons = {
        c["reason"] for pod in leaving for c in pod["status"]["conditions"] if c["type"] != "PodScheduled"
    }
    assert reasons == {"PreemptionByScheduler"}
    start(store, "late", priorityClassName="low")
    for pod in leaving:
        store.delete("Pod", "serving", pod["metadata"]["name"], grace=0)
    await settled()
    assert store.get("Pod", "serving", "user")["spec"]["nodeName"] == "b"
    assert "nodeName" not in store.get("Pod", "serving", "late")["spec"]


async def test_pod_that_never_preempts_waits(store):
    node(store, "a", **{GPU: "1"})
    store.create(priority("patient", 10, preemptionPolicy="Never"))
    store.create(deployment(1, priorityClassName="low"))
    await settled()
    start(store, priorityClassName="patient")
    await settled()
    user = store.get("Pod", "serving", "user")
    assert "nominatedNodeName" not in user["status"]
    assert "not eligible due to preemptionPolicy=Never" in user["status"]["conditions"][0]["message"]
    assert len(pods(store)) == 1
