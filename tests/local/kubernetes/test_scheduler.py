"""The local scheduler excludes nodes as the real one does, and prefers those with the preferred pods."""

import asyncio

import pytest

from local.kubernetes import scheduler
from local.kubernetes.apiserver.store import Store
from tests.settled import settled

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


def node(store, name, labels=None, taints=(), **sizes):
    meta = {"name": name, "labels": labels or {}}
    made = store.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [*taints]}})
    store.set_status(made, {"allocatable": sizes or {GPU: "4"}})


async def scheduled(store, labels=None, limits=None, **spec):
    """Return the node of a new pod, or why it has none."""
    meta = {"generateName": "p-", "namespace": "sweeps", "labels": labels or {}}
    main = {"name": "main", "image": "x", "resources": {"limits": limits or {GPU: "1"}}}
    spec |= {"containers": [main]}
    pod = store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    task = asyncio.create_task(scheduler.run(store))
    await settled()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    pod = store.get("Pod", "sweeps", pod["metadata"]["name"])
    return (
        pod["spec"].get("nodeName") or pod["status"]["conditions"][0]["message"].partition(". preemption")[0]
    )


@pytest.fixture
def store():
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    return store


def required(*values):
    expressions = [{"key": "gpu", "operator": "In", "values": [*values]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


async def test_scheduler_obeys_required_node_affinity(store):
    node(store, "a", {"gpu": "a100"})
    node(store, "h", {"gpu": "h100"})
    assert await scheduled(store, affinity=required("h100", "h200")) == "h"
    assert await scheduled(store, affinity=required("v100")) == (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector"
    )


async def test_scheduler_obeys_taints(store):
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    node(store, "reserved", taints=[taint])
    assert await scheduled(store) == (
        "0/1 nodes are available: 1 node(s) had untolerated taint {team: vision}"
    )
    assert await scheduled(store, tolerations=[{"key": "team", "value": "vision"}]) == "reserved"
    assert await scheduled(store, tolerations=[{"operator": "Exists"}]) == "reserved"


async def test_scheduler_counts_each_device(store):
    node(store, "n", **{GPU: "2", MIG: "1"})
    assert await scheduled(store, limits={MIG: "1"}) == "n"
    assert await scheduled(store, limits={MIG: "1"}) == f"0/1 nodes are available: 1 Insufficient {MIG}"
    assert await scheduled(store, limits={GPU: "2"}) == "n"


async def test_scheduler_prefers_nodes_with_preferred_pods(store):
    node(store, "a")
    node(store, "b")
    await scheduled(store, labels={"sweepbot/sweep": "s"}, nodeSelector={}, limits={GPU: "1"})
    taken = store.list("Pod")[0]["spec"]["nodeName"]
    selector = {"matchExpressions": [{"key": "sweepbot/sweep", "operator": "Exists"}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert await scheduled(store, affinity=affinity) == taken
    assert await scheduled(store, affinity=affinity, limits={GPU: "4"}) != taken
