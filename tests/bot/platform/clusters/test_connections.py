"""Connections follow the configuration."""

import asyncio
from dataclasses import replace

import pytest

from bot.platform.clusters.connections import Clusters, SharedReads
from bot.platform.config.clusters import TrialCluster
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


async def test_failed_read_fails_for_every_caller_and_is_repeated_by_the_next():
    reads, calls = SharedReads(), []

    async def read():
        calls.append(1)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise ValueError("away")
        return 7

    failed = await asyncio.gather(*(reads.get("west", read) for _ in range(3)), return_exceptions=True)
    assert ([str(each) for each in failed], calls) == (["away"] * 3, [1])
    assert await reads.get("west", read) == 7


async def test_read_is_kept_for_a_while_and_then_repeated(wait_until):
    calls = []

    async def read():
        calls.append(1)
        return len(calls)

    kept = SharedReads(retention=3600.0)
    assert [await kept.get("west", read) for _ in range(1000)] == [1] * 1000
    kept.forget("west")
    assert await kept.get("west", read) == 2
    short = SharedReads(retention=0.0)
    before = await short.get("west", read)

    async def is_new():
        return await short.get("west", read) != before

    await wait_until(is_new, "it is read again")


async def test_cancelled_caller_leaves_the_read_to_the_others():
    reads, answered = SharedReads(), asyncio.Event()

    async def read():
        await answered.wait()
        return 7

    first, second = (asyncio.create_task(reads.get("west", read)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    answered.set()
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first
