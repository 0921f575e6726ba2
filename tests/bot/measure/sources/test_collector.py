"""One worker samples the GPUs and writes each hour once it is over."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from bot.core.pace import CapacityRequest
from bot.measure.gpus.hourly_store import HourlyStore, full_hour
from bot.measure.gpus.models import HOUR, ITEM, HourCapacity, NoGpuDataError
from bot.measure.gpus.pod_owners import Ownership, OwnerStore
from bot.measure.sources.collector import UsageCollector, measuring
from bot.measure.sources.dcgm_source import ScrapeSource
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.work_queue import Queue
from k8s.api.errors import ApiError, ClusterUnreachableError
from tests.bot.measure.sources.test_dcgm_source import DayCluster

NOON = full_hour(datetime.now(UTC)).replace(hour=12) - timedelta(days=1)
CONFIG = Config(repositories=())
NEEDED = {
    "slack_bot_token": "xoxb-1",
    "redis_url": "redis://r",
    "sweepbot_config": "c.yaml",
    "image_registry": "r:5000",
    "mlflow_tracking_uri": "http://m",
}


def settings(**changes: Any) -> Settings:
    return Settings(**{**NEEDED, "k8s_namespace": "a", **changes})


class RecordedSource:
    """A source with every hour except `without`; `late` was incomplete at first."""

    late: tuple[float, float] = (1.0, 8.0)  # coverage, and GPU-hours measured

    def __init__(self, *without: Any) -> None:
        self.without, self.asked = without, []

    async def hour(self, start: Any) -> Any:
        self.asked.append(start)
        known = start not in self.without
        coverage, observed = self.late
        given = {"capacity": 8, "allocated": 8, "unhealthy": 0, "coverage": known * coverage}
        return (), HourCapacity(hour=start, observed=observed, **given)


def collecting(redis: Redis, source: Any, at: Any, **changes: Any) -> UsageCollector:
    one: Any = DayCluster()
    one.hour = 23.0
    return UsageCollector(redis, one, source, settings(**changes), lambda: CONFIG, lambda: at)


async def test_collector_writes_hours_once_complete(redis: Redis, no_litter: None) -> None:
    source = RecordedSource()
    for minutes, written in ((4, 2), (6, 3)):
        await collecting(redis, source, NOON + timedelta(minutes=minutes)).write_hours()
        found = await HourlyStore(redis).between(NOON - 9 * HOUR, NOON + HOUR)
        assert [hour.capacity.hour for hour in found] == [NOON + n * HOUR for n in range(-3, written - 3)]
    assert len(source.asked) == 3


async def missing(redis: Redis) -> list[datetime]:
    stored = await HourlyStore(redis).capacities(NOON - 8 * 24 * HOUR, NOON)
    return [hour for hour, known in stored.items() if known is None]


async def test_collector_backfills_a_week_from_prometheus_once(redis: Redis) -> None:
    unseen = NOON - 30 * HOUR
    source = RecordedSource(unseen)
    one = collecting(redis, source, NOON + timedelta(minutes=10), prometheus_url="http://p")
    await one.write_hours()
    await one.write_hours()
    assert len(source.asked) == 8 * 24
    assert await missing(redis) == [unseen]


@pytest.mark.parametrize("first", [(0.2, 1.0), (1.0, 2.0)])
async def test_collector_rewrites_an_hour_with_more_data(redis: Redis, first: Any) -> None:
    source, hours = RecordedSource(), HourlyStore(redis)
    source.late = first
    now = [NOON + timedelta(minutes=5)]
    one = collecting(redis, source, None, prometheus_url="http://p")
    one._now = lambda: now[0]

    async def known() -> list[tuple[float, float | None]]:
        source.asked.clear()
        await one.write_hours()
        found = await hours.between(NOON - HOUR, NOON)
        return [(hour.capacity.coverage, hour.capacity.observed) for hour in found]

    assert await known() == [first]
    now[0] += timedelta(minutes=50)
    assert (await known(), source.asked) == ([first], [])
    source.late = (1.0, 8.0)
    now[0] += timedelta(minutes=15)
    assert await known() == [(1.0, 8.0)]
    now[0] += timedelta(days=2)
    assert await known() == [(1.0, 8.0)]
    assert NOON - HOUR not in source.asked


async def test_collector_retries_incomplete_hours_less_and_less_often(redis: Redis) -> None:
    source, asked = RecordedSource(), []
    source.late = (1.0, 7.0)
    now = [NOON + timedelta(minutes=5)]
    one = collecting(redis, source, None, prometheus_url="http://p")
    one._now = lambda: now[0]
    for hour in range(2 * 24):
        source.asked.clear()
        await one.write_hours()
        asked += [hour] * (NOON - HOUR in source.asked)
        now[0] += HOUR
    assert asked == [0, 1, 3, 7, 15, 31]


async def test_unanswerable_hour_keeps_no_earlier_hour_from_being_stored(redis: Redis) -> None:
    class TooManySamples(RecordedSource):
        async def hour(self, start: Any) -> Any:
            found = await super().hour(start)
            if start == NOON - 2 * HOUR:
                raise NoGpuDataError("Prometheus answered 422: too many samples")
            return found

    source, now = TooManySamples(), [NOON + timedelta(minutes=10)]
    one = collecting(redis, source, None, prometheus_url="http://p")
    one._now = lambda: now[0]
    failures = 0
    for _ in range(15):
        now[0] += timedelta(minutes=1)
        try:
            await one.write_hours()
        except NoGpuDataError:
            failures += 1
    [unstored] = await missing(redis)
    assert (unstored, failures, source.asked.count(unstored)) == (NOON - 2 * HOUR, 2, 2)


async def test_collector_with_prometheus_remembers_pod_owners(redis: Redis) -> None:
    await collecting(redis, RecordedSource(), NOON, prometheus_url="http://p").collect_once(NOON)
    pod = ("a", "half")
    found = await OwnerStore(redis, tuple).owners(NOON, [pod], {})
    assert found == {pod: Ownership(owner="U1A1", sweep="lr-brave-otter")}


async def test_collector_without_prometheus_samples_and_shares_snapshots(redis: Redis) -> None:
    await collecting(redis, RecordedSource(), NOON).collect_once(NOON)
    async with measuring(settings(), lambda: CONFIG, redis, lambda: NOON) as source:
        assert isinstance(source, ScrapeSource)
        assert "half" in {pod.pod for pod in await source.pods(HOUR)}
    async with measuring(settings(prometheus_url="http://p"), lambda: CONFIG, redis, lambda: NOON) as source:
        assert isinstance(source, PrometheusSource)


async def test_collector_lease_passes_to_the_next_worker(redis: Redis, wait_until: Any) -> None:
    tasks = [asyncio.create_task(collecting(redis, RecordedSource(), NOON).run()) for _ in range(2)]
    await wait_until(lambda: redis.keys("usage:main:hour:*"), "one has the lease and works")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not await redis.exists("sweepbot:usage")


async def test_collector_delays_warnings_until_owners_are_known(redis: Redis, wait_until: Any) -> None:
    one = asyncio.create_task(collecting(redis, RecordedSource(), NOON, prometheus_url="http://p").run())
    lease = await wait_until(lambda: Queue(redis).get(wait=0), "the monitor of idle GPUs is queued")
    pod = ("a", "half")
    assert (lease.item, (await OwnerStore(redis, tuple).owners(NOON, [pod], {}))[pod].owner) == (ITEM, "U1A1")
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)


class Away:
    async def list(self, *_: Any, **__: Any) -> Any:
        raise ClusterUnreachableError("west", "no answer")


async def test_unreachable_cluster_is_logged_once_and_other_clusters_are_measured(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    pod: Any = {}
    request = CapacityRequest(
        sweep="lr", namespace="sweeps", gpus=1, resource="nvidia.com/gpu", pod=pod, at=NOON
    )
    one: Any = DayCluster()
    one.hour = 23.0
    others: Any = [("west", Away())]
    collector = UsageCollector(
        redis, one, RecordedSource(), settings(), lambda: CONFIG, lambda: NOON, lambda: others
    )
    for name in ("main", "west"):
        await CapacityStore(redis, name).register(request)
    for _ in range(3):
        await collector.measure_capacity()
    assert [each.getMessage() for each in caplog.records] == [
        "can't collect GPU use of cluster west: cluster west: no answer"
    ]
    assert await CapacityStore(redis).measured() != {}


@pytest.mark.parametrize(
    "error", [NoGpuDataError("Prometheus is away"), ApiError(500, "", "etcd"), ValueError("a bug")]
)
async def test_collector_after_an_error_logs_it_once_and_continues(
    redis: Redis, caplog: Any, error: Exception
) -> None:
    one = collecting(redis, RecordedSource(), NOON)

    async def fails() -> None:
        raise error

    await one._attempt(fails)
    await one._attempt(fails)
    assert [record.message for record in caplog.records] == [f"can't collect GPU use: {error}"]
