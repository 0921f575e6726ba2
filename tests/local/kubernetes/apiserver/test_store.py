"""The store in-process: versions, admission, deletion, subscriptions, events."""

import asyncio
from typing import Any

import pytest

from local.kubernetes.apiserver.kinds import refusal
from local.kubernetes.apiserver.store import Refused, Store

Object = dict[str, Any]


def experiment(name: str = "lr", **spec: Any) -> Object:
    meta = {"name": name, "namespace": "kaniko"}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": meta, "spec": spec}


def pod(name: str = "p", **meta: Any) -> Object:
    spec = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}
    meta = {"name": name, "namespace": "kaniko", **meta}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_generation_counts_spec_changes_only(store: Store) -> None:
    store.create(experiment(maxTrialCount=1))
    store.patch("Experiment", "kaniko", "lr", {"metadata": {"labels": {"a": "b"}}})
    store.patch("Experiment", "kaniko", "lr", {"status": {"trials": 1}}, subresource="status")
    after = store.patch("Experiment", "kaniko", "lr", {"spec": {"maxTrialCount": 2}})
    assert after["metadata"]["generation"] == 2
    assert after["status"] == {"trials": 1}


def test_patch_of_the_main_resource_and_of_the_status_are_separate(store: Store) -> None:
    store.create(experiment(maxTrialCount=1))
    store.patch("Experiment", "kaniko", "lr", {"status": {"trials": 9}})
    both = {"status": {"trials": 1}, "spec": {"maxTrialCount": 7}}
    after = store.patch("Experiment", "kaniko", "lr", both, subresource="status")
    assert (after["spec"], after["status"]) == ({"maxTrialCount": 1}, {"trials": 1})


def test_patch_without_changes_writes_nothing(store: Store) -> None:
    before = store.create(experiment(maxTrialCount=1))
    assert store.patch("Experiment", "kaniko", "lr", {"spec": {"maxTrialCount": 1}}) == before


def test_store_returns_copies(store: Store) -> None:
    store.create(experiment(maxTrialCount=1))["spec"]["maxTrialCount"] = 99
    store.list("Experiment")[0]["spec"]["maxTrialCount"] = 99
    assert store.list("Experiment")[0]["spec"] == {"maxTrialCount": 1}


def test_admission_sees_creations_without_uid_and_spec_changes_with_uid(store: Store) -> None:
    seen = []

    def hook(obj: Object) -> Object:
        seen.append("uid" in obj["metadata"])
        return {**obj, "spec": {"resumePolicy": "Never", **obj["spec"]}}

    store.admission("Experiment", hook)
    assert store.create(experiment())["spec"] == {"resumePolicy": "Never"}
    store.patch("Experiment", "kaniko", "lr", {"metadata": {"annotations": {"a": "b"}}})
    store.patch("Experiment", "kaniko", "lr", {"spec": {"maxTrialCount": 2}})
    assert seen == [False, True]


def test_admission_rejection_stores_nothing(store: Store) -> None:
    def hook(_obj: Object) -> Object:
        raise refusal(400, "denied")

    store.admission("Experiment", hook)
    with pytest.raises(Refused, match="denied"):
        store.create(experiment())
    assert store.list("Experiment") == []


def test_finalizer_keeps_a_deleted_object(store: Store) -> None:
    kept = experiment()
    kept["metadata"]["finalizers"] = ["example.com/hold"]
    store.create(kept)
    assert "deletionTimestamp" in store.delete("Experiment", "kaniko", "lr")["metadata"]
    store.patch("Experiment", "kaniko", "lr", {"metadata": {"finalizers": None}})
    assert store.get("Experiment", "kaniko", "lr") is None


def test_delete_running_pod_waits_for_its_kubelet(store: Store) -> None:
    store.create(pod())
    store.patch("Pod", "kaniko", "p", {"spec": {"nodeName": "n1"}})
    store.patch("Pod", "kaniko", "p", {"status": {"phase": "Running"}}, subresource="status")
    assert store.delete("Pod", "kaniko", "p")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert store.delete("Pod", "kaniko", "p", grace=5)["metadata"]["deletionGracePeriodSeconds"] == 5
    store.delete("Pod", "kaniko", "p", grace=0)
    assert store.get("Pod", "kaniko", "p") is None


