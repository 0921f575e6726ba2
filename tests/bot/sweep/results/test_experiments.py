"""An MLflow that is slow or away holds up nothing."""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bot.core.record import Phase
from bot.sweep.results.experiments import (
    CLIENT_SETTINGS,
    ExperimentDeletedError,
    MlflowExperiments,
    experiment_tags,
)
from tests.bot.factories import OWNER, a_sweep
from tests.bot.sweep.results.mlflow_client import mlflow_client

ROOT = Path(__file__).parents[4]
SWEEP = a_sweep(Phase.PENDING)


class Slow(MlflowExperiments):
    """An MLflow that responds when allowed, and its requests."""

    def __init__(self, wake):
        super().__init__("http://mlflow", "http://ui", wake)
        self.may_answer, self.asked = threading.Event(), []

    def _experiment(self, name, tags):
        self.asked.append(name)
        self.may_answer.wait(60)
        return "7"


@pytest.fixture
def woken():
    return []


@pytest.fixture
def slow(woken):
    async def wake(sweep_id):
        woken.append(sweep_id)

    slow = Slow(wake)
    yield slow
    slow.may_answer.set()


@pytest.mark.slow
def test_client_sends_no_telemetry():
    """In a process of its own: MLflow decides at its import, and sends nothing from a test."""
    program = (
        "from bot.sweep.results.experiments import tracking_client; tracking_client('http://127.0.0.1:9')\n"
        "from mlflow.telemetry.client import get_telemetry_client; print(get_telemetry_client())"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert run.stdout == "None\n"


async def test_reconcile_does_not_wait_for_mlflow_and_the_response_wakes_the_sweep(slow, woken, wait_until):
    assert await slow.open(SWEEP) is None
    await wait_until(lambda: slow.asked, "MLflow is requested")
    assert await slow.open(SWEEP) is None
    slow.may_answer.set()
    await wait_until(lambda: woken, "the sweep is woken")
    assert (woken, slow.asked) == ([SWEEP.id], [SWEEP.plan.results_name])
    url = "http://ui/#/experiments/7/runs?workflowType=machine_learning"
    assert await slow.open(SWEEP) == url


async def test_urls_found_by_another_worker_do_not_accumulate(slow, woken, wait_until, monkeypatch):
    monkeypatch.setattr("bot.sweep.results.experiments.MAX_FOUND", 2)
    slow.may_answer.set()
    for number in range(4):
        await slow.open(replace(SWEEP, id=f"lr-{number}"))
    await wait_until(lambda: len(woken) == 4, "all URLs are found")
    assert list(slow._found) == ["lr-2", "lr-3"]


async def test_silent_server_is_called_once_and_then_skipped_for_a_while(wait_until, caplog, monkeypatch):
    async def never(_):
        raise AssertionError

    monkeypatch.setitem(CLIENT_SETTINGS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        results = MlflowExperiments(f"http://127.0.0.1:{silent.getsockname()[1]}", "http://ui", never)
        for number in range(3):
            assert await results.open(replace(SWEEP, id=f"lr-{number}")) is None
        await wait_until(lambda: not results._tasks, "all three are given up")
        assert await results.open(SWEEP) is None
        assert not results._tasks
    assert [record.getMessage()[:18] for record in caplog.records] == ["MLflow unavailable"]


async def test_experiment_that_mlflow_refuses_holds_up_no_other(woken, wait_until):
    class Refusing(Slow):
        def _experiment(self, name, tags):
            if name == SWEEP.plan.results_name:
                self.asked.append(name)
                raise ExperimentDeletedError("deleted")
            return "7"

    async def wake(sweep_id):
        woken.append(sweep_id)

    results = Refusing(wake)
    await results.open(SWEEP)
    await wait_until(lambda: not results._tasks, "it is refused")
    await results.open(SWEEP)
    await results.open(replace(SWEEP, id="lr-1", plan=replace(SWEEP.plan, results_name="digits/lr-1")))
    await wait_until(lambda: woken, "the other one is opened")
    assert (woken, len(results.asked)) == (["lr-1"], 1)


async def test_submission_waits_for_an_experiment_being_created_only(slow, woken, monkeypatch):
    await slow.open(SWEEP)
    slow.may_answer.set()
    await slow.ready(SWEEP)
    assert woken == [SWEEP.id]

    slow.may_answer.clear()
    monkeypatch.setattr("bot.sweep.results.experiments.CREATE_TIMEOUT", 0.01)
    other = replace(SWEEP, id="lr-other")
    await slow.open(other)
    await slow.ready(other)
    assert woken == [SWEEP.id]


def test_experiment_is_described_with_who_started_what(tmp_path, woken, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    plan = replace(SWEEP.plan, subject="Wider `net` <img src=x> [x](http://evil)\n# head")
    sweep = replace(SWEEP, plan=plan, permalink="https://lab.slack.com/archives/C1/p1")
    tags = experiment_tags(sweep, plan, "https://katib.example")
    client = mlflow_client(tmp_path.as_uri())
    number = MlflowExperiments(tmp_path.as_uri(), "http://ui", woken.append)._experiment("digits/lr", tags)
    stored = client.get_experiment(number).tags
    assert stored["mlflow.note.content"] == (
        "Sweep `lr-brave-otter`, started by ada in Slack: branch `main`, "
        "commit `01234567` (Wider  net   img src x   x (http //evil) # head), space `lr`, "
        "up to 4 trials to minimize `val_loss`. [Thread](https://lab.slack.com/archives/C1/p1) "
        "[Katib](https://katib.example/katib/experiment/sweeps/lr-brave-otter)"
    )
    assert {name: stored[f"sweepbot.{name}"] for name in ("sweep", "commit", "owner", "owner_id")} == {
        "sweep": SWEEP.id,
        "commit": plan.commit,
        "owner": "ada",
        "owner_id": OWNER,
    }


def test_experiment_created_by_a_trial_gets_its_description(tmp_path, woken, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow_client(tmp_path.as_uri())
    by_a_trial = client.create_experiment("digits/lr")
    results = MlflowExperiments(tmp_path.as_uri(), "http://ui", woken.append)
    assert results._experiment("digits/lr", experiment_tags(SWEEP, SWEEP.plan)) == by_a_trial
    assert "started by ada" in client.get_experiment(by_a_trial).tags["mlflow.note.content"]
