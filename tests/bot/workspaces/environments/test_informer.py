"""Changes of pods and StatefulSets wake their environments, in memory."""

import asyncio
from dataclasses import replace

from redis.exceptions import ConnectionError as RedisConnectionError

from bot.workspaces.environments import cluster, reconciler
from bot.workspaces.environments.reconciler import EnvironmentInformer
from bot.workspaces.environments.requests import Verb
from k8s.retry import Retry
from tests.scenarios.fakes import DirectCluster


class WakingQueue:
    """`woken`: the items that were added; while it is `down`, none is."""

    def __init__(self):
        self.woken, self.refused, self.down = set(), 0, False

    async def add(self, item):
        if self.down:
            self.refused += 1
            raise RedisConnectionError("down")
        self.woken.add(item)


async def test_changed_pod_wakes_its_environment_also_in_a_namespace_configured_later_and_after_an_outage(
    world, monkeypatch, wait_until
):
    monkeypatch.setattr(reconciler, "NAMESPACE_INTERVAL", 0.01)
    monkeypatch.setattr(reconciler, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(reconciler, "REDIS_RETRY", Retry(base=0.01))
    await world.ask(Verb.START)
    queue, lab = WakingQueue(), {cluster.item("lab")}
    configured = world.clients.config
    none = replace(configured, environments=None)
    clients = replace(world.clients, cluster=DirectCluster(world.kubernetes), queue=queue, config=none)
    watching = asyncio.create_task(EnvironmentInformer(clients).run())
    await asyncio.sleep(0)
    clients.config = configured  # a changed file
    await wait_until(lambda: queue.woken == lab or watching.done(), "the first list wakes it", seconds=30)
    queue.woken.clear()
    queue.down = True
    await world.ready()
    await wait_until(lambda: queue.refused or watching.done(), "Redis was called", seconds=30)
    queue.down = False
    await wait_until(lambda: queue.woken == lab or watching.done(), "it is woken after all", seconds=30)
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])
