"""GPU-hours of another cluster are stored under its name."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.measure.gpus.hourly_store import HourlyStore, full_hour
from bot.measure.gpus.models import HOUR
from bot.measure.sources.remote_usage import RemoteUsage
from bot.platform.clusters.connections import Clusters
from bot.platform.config.clusters import TrialCluster
from k8s.api.errors import ClusterUnreachableError
from tests.bot.factories import CONFIG, NOW, SETTINGS
from tests.bot.measure.sources.test_dcgm_source import DayCluster

pytestmark = pytest.mark.usefixtures("kept_hours")

WEST = replace(CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),))


class West(DayCluster):
    away = False

    async def list(self, *args, **kwargs):
        if self.away:
            raise ClusterUnreachableError("west", "no route to host")
        return await super().list(*args, **kwargs)


async def test_remote_usage_stores_hours_of_the_cluster_and_none_at_home(redis):
    west, start = West(), full_hour(NOW) - HOUR
    west.hour = 23.0
    clusters = Clusters(lambda _: west)
    settings = SETTINGS.model_copy(update={"prometheus_url": "http://prometheus"})
    usage = RemoteUsage(redis, clusters, settings, lambda: WEST, lambda: start + HOUR + timedelta(minutes=6))
    collector = usage.collector(clusters.get("west", WEST))
    for step in range(int(HOUR.total_seconds()) // settings.usage_seconds + 1):
        await collector.collect_once(start + timedelta(seconds=step * settings.usage_seconds))
    await collector.write_hours()
    [hour] = await HourlyStore(redis, "west").between(start, start + HOUR)
    assert sum(use.allocated for use in hour.columns.rows()) > 0
    assert await HourlyStore(redis).between(start, start + HOUR) == ()


async def test_remote_usage_of_an_unreachable_cluster_is_only_logged(redis, caplog):
    west = West()
    west.away = True
    clusters = Clusters(lambda _: west)
    usage = RemoteUsage(redis, clusters, SETTINGS, lambda: WEST, lambda: NOW)
    collector = usage.collector(clusters.get("west", WEST))
    for _ in range(2):
        await collector._attempt(lambda: collector.collect_once(NOW))
    assert caplog.messages == ["can't collect GPU use of cluster west: cluster west: no route to host"]


async def test_remote_usage_follows_the_configuration(redis):
    config = [WEST]
    usage = RemoteUsage(redis, Clusters(lambda _: West()), SETTINGS, lambda: config[0], lambda: NOW)
    usage.follow()
    [(cluster, task)] = usage._running.items()
    assert cluster.config.name == "west"
    config[0] = CONFIG
    usage.follow()
    assert (usage._running, task.cancelling()) == ({}, 1)
