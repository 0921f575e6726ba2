"""The measurement in several clusters: what it reads, and what is stored."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.pace import CapacityRequest
from bot.core.plan import HOME_CLUSTER
from bot.measure.capacity.measure import CapacityMeasurer
from bot.platform.storage.free_capacity import CapacityStore
from k8s.api.errors import ApiError
from tests.bot.factories import CONFIG, NOW
from tests.bot.factories import ELASTIC as LLM
from tests.bot.measure.capacity.test_nodes import GPU, LONG_AGO, a_node, a_pod, listing

REQUEST = CapacityRequest(sweep="mine", namespace="sweeps", gpus=2, resource=GPU, pod={}, at=NOW)
RUNNING = {
    "metadata": {"name": "p", "namespace": "sweeps", "creationTimestamp": LONG_AGO},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {GPU: "4"}}}]},
    "status": {"phase": "Running"},
}


class Cluster:
    """Has one node with eight GPUs, four of them in use. `without`: kinds that it rejects with `status`."""

    def __init__(self, *without, status=403):
        self.without, self.status, self.calls = without, status, []

    async def list(self, kind, namespace, **_):
        self.calls.append(kind)
        if kind in self.without:
            raise ApiError(self.status, "Status", "no")
        return {"Node": [a_node("n1", 8)], "Pod": [RUNNING], "ResourceSlice": []}[kind]


def a_measurer(cluster, store):
    return CapacityMeasurer(cluster, store, "sweeps", lambda: CONFIG, lambda: NOW)


async def test_nothing_is_read_without_a_sweep_that_needs_it(redis):
    cluster, store = Cluster(), CapacityStore(redis)
    await a_measurer(cluster, store).measure_listed()
    await store.register(replace(REQUEST, auto=False, started=True))
    await a_measurer(cluster, store).measure_listed()
    assert cluster.calls == []
    await store.register(replace(REQUEST, auto=False, started=False))
    await a_measurer(cluster, store).measure_listed()
    assert cluster.calls == ["ResourceSlice", "Pod", "Node"]


async def test_capacity_store_keeps_clusters_apart(redis):
    home, away = CapacityStore(redis), CapacityStore(redis).at("b")
    assert await away.register(REQUEST) is None
    await a_measurer(Cluster(), away).measure_listed()
    free = await away.register(REQUEST)
    assert (free.trials, free.steady) == (2, 0), "the second measurement must show it, too"
    await a_measurer(Cluster(), away).measure_listed()
    assert (await away.register(REQUEST)).steady == 2
    assert await home.register(REQUEST) is None


async def test_pod_named_like_an_elastic_replica_counts_in_another_cluster(redis):
    store, config = CapacityStore(redis), replace(CONFIG, elastic=(LLM,))
    await store.register(REQUEST)
    replica = replace(a_pod("llm-7d9f8c6b5-x2x4z", 8, "n1"), namespace=LLM.namespace)
    for cluster, trials in ((HOME_CLUSTER, 4), ("b", 0)):
        measurer = CapacityMeasurer(Cluster(), store, "sweeps", lambda: config, lambda: NOW, cluster)
        await measurer.measure(listing([replica]))
        assert (await store.register(REQUEST)).trials == trials


async def test_measure_without_permission_is_unknown_and_without_kueue_counts_nodes_only(redis):
    store = CapacityStore(redis)
    several = replace(REQUEST, pods=2)
    await store.register(several)
    await a_measurer(Cluster("Node"), store).measure(listing([]))
    free = await store.register(several)
    assert (free.trials, free.gpus) == (None, 4)
    await store.register(replace(REQUEST, queue="research"))
    await a_measurer(Cluster("ClusterQueue", status=404), store).measure_listed()
    assert (await store.register(REQUEST)).trials == 2


async def test_steady_capacity_is_none_once_nothing_is_free_or_the_sweep_has_ended(redis):
    store = CapacityStore(redis)
    await store.register(REQUEST)
    await a_measurer(Cluster(), store).measure_listed()
    await a_measurer(Cluster(), store).measure(listing([a_pod("all", 8, "n1")]))
    free = await store.register(REQUEST)
    assert (free.trials, free.steady) == (0, 0)
    await store.register(REQUEST)
    assert await store.requests(NOW + timedelta(minutes=9)) == [REQUEST]
    assert await store.requests(NOW + timedelta(minutes=10)) == []


@pytest.mark.parametrize(("sweep", "granted"), [("mine", True), ("other", False)])
async def test_only_one_sweep_grows_at_a_time(redis, sweep, granted):
    store = CapacityStore(redis)
    assert await store.lock_growth("mine", GPU)
    assert await store.lock_growth(sweep, GPU) is granted
    assert await store.lock_growth(sweep, "another")


async def test_start_lock_is_released_by_its_holder_only(redis):
    store, elsewhere = CapacityStore(redis), CapacityStore(redis, "b")
    assert await store.lock_starts("mine")
    assert await store.lock_starts("mine"), "by the sweep's next worker"
    assert not await store.lock_starts("other")
    assert await elsewhere.lock_starts("other"), "each cluster has its own"
    await redis.flushall()  # as after START_LOCK
    assert not await store.has_start_lock("mine")
    assert await store.lock_starts("other")
    await store.unlock_starts("mine")
    assert await store.has_start_lock("other")
    await store.unlock_starts("other")
    assert await store.lock_starts("mine")
