"""A short run of `make chaos`: the full one has five times as many faults."""

import pytest

from local.redis import redis as server
from tests.chaos.wave import Wave


@pytest.fixture(scope="module")
def redis_url():
    """One server is enough here: what differs between servers is tested with the queue."""
    with server() as url:
        yield url


async def test_sweeps_under_faults_are_neither_lost_nor_doubled(redis):
    wave = await Wave(redis, "7", sweeps=5, faults=30).run()
    assert wave.figures.broken == []
    assert wave.figures.faults.total() >= 30


async def test_a_seed_replays_its_run(redis):
    first, second = [await Wave(redis, "3", sweeps=2, faults=8).run() for _ in range(2)]
    assert first.gate.journal == second.gate.journal
    assert first.fingerprint() != (await Wave(redis, "4", sweeps=2, faults=8).run()).fingerprint()


async def test_what_a_flush_loses_is_told(redis):
    wave = await Wave(redis, "1", sweeps=4, faults=20, flush=True).run()
    assert wave.figures.broken == []
    assert wave.figures.restored
