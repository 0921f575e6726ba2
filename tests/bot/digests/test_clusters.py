"""The day's GPU-hours by cluster in a digest's thread."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from redis.asyncio import Redis

from bot.config.clusters import TrialCluster
from bot.digests.clusters import cluster_lines
from bot.gpus.hourly_store import HourlyStore
from tests.bot.factories import CONFIG, NOW
from tests.bot.gpus.factories import lazy


async def test_digest_thread_has_a_line_for_each_cluster(redis: Redis) -> None:
    start = NOW - timedelta(hours=2)
    for hour in lazy(start, NOW):
        await HourlyStore(redis, "west").save(hour.uses, hour.capacity)

    def window(_: Any) -> tuple[datetime, datetime]:
        return start, NOW

    schedule = SimpleNamespace(team="", window=window)
    found: Any = SimpleNamespace(schedule=schedule, day=NOW.date(), uses=())
    assert await cluster_lines(found, HourlyStore(redis), CONFIG) == ""
    config = replace(CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),))
    text = await cluster_lines(found, HourlyStore(redis), config)
    assert text.startswith("\n*By cluster*\n• `west`: 14 GPU-h allocated")
