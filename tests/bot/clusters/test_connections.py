"""Connections follow the configuration."""

import asyncio
from dataclasses import replace

from bot.clusters.connections import Clusters
from bot.config.clusters import TrialCluster
from k8s.api import remote
from k8s.api.remote import RemoteClient
from tests.bot.factories import CONFIG

WEST = TrialCluster(name="west", kubeconfig="/west")


class Recorded(RemoteClient):
    def __init__(self, cluster):
        async def known(uid):
            return uid

        super().__init__(cluster.name, cluster.kubeconfig, "", known)
        self.closed = asyncio.Event()

    async def close(self):
        self.closed.set()


async def test_changed_entry_closes_the_former_connection_when_it_is_unused(monkeypatch):
    monkeypatch.setattr(remote, "IDLE", 0.0)
    clusters = Clusters(Recorded)
    before = replace(CONFIG, clusters=(WEST,))
    after = replace(CONFIG, clusters=(replace(WEST, context="new"),))
    former = clusters.get("west", before)
    clusters.close_unused(before)
    assert clusters.get("west", before) is former
    latest = clusters.get("west", after)
    clusters.close_unused(after)
    async with asyncio.timeout(60):
        await former.api.closed.wait()
    assert clusters.get("west", after) is latest
    assert not latest.api.closed.is_set()
    await clusters.close()
    assert latest.api.closed.is_set()


async def test_close_also_closes_connections_that_wait_for_their_last_user(monkeypatch):
    clusters = Clusters(Recorded)
    former = clusters.get("west", replace(CONFIG, clusters=(WEST,)))
    former.api._used_at = float("inf")
    clusters.close_unused(replace(CONFIG, clusters=()))
    await asyncio.sleep(0)
    assert not former.api.closed.is_set()
    await clusters.close()
    assert former.api.closed.is_set()
