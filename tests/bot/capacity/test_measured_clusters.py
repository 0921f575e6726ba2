"""The measurement in several clusters: what it reads, and what is stored."""

from datetime import timedelta

import pytest

from bot.capacity.measure import CapacityMeasurer
from bot.core.pace import CapacityRequest
from bot.storage.free_capacity import CapacityStore
from k8s.errors import ApiError
from tests.bot.capacity.test_nodes import GPU, LONG_AGO, a_node
from tests.bot.factories import CONFIG, NOW

REQUEST = CapacityRequest(sweep="mine", namespace="sweeps", gpus=2, resource=GPU, pod={}, at=NOW)
RUNNING = {
    "metadata": {"name": "p", "namespace": "sweeps", "creationTimestamp": LONG_AGO},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {GPU: "4"}}}]},
    "status": {"phase": "Running"},
}


class Cluster:
    """Has one node with eight GPUs, four of them in use. `forbidden`: kinds that can't be listed."""

    def __init__(self, *forbidden):
        self.forbidden, self.calls = forbidden, []

    async def list(self, kind, namespace, **_):
        self.calls.append(kind)
        if kind in self.forbidden:
            raise ApiError(403, "Forbidden", "no")
        return {"Node": [a_node("n1", 8)], "Pod": [RUNNING]}[kind]


def a_measurer(cluster, store):
    return CapacityMeasurer(cluster, store, "sweeps", lambda: CONFIG, lambda: NOW)


async def test_nothing_is_read_without_a_sweep_that_needs_it(redis):
    cluster = Cluster()
    await a_measurer(cluster, CapacityStore(redis)).measure_listed()
    assert cluster.calls == []


async def test_capacity_store_keeps_clusters_apart(redis):
    home, away = CapacityStore(redis), CapacityStore(redis).at("b")
    assert await away.register(REQUEST) is None
    await a_measurer(Cluster(), away).measure_listed()
    free = await away.register(REQUEST)
    assert (free.trials, free.steady) == (2, 0), "the second measurement must show it, too"
    await a_measurer(Cluster(), away).measure_listed()
    assert (await away.register(REQUEST)).steady == 2
    assert await home.register(REQUEST) is None


async def test_measure_without_permission_is_unknown(redis):
    store = CapacityStore(redis)
    await store.register(REQUEST)
    await a_measurer(Cluster("Node"), store).measure([])
    assert (await store.register(REQUEST)).trials is None


async def test_sweep_that_ended_is_forgotten(redis):
    store = CapacityStore(redis)
    await store.register(REQUEST)
    assert await store.requests(NOW + timedelta(minutes=9)) == [REQUEST]
    assert await store.requests(NOW + timedelta(minutes=10)) == []


@pytest.mark.parametrize(("sweep", "granted"), [("mine", True), ("other", False)])
async def test_only_one_sweep_grows_at_a_time(redis, sweep, granted):
    store = CapacityStore(redis)
    assert await store.take_turn("mine", GPU)
    assert await store.take_turn(sweep, GPU) is granted
    assert await store.take_turn(sweep, "another")
