"""Completing the runs of an ended sweep, with MLflow's own store of files behind its client."""

import math
import socket
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.curves import Point
from bot.sweep.results import run_search, run_tags, run_writer
from bot.sweep.results.experiments import CLIENT_SETTINGS
from bot.sweep.results.run_writer import Completion, MlflowUnavailableError, RunWriter
from bot.sweep.results.tracking_api import TrackingError
from k8s.engine import TrialState
from k8s.retry import Retry
from tests.bot.factories import NOW
from tests.bot.sweep.results.factories import a_result, some_results
from tests.bot.sweep.results.mlflow_client import entities, file_writer, mlflow_client, nothing

TAGS = {run_tags.SWEEP: "lr-brave-otter", run_tags.OWNER: "ada"}
TIMES = {"started": NOW, "ended": NOW + timedelta(minutes=5)}
RESULTS = some_results(
    a_result(**TIMES),
    a_result("t2", state=TrialState.FAILED, value=None, **TIMES),
    mlflow_experiment="digits/lr-brave-otter",
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path.as_uri()


@pytest.fixture
def writer(store):
    return file_writer(store)


def runs(store):
    """Return the runs by name; a name must not come twice."""
    client = mlflow_client(store)
    experiment = client.get_experiment_by_name("digits/lr-brave-otter")
    found = client.search_runs([experiment.experiment_id])
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.info.run_name.removeprefix("lr-brave-otter-"): run for run in found}


async def test_silent_trials_get_their_runs_once(store, writer):
    done = await writer.complete(RESULTS, TAGS, nothing)
    assert done.complete
    assert await writer.complete(RESULTS, TAGS, nothing) == done
    first, second = (runs(store)[name] for name in ("t1", "t2"))
    assert first.data.params == {"lr": "0.01", "layers": "2", "optimizer": "adam"}
    assert (first.data.metrics, second.data.metrics) == ({"val_loss": 0.5}, {})
    assert (first.info.status, second.info.status) == ("FINISHED", "FAILED")
    assert first.info.end_time - first.info.start_time == 300_000
    assert {**TAGS, run_tags.TRIAL: "lr-brave-otter-t1", "sweepbot.state": "succeeded"}.items() <= (
        first.data.tags.items()
    )
    number = first.info.experiment_id
    url = f"http://ui/#/experiments/{number}/runs/{first.info.run_id}"
    assert done.urls["lr-brave-otter-t1"] == url


async def test_silent_trial_gets_its_whole_curves_and_only_once(store, writer, monkeypatch):
    monkeypatch.setattr(run_writer, "MAX_METRICS_PER_REQUEST", 40)
    loss = tuple(
        Point(step, math.nan if step == 7 else 1 / step, NOW.timestamp() + step) for step in range(1, 101)
    )
    reads = []

    async def read():
        reads.append(loss)
        return {"lr-brave-otter-t1": {"val_loss": loss, "unknown": loss}}

    for _ in range(2):
        await writer.complete(RESULTS, TAGS, read)
    assert len(reads) == 1, "not again without a missing part"
    run = runs(store)["t1"]
    history = mlflow_client(store).get_metric_history(run.info.run_id, "val_loss")
    assert [(each.step, each.timestamp) for each in history] == [(p.step, round(p.at * 1000)) for p in loss]
    assert run.data.metrics == {"val_loss": 0.01}


async def test_tags_are_written_last_as_they_say_that_a_run_is_complete(store, writer, monkeypatch):
    loss, written = tuple(Point(step, 1 / step, step) for step in range(1, 1_001)), []
    stores = type(mlflow_client(store)._tracking_client.store)
    real = stores.log_batch

    def log_batch(self, run_id, metrics, params, tags):
        written.append((len(metrics), len(tags) > 0))
        return real(self, run_id, metrics, params, tags)

    async def read():
        return {"lr-brave-otter-t1": {"val_loss": loss}}

    monkeypatch.setattr(stores, "log_batch", log_batch)
    await writer.complete(RESULTS, TAGS, read)
    assert written[:2] == [(800, False), (200, True)]


