"""Free GPUs of other clusters, below the answer of `/gpus`."""

import pytest

from bot.home.other_clusters import ClusterGpus, gpus_elsewhere, with_other_clusters
from k8s.errors import ApiError
from tests.bot.launch.test_cluster_choice import add, node, pod
from tests.scenarios.sweep_in_memory import Clock
from tests.scenarios.two_clusters import TwoClusters


@pytest.fixture
async def two(redis):
    simulation = TwoClusters(redis, Clock(None))
    simulation.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    add(simulation.kubernetes, node("a", 8))
    add(simulation.kubernetes, node("b", 8, unschedulable=True))
    simulation.kubernetes.create(pod("holder", 3, on="a"))
    return simulation


async def test_gpus_elsewhere_counts_nodes_that_accept_pods(two):
    found = await gpus_elsewhere(two.clients)
    assert found == [ClusterGpus(cluster="west", free=5, total=8)]
    assert with_other_clusters("*2 of 4 GPUs free*", (2, 4), found) == (
        "*2 of 4 GPUs free*\n*All clusters: 7 of 12 GPUs free*\n• `west`: 5 of 8 GPUs free"
    )


async def test_gpus_elsewhere_shows_since_when_a_cluster_is_unreachable(two):
    two.west.away = True
    [found] = await gpus_elsewhere(two.clients)
    assert found.failure.startswith("hasn't answered since <!date")


async def test_gpus_elsewhere_without_permission_is_named(two, monkeypatch):
    async def forbidden(*_, **__):
        raise ApiError(403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(two.west, "list", forbidden, raising=False)
    denied = ClusterGpus(cluster="west", failure="no permission to list nodes and pods")
    assert await gpus_elsewhere(two.clients) == [denied]


def test_answer_without_other_clusters_is_unchanged():
    assert with_other_clusters("*2 of 4 GPUs free*", (2, 4), []) == "*2 of 4 GPUs free*"
