"""One worker scales at a time, as soon as `elastic:` is configured."""

import asyncio
from dataclasses import replace

from bot.elastic import controller
from bot.elastic.controller import ElasticController
from tests.bot.elastic.factories import SERVING
from tests.bot.elastic.world import ElasticWorld


async def test_controller_scales_once_it_is_configured(redis, wait_until, monkeypatch):
    monkeypatch.setattr(controller, "CONFIG_INTERVAL", 0.01)
    async with ElasticWorld(min=2).started() as world:
        configured, world.clients.config = world.clients.config, replace(world.clients.config, elastic=())
        tasks = [asyncio.create_task(ElasticController(redis, world.clients).run()) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert await redis.keys("*") == []
        world.clients.config = configured
        await wait_until(lambda: world.slack.messages, "the message is posted")
        await wait_until(lambda: world.replicas == 2, "the minimum is set")
        assert world.cluster.scaled == [2]
        assert len(world.slack.messages) == 1
        assert world.store.get("ConfigMap", "sweeps", "sweepbot-elastic")["data"].keys() == {f"{SERVING}.llm"}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