@pytest.mark.parametrize("crash_at", range(1, 10))
async def test_worker_that_dies_at_any_call_leaves_no_second_run(store, writer, monkeypatch, crash_at):
    calls, real = 0, run_writer.tracking_client

    class Dying:
        def __init__(self, client):
            self.client = client

        def __getattr__(self, name):
            def call(*args, **kwargs):
                nonlocal calls
                answer = getattr(self.client, name)(*args, **kwargs)
                calls += 1
                if calls == crash_at:
                    raise ConnectionError(name)
                return answer

            return call

    monkeypatch.setattr(run_writer, "RETRY", Retry(base=0))
    monkeypatch.setattr(run_writer, "tracking_client", lambda uri: Dying(real(uri)))
    with pytest.raises(MlflowUnavailableError):
        await writer.complete(RESULTS, TAGS, nothing)
    assert len((await writer.complete(RESULTS, TAGS, nothing)).urls) == 2
    found = runs(store)
    assert found["t1"].data.metrics == {"val_loss": 0.5}
    assert [run.info.status for _, run in sorted(found.items())] == ["FINISHED", "FAILED"]
    history = mlflow_client(store).get_metric_history(found["t1"].info.run_id, "val_loss")
    assert {point.value for point in history} == {0.5}


async def test_run_that_mlflow_rejects_does_not_hold_up_the_others(store, writer, caplog):
    bad = a_result("t0", parameters={"a\nb": "1"})
    await writer.complete(replace(RESULTS, trials=(bad, *RESULTS.trials)), TAGS, nothing)
    assert runs(store)["t1"].data.metrics == {"val_loss": 0.5}
    assert "MLflow rejected the run of lr-brave-otter-t0" in caplog.text


async def test_run_at_which_mlflow_fails_waits_alone(store, writer, monkeypatch):
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    stores, broken = type(mlflow_client(store)._tracking_client.store), []
    real = stores.log_batch

    def log_batch(self, run_id, metrics, params, tags):
        broken[:] = broken or [run_id]
        if run_id in broken:
            raise MlflowException("API request failed with error code 500")
        return real(self, run_id, metrics, params, tags)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "log_batch", log_batch)
        done = await writer.complete(RESULTS, TAGS, nothing)
        assert (list(done.urls), done.complete, done.failed) == (["lr-brave-otter-t2"], True, True)
        other = replace(RESULTS, mlflow_experiment="digits/other")
        assert len((await writer.complete(other, TAGS, nothing)).urls) == 2
    done = await writer.complete(RESULTS, TAGS, nothing)
    assert (len(done.urls), done.failed) == (2, False)
    assert runs(store)["t1"].data.metrics == {"val_loss": 0.5}


async def test_search_at_which_mlflow_fails_holds_up_no_other_sweep(store, writer, monkeypatch):
    def failing(*_):
        raise TrackingError("MLflow answered runs/search with HTTP 500")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_search", failing)
        with pytest.raises(MlflowUnavailableError, match="HTTP 500"):
            await writer.complete(RESULTS, TAGS, nothing)
    assert len((await writer.complete(RESULTS, TAGS, nothing)).urls) == 2, "at once"


async def test_deleted_experiment_holds_up_no_other_sweep_and_is_completed_once_restored(store, writer):
    client, other = mlflow_client(store), replace(RESULTS, mlflow_experiment="digits/other")
    deleted = client.create_experiment(RESULTS.mlflow_experiment)
    client.delete_experiment(deleted)
    with pytest.raises(MlflowUnavailableError, match="was deleted; restore it"):
        await writer.complete(RESULTS, TAGS, nothing)
    assert len((await writer.complete(other, TAGS, nothing)).urls) == 2
    client.restore_experiment(deleted)
    assert len((await writer.complete(RESULTS, TAGS, nothing)).urls) == 2


async def test_renamed_experiment_keeps_its_runs_and_a_second_one_of_later_trials_is_read_too(store, writer):
    client, name = mlflow_client(store), RESULTS.mlflow_experiment
    first = client.create_experiment(name, tags=TAGS)
    client.rename_experiment(first, "the best")
    second = client.create_experiment(name)  # as a trial does
    own = client.create_run(second, tags={run_tags.TRIAL: "lr-brave-otter-t2"}).info.run_id
    url = f"http://ui/#/experiments/{first}/runs?workflowType=machine_learning"
    done = await writer.complete(replace(RESULTS, mlflow_url=url), TAGS, nothing)
    assert done.urls["lr-brave-otter-t1"].startswith(f"http://ui/#/experiments/{first}/runs/")
    assert done.urls["lr-brave-otter-t2"] == f"http://ui/#/experiments/{second}/runs/{own}"
    assert [len(client.search_runs([number])) for number in (first, second)] == [1, 1]
    client.set_experiment_tag(first, run_tags.SWEEP, "of another MLflow, with the same ID")
    later = replace(RESULTS, mlflow_url=url, trials=(a_result("t3", **TIMES),))
    assert f"/{second}/" in (await writer.complete(later, TAGS, nothing)).urls["lr-brave-otter-t3"]


