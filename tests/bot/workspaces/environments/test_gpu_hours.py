"""Environments have their own line in the bill and in the digest, and no other warnings about idle GPUs."""

from dataclasses import replace

from bot.measure.gpus.billing import bill
from bot.measure.gpus.command import ParsedCommand
from bot.measure.gpus.models import UseColumns
from bot.measure.gpus.sums import Totals
from bot.watch.digests.figures import figures
from bot.watch.digests.message import _sums
from bot.watch.idle.monitor import IdleMonitor
from tests.bot.factories import NOW
from tests.bot.measure.gpus.factories import hour, totals, use
from tests.bot.watch.digests.days import BERLIN, DAY, PRICES
from tests.bot.workspaces.environments.test_idle import Source
from tests.bot.workspaces.environments.world import NAMESPACE, World

BEGIN, _ = BERLIN.window(DAY)
OURS = use(BEGIN, f"{NAMESPACE}/env-lab-0", 1.0)
SWEEPS = use(BEGIN, "sweeps/lr-1", 1.0, sweep="lr-brave-otter")


def test_bill_has_environments_as_their_own_line():
    sums = Totals.of(UseColumns.of([OURS, SWEEPS]))
    text = bill(ParsedCommand(view="bill"), sums, PRICES, "$", NOW, NAMESPACE)
    assert "• research environments: 1 GPU-h allocated" in text
    assert "• `lr-brave-otter`: 1 GPU-h allocated" in text
    assert "research environments" not in bill(ParsedCommand(view="bill"), sums, PRICES, "$", NOW)


def test_digest_has_environments_as_their_own_sum():
    found = figures(BERLIN, DAY, [hour(BEGIN, OURS, SWEEPS)], totals(()), PRICES, NAMESPACE)
    assert found.environments.allocated == 1.0
    assert "research environments 1 (" in _sums(found)
    assert "environments" not in _sums(replace(found, environments=type(found.environments)()))


async def test_idle_monitor_leaves_environments_to_their_own_warnings(redis):
    world = World(redis)
    source = Source()
    monitor = IdleMonitor(world.clients, source, None)
    assert await monitor._measure(None) == {}
    world.clients.config = replace(world.clients.config, environments=None)
    assert len(await monitor._measure(None)) == 1
