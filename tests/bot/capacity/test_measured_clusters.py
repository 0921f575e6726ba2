"""The measurement in several clusters: what it reads, and what is stored."""

from datetime import timedelta

import pytest

from bot.capacity.measure import RoomMeasurer
from bot.core.pace import Want
from bot.storage.rooms import RoomStore
from k8s.errors import ApiError
from tests.bot.capacity.test_nodes import GPU, LONG_AGO, a_node
from tests.bot.factories import CONFIG, NOW

WANT = Want(sweep="mine", namespace="sweeps", gpus=2, resource=GPU, pod={}, at=NOW)
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
    return RoomMeasurer(cluster, store, "sweeps", lambda: CONFIG, lambda: NOW)


async def test_nothing_is_read_without_a_sweep_that_needs_it(redis):
    cluster = Cluster()
    await a_measurer(cluster, RoomStore(redis)).measure_listed()
    assert cluster.calls == []


async def test_room_is_stored_for_each_cluster_apart(redis):
    home, away = RoomStore(redis), RoomStore(redis).at("b")
    assert await away.room(WANT) is None
    await a_measurer(Cluster(), away).measure_listed()
    room = await away.room(WANT)
    assert (room.now, room.fits) == (2, 0), "the second measurement must show it, too"
    await a_measurer(Cluster(), away).measure_listed()
    assert (await away.room(WANT)).fits == 2
    assert await home.room(WANT) is None


async def test_room_without_permission_is_unknown(redis):
    store = RoomStore(redis)
    await store.room(WANT)
    await a_measurer(Cluster("Node"), store).measure([])
    assert (await store.room(WANT)).now is None


async def test_sweep_that_ended_is_forgotten(redis):
    store = RoomStore(redis)
    await store.room(WANT)
    assert await store.wants(NOW + timedelta(minutes=9)) == [WANT]
    assert await store.wants(NOW + timedelta(minutes=10)) == []


@pytest.mark.parametrize(("sweep", "granted"), [("mine", True), ("other", False)])
async def test_only_one_sweep_grows_at_a_time(redis, sweep, granted):
    store = RoomStore(redis)
    assert await store.take_turn("mine", GPU)
    assert await store.take_turn(sweep, GPU) is granted
    assert await store.take_turn(sweep, "another")
