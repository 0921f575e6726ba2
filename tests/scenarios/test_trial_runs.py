"""The runs that MLflow has of a sweep, after its end."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.curves import Point
from bot.sweep.reports.end_results import stored_results
from bot.sweep.reports.trial_runs_job import BUSY_DELAY, NEXT_PASS_DELAY, RETRY, TrialRunsJob
from bot.sweep.results import run_writer
from bot.sweep.results.run_writer import RunWriter
from bot.sweep.results.store import ResultsStore
from bot.sweep.sweeps.durable_record import recover
from tests.bot.factories import NOW
from tests.bot.sweep.results.mlflow_client import file_search, file_writer, mlflow_client
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def ended(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        simulation.run_writer.away = True
        for _ in range(40):
            await simulation.round()
            if (await simulation.record()).phase.final:
                break
        yield simulation


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path.as_uri()


async def test_silent_trials_of_an_ended_sweep_get_runs_whose_urls_are_in_its_results(ended, tracking):
    queued = await ended.redis.zrange("life:queue:ready", 0, -1)
    assert f"runs: {SWEEP}".encode() in queued
    assert await TrialRunsJob(ended.clients, file_writer(tracking)).run(SWEEP) is None
    client = mlflow_client(tracking)
    number = client.get_experiment_by_name(ended.last.plan.results_name).experiment_id
    found = {run.info.run_name: run for run in client.search_runs([number])}
    results = await stored_results(SWEEP, ended.clients)
    assert {trial.name: trial.value for trial in results.trials} == {
        name: run.data.metrics["loss"] for name, run in found.items()
    }
    for trial in results.trials:
        run = found[trial.name]
        assert run.data.params == trial.parameters
        assert trial.run_url.endswith(f"/experiments/{number}/runs/{run.info.run_id}")
        assert run.data.tags["sweepbot.thread"] == f"https://lab.slack.com/C1/{ended.last.thread}"


async def test_runs_are_written_later_while_mlflow_is_away_and_given_up_after_a_week(ended, caplog):
    job = TrialRunsJob(ended.clients, RunWriter("http://127.0.0.1:9", "http://ui"))
    assert [await job.run(SWEEP) for _ in range(3)] == [RETRY.delay()] * 3
    assert caplog.text.count("MLflow unavailable") == 1
    late = replace(ended.clients, now=lambda: NOW + timedelta(days=8))
    assert await pending(ended) == [SWEEP]
    assert await TrialRunsJob(late, job._writer).run(SWEEP) is None
    assert await pending(ended) == []
    assert await job.run("lr-other-otter") is None


async def pending(ended):
    return [each async for each in ResultsStore(ended.cluster, "sweeps").pending()]


async def test_runs_are_written_even_if_redis_is_lost_right_after_the_end(ended, tracking):
    await ended.redis.flushall()
    await recover(replace(ended.clients, cluster=ended.cluster))
    assert await ended.redis.zscore("life:queue:ready", f"runs: {SWEEP}") is not None
    assert await TrialRunsJob(ended.clients, file_writer(tracking)).run(SWEEP) is None
    results = await stored_results(SWEEP, ended.clients)
    assert all(trial.run_url for trial in results.trials)
    await ended.redis.flushall()
    await recover(replace(ended.clients, cluster=ended.cluster))
    assert await ended.redis.zscore("life:queue:ready", f"runs: {SWEEP}") is None


async def test_sweeps_that_wait_come_before_the_next_pass_of_a_large_one(ended, tracking, monkeypatch):
    job = TrialRunsJob(ended.clients, file_writer(tracking))
    async with job._writing:
        assert await job.run(SWEEP) == BUSY_DELAY
    monkeypatch.setattr(run_writer, "PASS_TIMEOUT", -1)
    assert await job.run(SWEEP) == NEXT_PASS_DELAY > BUSY_DELAY


async def test_curves_of_the_best_trials_are_stored_without_values_that_are_not_finite(ended, tracking):
    trials = {trial.name for trial in (await stored_results(SWEEP, ended.clients)).trials}
    curve = [Point(1, math.nan, 7.0), Point(2, 0.5, 8.0)]
    ended.live.reported = dict.fromkeys(trials, curve)
    await TrialRunsJob(ended.clients, file_writer(tracking)).run(SWEEP)
    results = await stored_results(SWEEP, ended.clients)
    assert results.curves == dict.fromkeys(trials, (Point(2, 0.5),))


async def test_curves_that_mlflow_does_not_answer_leave_the_runs_written(ended, tracking):
    ended.live.away = True
    assert await TrialRunsJob(ended.clients, file_writer(tracking)).run(SWEEP) is None
    results = await stored_results(SWEEP, ended.clients)
    assert (results.curves, results.runs_pending) == ({}, False)


async def test_results_that_a_later_end_stored_meanwhile_are_not_overwritten(ended, tracking):
    before = await stored_results(SWEEP, ended.clients)
    later = replace(before, ended=before.ended + timedelta(hours=1))

    class Slow(RunWriter):
        async def complete(self, *arguments):
            await ended.clients.kept_results.save(later)
            return await super().complete(*arguments)

    assert (
        await TrialRunsJob(ended.clients, Slow(tracking, "http://ui", file_search(tracking))).run(SWEEP)
        == NEXT_PASS_DELAY
    )
    assert await stored_results(SWEEP, ended.clients) == later
