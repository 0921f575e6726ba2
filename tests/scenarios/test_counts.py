"""How many requests a sweep costs: exact counts, and none that grows with trials."""

from collections import Counter

import pytest

from tests.scenarios.counted_sweep import RESYNCS, CountedSweep, counting_redis, running_sweep, space


@pytest.fixture
def calls():
    calls = Counter()
    with counting_redis(calls):
        yield calls


@pytest.mark.features("health")
async def test_sweep_of_30_trials_costs_as_many_requests_as_one_of_10(redis, calls):
    costs = []
    for trials in (10, 30):
        sweep = CountedSweep(redis, calls, space=space(trials))
        costs.append(await sweep.requests())
        assert sweep.last.progress.finished == trials
    assert costs[1] == costs[0]
    assert costs[1] == {
        "cluster.create": 5,
        "cluster.get": 12,
        "cluster.list": 24,
        "cluster.log": 2,
        "cluster.merge": 9,
        "git.prefetch": 1,
        "git.read": 3,
        "git.resolve": 1,
        "git.subject": 1,
        "registry.digest": 2,
        "slack.open_thread": 1,
        "slack.permalink": 1,
        "slack.reply": 1,
        "slack.update": 3,
        "slack.upload_files": 1,
    }


@pytest.fixture
async def running(redis, calls):
    async with running_sweep(redis, calls) as sweep:
        yield sweep


async def test_reconcile_of_an_unchanged_sweep_costs_one_redis_trip_and_no_request(running):
    """It reads its record and its commands; tests/bot/platform/storage counts those of the queue."""
    assert await running.reconciled() == {"redis": 1}


async def test_hour_of_an_unchanged_sweep_costs_only_the_resync(running):
    assert await running.hour() == RESYNCS
