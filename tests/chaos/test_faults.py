"""Short runs of `make chaos`, in memory and on real processes; a broken product has to fail them."""

from dataclasses import replace

import pytest

from bot.sweep.decisions import advance
from bot.sweep.sweeps import reconciler
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests
from bot.sweep.sweeps.unconfirmed_file import UnconfirmedFile
from local.redis import redis as server
from tests.chaos import processes
from tests.chaos.wave import Wave


@pytest.fixture(scope="module")
def redis_url():
    """One server is enough here: what differs between servers is tested with the queue."""
    with server() as url:
        yield url


async def test_wave_under_faults_neither_loses_nor_doubles_sweeps(redis):
    wave = await Wave(redis, "7", sweeps=5, faults=30).run()
    assert wave.figures.broken == []
    assert wave.figures.faults.total() >= 30


@pytest.mark.slow
async def test_wave_with_the_same_seed_repeats_its_run(redis):
    first, second = [await Wave(redis, "3", sweeps=2, faults=8).run() for _ in range(2)]
    assert first.gate.journal == second.gate.journal
    assert first.fingerprint() != (await Wave(redis, "4", sweeps=2, faults=8).run()).fingerprint()


async def test_wave_reports_what_a_flush_loses(redis):
    wave = await Wave(redis, "3", sweeps=4, faults=20, flush=True).run()
    assert wave.figures.broken == []
    assert wave.figures.restored


@pytest.mark.slow
@pytest.mark.parametrize("flush", [False, True])
async def test_wave_of_many_sweeps_under_many_faults_neither_loses_nor_doubles(redis, flush):
    wave = await Wave(redis, "5", sweeps=10, faults=50, flush=flush).run()
    assert wave.figures.broken == []
    assert wave.figures.faults.total() >= 50


@pytest.mark.slow
async def test_wave_on_real_processes_survives_crashes(mlflow_url):
    figures = await processes.run(5, sweeps=2, tracking=mlflow_url)
    assert figures.broken == []
    assert figures.faults.total() >= 4


async def broken(redis, seed, **size):
    return [each.partition("\n")[0] for each in (await Wave(redis, seed, **size).run()).figures.broken]


@pytest.mark.slow
async def test_wave_that_submits_under_a_second_name_reports_doubled_experiments(redis, monkeypatch):
    required = reconciler.required_changes

    def doubled(*args):
        changes = required(*args)
        named = [each for each in changes.create if each["kind"] == "Experiment"]
        again = [
            each | {"metadata": each["metadata"] | {"name": f"{each['metadata']['name']}-2"}}
            for each in named
        ]
        return replace(changes, create=(*changes.create, *again))

    monkeypatch.setattr(reconciler, "required_changes", doubled)
    found = await broken(redis, "2", sweeps=2, faults=4)
    assert any(what.endswith(": 2 experiments") for what in found)


@pytest.mark.slow
async def test_wave_whose_cancels_are_lost_reports_sweeps_that_run_on(redis, monkeypatch):
    monkeypatch.setattr("tests.chaos.wave.TIMEOUT_SECONDS", 600)
    monkeypatch.setattr(advance, "_is_cancelled", lambda _: False)
    found = await broken(redis, "8", sweeps=3, faults=6)
    assert any(what.startswith("endless-") and "lost: running" in what for what in found)


@pytest.mark.slow
async def test_wave_without_unconfirmed_requests_reports_sweeps_that_redis_lost(redis, monkeypatch):
    async def nothing(_):
        pass

    monkeypatch.setattr("tests.chaos.wave.TIMEOUT_SECONDS", 600)
    monkeypatch.setattr(UnconfirmedRequests, "restore_lost", nothing)
    found = await broken(redis, "2", sweeps=3, faults=12, flush=True)
    assert any(what.endswith("lost: no record") for what in found)


@pytest.mark.slow
async def test_wave_whose_servers_ignore_the_files_of_killed_ones_reports_lost_requests(redis, monkeypatch):
    monkeypatch.setattr(UnconfirmedFile, "take_over", lambda _: [])
    found = "\n".join(await broken(redis, "12", sweeps=6, faults=30, flush=True))
    assert all(lost in found for lost in ("lost: no record", "lost: start of lab-", "lost: setup of C"))
