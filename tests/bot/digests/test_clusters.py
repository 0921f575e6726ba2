"""A digest over several clusters: sums, a line for each cluster, and what is unknown."""

from dataclasses import replace
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from bot.config.clusters import TrialCluster
from bot.digests.clusters import AllHours
from bot.digests.details import table
from bot.digests.figures import figures
from bot.digests.message import DigestContext, message
from bot.gpus.hourly_store import HourlyStore
from bot.gpus.sums import Totals
from tests.bot.digests.days import BERLIN, DAY, NODES, PRICES, of
from tests.bot.factories import CONFIG
from tests.bot.gpus.factories import lazy

pytestmark = pytest.mark.usefixtures("kept_hours")

BEGIN, END = BERLIN.window(DAY)
WEST = TrialCluster(name="west", kubeconfig="/west")
EAST = TrialCluster(name="east", kubeconfig="/east")
SEVERAL = replace(CONFIG, clusters=(WEST, EAST), prices=PRICES)


async def store(redis: Redis, cluster: str, hours: int = 24) -> None:
    for hour in lazy(BEGIN, BEGIN + timedelta(hours=hours)):
        await HourlyStore(redis, cluster).save(hour.uses, hour.capacity)


async def test_digest_sums_all_clusters_and_shows_each(redis: Redis) -> None:
    await store(redis, "main")
    await store(redis, "west", hours=12)
    all_hours = AllHours(HourlyStore(redis), SEVERAL)
    week = await all_hours.totals(BEGIN - timedelta(days=7), BEGIN)
    found = figures(BERLIN, DAY, await all_hours.between(BEGIN, END), week, PRICES)
    assert (found.total.allocated, found.capacity, found.coverage) == (252.0, 540.0, 0.75)
    shown = message(await all_hours.with_clusters(found, SEVERAL), DigestContext(nodes=NODES))
    assert "(75% measured)" in shown.text
    assert shown.blocks[2]["elements"][0]["text"] == (
        "`main`: 168 GPU-h allocated, 67.2 used, 72 idle  ·  "
        "`west`: 84 GPU-h allocated, 33.6 used, 36 idle  ·  `east`: no data"
    )
    lines = await all_hours.lines(found, SEVERAL)
    assert lines.startswith("\n*By cluster*\n• `main`: 168 GPU-h allocated")


async def test_digest_of_several_clusters_has_the_cluster_of_each_row_in_its_csv(redis: Redis) -> None:
    await store(redis, "main", hours=1)
    await store(redis, "west", hours=1)
    all_hours = AllHours(HourlyStore(redis), SEVERAL)
    found = figures(BERLIN, DAY, await all_hours.between(BEGIN, END), Totals(), PRICES)
    rows = table(await all_hours.with_clusters(found, SEVERAL), DigestContext()).splitlines()
    assert rows[0].startswith("cluster,hour_utc,namespace,pod,")
    assert [row.split(",")[0] for row in rows[1:]] == ["main"] * 3 + ["west"] * 3
    assert rows[1].removeprefix("main") == rows[4].removeprefix("west")


async def test_digest_of_one_cluster_is_unchanged(redis: Redis) -> None:
    await store(redis, "main")
    all_hours, found = AllHours(HourlyStore(redis), CONFIG), of()
    assert await all_hours.between(BEGIN, END) == await HourlyStore(redis).between(BEGIN, END)
    assert await all_hours.with_clusters(found, CONFIG) is found
    assert await all_hours.lines(found, CONFIG) == ""


async def test_digest_waits_for_the_last_hour_of_each_cluster(redis: Redis) -> None:
    await store(redis, "main")
    await store(redis, "west", hours=23)
    last = END - timedelta(hours=1), END
    assert not await AllHours(HourlyStore(redis), CONFIG).missing(*last)
    assert await AllHours(HourlyStore(redis), replace(CONFIG, clusters=(WEST,))).missing(*last)


def test_digest_names_clusters_whose_free_gpus_are_unknown() -> None:
    shown = message(of(), DigestContext(nodes=NODES, unmeasured=("west",)))
    assert "Free GPUs in cluster `west`: unknown." in str(shown.blocks)
