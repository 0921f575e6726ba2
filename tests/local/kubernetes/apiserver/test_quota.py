"""A namespace's quota, in the real plugin's words [06-job-over-pod-quota-events]."""

import pytest

from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import Store


def quota(store: Store, **hard: str) -> None:
    named = {key.replace("_", "."): value for key, value in hard.items()}
    meta = {"name": "q", "namespace": "default"}
    store.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": named}})


def pod(store: Store, name: str, **resources: dict[str, str]) -> None:
    containers = [{"name": "main", "image": "x", "resources": resources}]
    meta = {"name": name, "namespace": "default"}
    store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}})


def refusal(store: Store, **resources: dict[str, str]) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        pod(store, "late", **resources)
    return refused.value.code, str(refused.value)


def test_quota_counts_unfinished_pods_only() -> None:
    store = Store()
    quota(store, requests_memory="3Gi", pods="5")
    pod(store, "first", limits={"memory": "2Gi"})  # a request that isn't there is the limit
    code, message = refusal(store, requests={"memory": "1536Mi"})
    assert code == 403
    assert message == (
        'pods "late" is forbidden: exceeded quota: q, requested: requests.memory=1536Mi, '
        "used: requests.memory=2Gi, limited: requests.memory=3Gi"
    )
    store.set_status(
        {"kind": "Pod", "metadata": {"name": "first", "namespace": "default"}}, {"phase": "Failed"}
    )
    pod(store, "late", requests={"memory": "1536Mi"})


def test_quota_requires_limited_resources() -> None:
    store = Store()
    quota(store, limits_cpu="4", limits_memory="4Gi")
    assert refusal(store, requests={"cpu": "1"})[1].endswith(
        "failed quota: q: must specify limits.cpu for: main; limits.memory for: main"
    )
    pod(store, "late", limits={"cpu": "4", "memory": "1Gi"})


def test_quota_of_gpus_answers_as_recorded() -> None:
    store = Store()
    meta, hard = {"name": "q", "namespace": "default"}, {"requests.nvidia.com/gpu": "1"}
    store.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    pod(store, "without")
    assert refusal(store, limits={"nvidia.com/gpu": "8"})[1].endswith(
        "requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, "
        "limited: requests.nvidia.com/gpu=1"
    )
