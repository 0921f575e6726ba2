"""A digest over several clusters: sums, a line for each cluster, and what is unknown."""

from dataclasses import replace
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.sums import Totals
from bot.platform.config.clusters import TrialCluster
from bot.watch.digests.clusters import AllHours, Measured
from bot.watch.digests.details import table
from bot.watch.digests.figures import figures
from bot.watch.digests.message import DigestContext, message
from tests.bot.factories import CONFIG
from tests.bot.measure.gpus.factories import hour, lazy, use
from tests.bot.watch.digests.days import BERLIN, DAY, NODES, PRICES, of

pytestmark = pytest.mark.usefixtures("kept_hours")

BEGIN, END = BERLIN.window(DAY)
WEST = TrialCluster(name="west", kubeconfig="/west")
EAST = TrialCluster(name="east", kubeconfig="/east")
SEVERAL = replace(CONFIG, clusters=(WEST, EAST), prices=PRICES)


async def store(redis: Redis, cluster: str, hours: int = 24) -> None:
    for each in lazy(BEGIN, BEGIN + timedelta(hours=hours)):
        await HourlyStore(redis, cluster).save(each.columns.rows(), each.capacity)


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


async def test_unused_reservations_are_in_no_clusters_sums(redis: Redis) -> None:
    held = use(BEGIN, "sweepbot-reserved-vision-1a2b3-0", 8, team="vision")
    await HourlyStore(redis).save([held, use(BEGIN, "a", 2, 1)], hour(BEGIN, held).capacity)
    all_hours = AllHours(HourlyStore(redis), SEVERAL)
    found = figures(BERLIN, DAY, await all_hours.between(BEGIN, END), Totals(), PRICES)
    shown = await all_hours.with_clusters(found, SEVERAL)
    assert (found.total.allocated, found.unused, shown.clusters["main"].allocated) == (2, 8, 2)  # type: ignore[union-attr]
    assert "`main`: 2 GPU-h allocated" in await all_hours.lines(found, SEVERAL)


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


@pytest.mark.parametrize(
    ("hours", "gpu_hours", "more"),
    [
        (48, 300, False),  # as before
        (48, 302, True),
        (48, 298, False),
        (48.5, 300, True),
        (49, 200, True),
        (47, 400, False),  # Redis lost an hour
    ],
)
def test_figures_are_corrected_by_more_metrics_only(hours: float, gpu_hours: float, more: bool) -> None:
    before, now = (Measured(hours=h, gpu_hours=g, final=False) for h, g in ((48, 300), (hours, gpu_hours)))
    assert now.more_than(before) is more


async def test_day_is_final_once_every_cluster_measured_each_hour(redis: Redis) -> None:
    found = []
    for cluster in ("main", "west"):
        for each in lazy(BEGIN, END):
            await HourlyStore(redis, cluster).save(each.columns.rows(), replace(each.capacity, observed=7.0))
        found.append(
            await AllHours(HourlyStore(redis), replace(CONFIG, clusters=(WEST,))).measured(BEGIN, END)
        )
    assert found == [
        Measured(hours=24, gpu_hours=168, final=False),
        Measured(hours=48, gpu_hours=336, final=True),
    ]


async def test_digest_waits_for_the_last_hour_of_each_cluster(redis: Redis) -> None:
    await store(redis, "main")
    await store(redis, "west", hours=23)
    last = END - timedelta(hours=1), END
    assert not await AllHours(HourlyStore(redis), CONFIG).missing(*last)
    assert await AllHours(HourlyStore(redis), replace(CONFIG, clusters=(WEST,))).missing(*last)


def test_digest_names_clusters_whose_free_gpus_are_unknown() -> None:
    shown = message(of(), DigestContext(nodes=NODES, unmeasured=("west",)))
    assert "Free GPUs in cluster `west`: unknown." in str(shown.blocks)