async def test_trials_beyond_the_first_pages_are_searched_by_name(store, writer, monkeypatch):
    monkeypatch.setattr(run_search, "PAGE_SIZE", 1)
    monkeypatch.setattr(run_search, "MAX_PAGES", 1)
    await writer.complete(RESULTS, TAGS, nothing)
    await writer.complete(RESULTS, TAGS, nothing)
    monkeypatch.setattr(run_writer, "PASS_TIMEOUT", -1)
    monkeypatch.setattr(run_search.RunSearch, "of", None)  # a search for each trial counts as writing
    assert not (await writer.complete(RESULTS, TAGS, nothing)).complete
    assert set(runs(store)) == {"t1", "t2"}


async def test_thousand_complete_runs_are_read_in_pages_and_none_is_written(monkeypatch):
    calls = []

    class Reading:
        def get_experiment_by_name(self, name):
            return entities().Experiment(
                "1", name, "", "active", tags=[entities().ExperimentTag(run_tags.SWEEP, RESULTS.sweep)]
            )

        def search_runs(self, experiments, where, max_results, page_token=None):
            first = int(page_token or 0)
            calls.append(first)
            after = first + max_results
            found = [complete_run(number) for number in range(first, min(after, 1000))]
            return entities().PagedList(found, str(after) if after < 1000 else None)

    monkeypatch.setattr(run_writer, "tracking_client", lambda _: Reading())
    trials = [a_result(f"t{number}") for number in range(1000)]
    done = await file_writer("http://mlflow").complete(some_results(*trials), TAGS, nothing)
    assert (len(done.urls), calls) == (1000, [*range(0, 1000, run_search.PAGE_SIZE)])


def complete_run(number):
    name = f"lr-brave-otter-t{number}"
    info = entities().RunInfo(f"r{number}", "1", "ada", "FINISHED", 1, 2, "active", run_name=name)
    tags = [entities().RunTag(run_tags.TRIAL, name), entities().RunTag("sweepbot.state", "succeeded")]
    return entities().Run(
        info, entities().RunData(metrics=[entities().Metric("val_loss", 0.5, 1, 0)], params=[], tags=tags)
    )


async def test_pass_ends_in_time_and_the_next_one_continues(store, writer, monkeypatch):
    monkeypatch.setattr(run_writer, "PASS_TIMEOUT", -1)
    assert await writer.complete(RESULTS, TAGS, nothing) == Completion({}, complete=False)
    monkeypatch.setattr(run_writer, "PASS_TIMEOUT", 60)
    first = replace(RESULTS, trials=RESULTS.trials[:1])
    done, searched, search = await writer.complete(first, TAGS, nothing), [], writer._search
    [written] = [replace(trial, run_url=done.urls[trial.name]) for trial in first.trials]
    monkeypatch.setattr(writer, "_search", lambda *args: searched.append(args[1]) or search(*args))
    later = await writer.complete(replace(RESULTS, trials=(written, RESULTS.trials[1])), TAGS, nothing)
    assert (list(later.urls), later.complete) == (["lr-brave-otter-t2"], True)
    assert searched == ["tags.`sweepbot.trial` = 'lr-brave-otter-t2'"], "no other run is read again"


async def test_pass_writes_even_if_reading_took_longer_than_a_pass(store, writer, monkeypatch):
    seconds, read = [0.0], run_search.RunSearch.read

    def slow_read(search):
        seconds[0] += run_writer.PASS_TIMEOUT + 1
        return read(search)

    monkeypatch.setattr(run_search.RunSearch, "read", slow_read)
    monkeypatch.setattr(run_writer, "monotonic", lambda: seconds[0])
    assert len((await writer.complete(RESULTS, TAGS, nothing)).urls) == 2


async def test_silent_server_is_called_once_and_then_left_alone(caplog, monkeypatch):
    monkeypatch.setitem(CLIENT_SETTINGS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        writer = RunWriter(f"http://127.0.0.1:{silent.getsockname()[1]}", "http://ui")
        for _ in range(3):
            with pytest.raises(MlflowUnavailableError):
                await writer.complete(RESULTS, TAGS, nothing)
    assert len([r for r in caplog.records if r.name == run_writer.__name__]) == 1