@pytest.mark.parametrize(("node", "phase"), [(None, "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
def test_delete_pod_that_does_not_run_removes_it_at_once(store: Store, node: str | None, phase: str) -> None:
    store.create(pod())
    if node:
        store.patch("Pod", "kaniko", "p", {"spec": {"nodeName": node}})
    store.patch("Pod", "kaniko", "p", {"status": {"phase": phase}}, subresource="status")
    store.delete("Pod", "kaniko", "p")
    assert store.get("Pod", "kaniko", "p") is None


def test_pod_keeps_its_node_and_command(store: Store) -> None:
    store.create(pod())
    store.patch("Pod", "kaniko", "p", {"spec": {"nodeName": "n1"}})
    for change in ({"nodeName": "n2"}, {"containers": [{"name": "c", "image": "x", "command": ["sh"]}]}):
        with pytest.raises(Refused, match="the local cluster changes no spec of a Pod"):
            store.patch("Pod", "kaniko", "p", {"spec": change})


def test_size_limits_are_enforced(store: Store) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "kaniko"}}
    store.create({**config, "data": {"a": "x" * 1024 * 1024}})
    with pytest.raises(Refused, match="Too long: may not be more than 1048576 bytes"):
        store.patch("ConfigMap", "kaniko", "c", {"data": {"b": "x"}})
    with pytest.raises(Refused, match="Too long: may not be more than 1048576 bytes"):
        store.patch("ConfigMap", "kaniko", "c", {"binaryData": {"b": "AA=="}})
    store.create(experiment())
    with pytest.raises(Refused, match=r"metadata.annotations: Too long: may not be more than 262144 bytes"):
        store.patch("Experiment", "kaniko", "lr", {"metadata": {"annotations": {"a": "x" * 262144}}})


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}, "must be equal to"),
        ({"requests": {"nvidia.com/gpu": "1"}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {"memory": "4 GB"}}, "quantities must match the regular expression"),
    ],
)
def test_invalid_resources_are_rejected(store: Store, resources: Object, why: str) -> None:
    asking = pod()
    asking["spec"]["containers"][0]["resources"] = resources
    with pytest.raises(Refused, match=why):
        store.create(asking)


def test_repeated_event_is_counted(store: Store) -> None:
    about = store.create(pod())
    for _ in range(3):
        store.record_event(about, "Warning", "FailedScheduling", "0/2 nodes are available", "scheduler")
    store.record_event(about, "Normal", "Scheduled", "at last", "scheduler")
    assert sorted((e["reason"], e["count"]) for e in store.list("Event")) == [
        ("FailedScheduling", 3),
        ("Scheduled", 1),
    ]


async def test_subscriber_gets_existing_objects_and_changes(store: Store) -> None:
    store.create(pod("first"))
    received = []

    async def listen() -> None:
        async for type_, obj in store.subscribe("Pod"):
            received.append((type_, obj["metadata"]["name"]))
            if len(received) == 1:
                store.create(pod("second"))
                store.create(experiment())
                store.delete("Pod", "kaniko", "second")
            if received[-1] == ("DELETED", "second"):
                return

    await asyncio.wait_for(listen(), 200)
    changes = [("ADDED", "first"), ("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "second")]
    assert received == changes


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "must be a DNS name, not an IP address"),
        ("::1", "must be a DNS name, not an IP address"),
        ("Lab.example", "a lowercase RFC 1123 subdomain"),
    ],
)
def test_ingress_for_an_address_is_refused(store: Store, host: str, why: str) -> None:
    meta = {"name": "i", "namespace": "kaniko"}
    made = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta}
    with pytest.raises(Refused) as refused:
        store.create(made | {"spec": {"rules": [{"host": host}]}})
    assert f'spec.rules[0].host: Invalid value: "{host}": {why}' in str(refused.value)
    store.create(made | {"spec": {"rules": [{"host": "*.lab.example"}, {"host": "localhost"}]}})
