"""What the measurement of room leaves out."""

from dataclasses import replace

import pytest

from bot.capacity.measure import RoomMeasurer
from bot.storage.rooms import RoomStore
from tests.bot.capacity.test_nodes import a_node, a_pod, a_want
from tests.bot.elastic.factories import LLM
from tests.bot.factories import CONFIG, NOW


class Nodes:
    async def list(self, kind, namespace, *, only=None):
        return [a_node("n1", 8)]


@pytest.mark.parametrize("node", ["n1", ""])
async def test_elastic_replicas_neither_hold_gpus_nor_wait_for_them(redis, node):
    store, config = RoomStore(redis), replace(CONFIG, elastic=(LLM,))
    measurer = RoomMeasurer(Nodes(), store, "sweeps", lambda: config, lambda: NOW)
    await store.room(a_want())
    pod = replace(a_pod("llm-7d9f8c6b5-x2x4z", 8, node), namespace=LLM.namespace)
    await measurer.measure([pod])
    assert [(room.now, room.short) for room in (await store.rooms()).values()] == [(8, 0)]
    await measurer.measure([replace(pod, name="notebook-0")])
    assert [room.now for room in (await store.rooms()).values()] == [0]
