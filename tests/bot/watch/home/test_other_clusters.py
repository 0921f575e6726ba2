"""Free GPUs of other clusters, in `/gpus`, the Home tab, and the form."""

import json
from dataclasses import replace
from functools import partial

import pytest

from bot.measure.gpus.command import answer
from bot.measure.gpus.models import ClusterGpus, NodeUse, Snapshot
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.slack.mrkdwn import local_time
from bot.sweep.form.drafts import Drafts
from bot.watch.digests.latest import latest_digest
from bot.watch.home.gpu_query_job import GpuQueryJob, gpus_elsewhere
from bot.watch.home.view import HomeLoader
from bot.workspace_table import GPUS
from k8s.api.errors import ApiError
from tests.bot.factories import NOW, no_reservations
from tests.bot.sweep.launch.test_cluster_choice import add, node, pod
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
    assert found == (ClusterGpus(cluster="west", free=5, total=8),)


async def test_gpus_elsewhere_shows_since_when_a_cluster_is_unreachable(two):
    two.west.away = True
    [found] = await gpus_elsewhere(two.clients)
    assert found.failure.startswith("hasn't answered since <!date")


async def test_gpus_elsewhere_without_permission_is_named(two, monkeypatch):
    async def forbidden(*_, **__):
        raise ApiError(403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(two.west, "list", forbidden, raising=False)
    denied = ClusterGpus(cluster="west", failure="no permission to list nodes and pods")
    assert await gpus_elsewhere(two.clients) == (denied,)


AWAY = ClusterGpus(cluster="east", failure="doesn't answer")
SNAPSHOT = Snapshot(
    at=NOW,
    nodes=(NodeUse(node="n1", model="H100", physical=4, allocatable=4, allocated=2),),
    pods=(),
    others=(ClusterGpus(cluster="west", free=5, total=8), AWAY),
)


def test_free_gpus_of_all_clusters_precede_the_models_of_the_home_cluster():
    assert answer("free", SNAPSHOT, "U1") == (
        "*7 of 12 GPUs free in all clusters*\n• `main`: 2 of 4 free\n• `west`: 5 of 8 free\n"
        "• `east`: doesn't answer\n*`main`*\n• H100: 2 of 4 free, largest block 2 on `n1`\n"
        f"Measured {local_time(NOW)}."
    )
    without = answer("free", replace(SNAPSHOT, nodes=()), "U1")
    assert "No GPU nodes found in `main`." in without


def test_free_gpus_in_a_cluster_that_did_not_answer_are_unknown():
    assert [SNAPSHOT.free_in(name) for name in ("main", "west", "east", "none")] == [2, 5, None, None]


async def test_home_tab_shows_the_free_gpus_of_all_clusters(two, redis):
    class Source:
        async def snapshot(self, _):
            return replace(SNAPSHOT, others=())

    clients = two.clients
    await GpuQueryJob(clients, redis, Source(), None, no_reservations, GPUS).run("now")
    measured = await SnapshotStore(redis).latest()
    drafts = Drafts(redis)
    digest = partial(latest_digest, redis)
    loader = HomeLoader(store=clients.store, drafts=drafts, last_digest=digest, config=clients.config)
    view = await loader.view("U1", measured, "")
    assert "*7 of 12 GPUs free in all clusters*\\n• `main`: 2 of 4 free\\n• `west`: 5 of 8" in json.dumps(
        view, ensure_ascii=False
    )
