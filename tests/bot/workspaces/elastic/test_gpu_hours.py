"""Elastic replicas have their own line in the bill and the digest, and no warnings about idle GPUs."""

from dataclasses import replace

import pytest

from bot.measure.gpus.billing import bill
from bot.measure.gpus.command import ParsedCommand
from bot.measure.gpus.hour_format import add_sums
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HOUR, PodUse
from bot.measure.gpus.sums import ELASTIC, Totals
from bot.measure.sources.collector import UsageCollector
from bot.platform.config.elastic import ElasticDeployment
from bot.watch.digests.figures import figures
from bot.watch.digests.message import _sums
from bot.watch.idle.monitor import IdleMonitor
from tests.bot.factories import NOW
from tests.bot.measure.gpus.factories import hour, stored, totals, use
from tests.bot.watch.digests.days import BERLIN, DAY, PRICES
from tests.bot.workspaces.elastic.factories import LLM
from tests.bot.workspaces.elastic.world import ElasticWorld

pytestmark = pytest.mark.usefixtures("kept_hours")

BEGIN, _ = BERLIN.window(DAY)
POD = "llm-6d5f9c7b8-x2x4z"
REPLICA = use(BEGIN, f"serving/{POD}", 2.0)
OTHER = use(BEGIN, "serving/notebook-0", 1.0)


def test_digest_has_elastic_replicas_as_their_own_sum():
    found = figures(BERLIN, DAY, [hour(BEGIN, REPLICA, OTHER)], totals(()), PRICES, "", (LLM,))
    assert (found.elastic.allocated, found.total.allocated) == (2.0, 3.0)
    assert "elastic replicas 2 (" in _sums(found)
    assert "elastic" not in _sums(replace(found, elastic=type(found.elastic)()))


def billed(*elastic):
    trial = use(BEGIN, "serving/lr-1", 4.0, sweep="lr-brave-otter")
    sums = Totals()
    add_sums(sums, stored([REPLICA, OTHER, trial], hour(BEGIN).capacity, elastic))
    return bill(ParsedCommand(view="bill"), sums, PRICES, "$", NOW)


def test_bill_has_elastic_replicas_as_their_own_line():
    assert "• elastic replicas: 2 GPU-h allocated" in billed(LLM)
    assert "• not from a sweep: 1 GPU-h allocated" in billed(LLM)
    assert "• `lr-brave-otter`: 4 GPU-h allocated" in billed(LLM)
    assert "• not from a sweep: 3 GPU-h allocated" in billed()


async def test_collector_stores_elastic_replicas_of_the_home_cluster_only(redis):
    world = ElasticWorld()
    for name, sweeps in (("main", {ELASTIC, ""}), ("west", {""})):
        source = Measured([REPLICA, OTHER], hour(BEGIN, REPLICA, OTHER).capacity)
        collector = UsageCollector(
            redis,
            None,
            source,
            world.clients.settings,
            lambda: world.clients.config,
            lambda: BEGIN + 1.2 * HOUR,
            name=name,
        )
        await collector.write_hours()
        found = await HourlyStore(redis, name).totals(BEGIN, BEGIN + HOUR)
        assert {each.sweep for each in found.uses} == sweeps


class Measured:
    """One hour."""

    def __init__(self, uses, capacity):
        self.uses, self.capacity = uses, capacity

    async def hour(self, start):
        return self.uses, replace(self.capacity, hour=start)


class Source:
    """One idle pod."""

    async def pods(self, _window):
        return (PodUse(namespace="serving", pod=POD, node="gpu-1", allocated=1),)


async def test_idle_monitor_leaves_elastic_replicas_out():
    world = ElasticWorld()
    monitor = IdleMonitor(world.clients, Source(), None)
    assert await monitor._measure(None) == {}
    elastic = (ElasticDeployment(namespace="serving", deployment="asr", gpus=1, max=1, channel="C1"),)
    world.clients.config = replace(world.clients.config, elastic=elastic)
    assert len(await monitor._measure(None)) == 1
