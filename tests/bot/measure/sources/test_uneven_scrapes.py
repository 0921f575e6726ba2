"""A real Prometheus with eight hours in which every node is scraped differently: the figures don't change."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.models import HOUR, HourUse
from bot.measure.gpus.pod_owners import Ownership, OwnerStore
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.platform.config.teams import Team
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving
from tests.bot.measure.sources.reference_day import generated

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
TEAMS = (Team(name="vision", members=("U1A1",)),)

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


@pytest.fixture(scope="module", params=[(1, True), (2, False)])
def odd(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, str]]:
    seed, honoured = request.param
    history = generated.openmetrics(seed, START, honoured=honoured)
    with serving(tmp_path_factory.mktemp("prometheus"), history) as address:
        yield seed, address


@pytest.fixture
async def odd_source(
    odd, redis: Redis, wait_until
) -> AsyncIterator[tuple[list[generated.Pod], PrometheusSource]]:
    """The interval measured by the first query is wrong for most nodes and hours."""
    seed, address = odd
    pods = generated.pods(seed)
    owners = {("sweeps", pod.name): Ownership(owner="U1A1", sweep="lr-brave-otter") for pod in pods}
    await OwnerStore(redis, tuple).save(START, owners)
    async with asking(address, wait_until) as client:
        end = START + generated.HOURS * HOUR
        yield pods, PrometheusSource(client, OwnerStore(redis, lambda: TEAMS), lambda: end)


@pytest.fixture(scope="module")
def measured() -> dict[int, list[HourUse]]:
    return {}


@pytest.fixture
async def odd_uses(odd, odd_source, measured) -> tuple[list[generated.Pod], list[HourUse]]:
    """The uses of all hours, queried once: that takes seconds."""
    seed, _ = odd
    pods, source = odd_source
    if seed not in measured:
        hours = [await source.hour(START + number * HOUR) for number in range(generated.HOURS)]
        measured[seed] = [use for uses, _ in hours for use in uses]
    return pods, measured[seed]


async def test_hours_do_not_depend_on_the_scrape_interval(odd_uses) -> None:
    pods, found = odd_uses
    uses: dict[str, list[HourUse]] = defaultdict(list)
    for use in found:
        uses[use.pod].append(use)
    truths = {pod.name: generated.exact(pod) for pod in pods}
    sums = {name: [sum(getattr(use, f) for use in uses[name]) for f in SUMS] for name in truths}
    off = [
        (pod.name, sums[pod.name], truths[pod.name])
        for pod in pods
        if not agree(sums[pod.name], truths[pod.name], pod.node.slowest)
    ]
    assert off == []
    for node in generated.NODES:
        mine = [pod.name for pod in pods if pod.node == node]
        for at, figure in enumerate(("allocated", "observed", "used")):
            true = sum(getattr(truths[name], figure) for name in mine)
            assert sum(sums[name][at] for name in mine) == pytest.approx(true, rel=0.015), (node.name, figure)


SUMS = ("allocated", "observed", "used", "idle")


def agree(sums: list[float], exact: generated.ExactFigures, step: int) -> bool:
    """Up to a sample at each moment at which something changes."""
    a_sample = max(step, 60) / 3600
    slack = exact.edges * a_sample
    least, most = exact.idle
    return (
        all(
            abs(found - true) <= slack
            for found, true in zip(sums, (exact.allocated, exact.observed, exact.used), strict=False)
        )
        and least - slack <= sums[3] <= most + slack
    )


async def test_exported_label_and_silent_exporter_hide_neither_owner_nor_price(odd_uses) -> None:
    pods, uses = odd_uses
    models = {pod.name: pod.node.model for pod in pods}
    for use in uses:
        assert (use.owner, use.team, use.sweep) == ("U1A1", "vision", "lr-brave-otter")
        assert use.model == models[use.pod]


async def test_cpu_use_covers_the_observed_time_only(odd_uses) -> None:
    pods, uses = odd_uses
    cores = {pod.name: pod.cores for pod in pods}
    known = [use for use in uses if use.cpu_mean is not None]
    assert len(known) > len(pods)
    for use in known:
        assert use.cpu_mean == pytest.approx(cores[use.pod], rel=0.02)


async def test_missing_uuid_or_nan_hides_no_gpu(odd_source) -> None:
    pods, source = odd_source
    held = {pod.pod: pod for pod in await source.pods(timedelta(minutes=10))}
    late = [pod for pod in pods if pod.end == generated.HOURS * 3600]
    assert {(held[pod.name].sweep, held[pod.name].trial) for pod in late} == {
        ("lr-brave-otter", pod.name) for pod in late
    }
    assert {pod.name: len(held[pod.name].gpus) for pod in late} == {pod.name: len(pod.gpus) for pod in late}
    assert any(not pod.node.uuids and len(pod.gpus) == 2 for pod in late)
    settled = [pod for pod in late if pod.begin < (generated.HOURS - 1) * 3600]
    assert all(gpu.peak is not None for pod in settled for gpu in held[pod.name].gpus)
