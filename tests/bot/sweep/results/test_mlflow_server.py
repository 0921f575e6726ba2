"""Trials' runs on MLflow's real server: what training scripts leave there, and what Sweepbot makes of it."""

import asyncio
import contextlib
import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import requests

from bot.sweep.results import experiments, run_tags
from bot.sweep.results.csv_file import csv_text
from bot.sweep.results.run_writer import MlflowUnavailableError, RunWriter
from bot.sweep.results.table import best_table
from bot.sweep.results.tracking_api import TrackingApi
from k8s.engine import TrialState
from tests.bot.factories import NOW
from tests.bot.sweep.results.factories import a_result, some_results
from tests.bot.sweep.results.mlflow_client import mlflow_client, nothing
from tests.shared_mlflow import DATABASE

EXPERIMENT = "training/lr"  # a name that no other test's sweeps have
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PARAMETERS = {"lr": "0.01"}
FACTS = {"sweep": "lr-brave-otter", "owner": "ada", "owner_id": "U1", "team": "vision"}
SOURCE = {"repository": "https://git.example/digits.git", "branch": "main", "commit": "ab" * 20}
NO_PANDAS = "import sys; sys.modules['pandas'] = None\n"  # MLflow imports it where it is: a third of its time
PLAIN = "import mlflow; mlflow.log_params({'lr': 0.01}); mlflow.log_metrics({'val_loss': 0.5}, step=1)"
OWN_NAME = "import mlflow\nwith mlflow.start_run(run_name='mine'): mlflow.log_metric('val_loss', 0.5)"
NESTED = """
import mlflow
with mlflow.start_run():
    mlflow.log_metric('val_loss', 0.5)
    for fold in range(2):
        with mlflow.start_run(nested=True): mlflow.log_metric('val_loss', fold)
"""
SEVERAL = """
import mlflow
with mlflow.start_run(): mlflow.log_metric('pretrain_loss', 3)
with mlflow.start_run(): mlflow.log_metric('val_loss', 0.5)
"""
AUTOLOGGED = """
import mlflow
from sklearn.linear_model import LinearRegression
mlflow.sklearn.autolog(log_models=False, log_datasets=False)
LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])
"""
TAGS = run_tags.planned(**FACTS, **SOURCE)
TENSORBOARD = """
from tensorboardX import SummaryWriter
SummaryWriter(logdir='.').add_scalar('val_loss', 0.5, 1)
"""
CRASHING = "import mlflow; mlflow.log_metric('val_loss', 0.9); raise ValueError('bad data')"
KILLED = "import mlflow, os; mlflow.log_metric('val_loss', 0.7); os.kill(os.getpid(), 9)"
STATES = {"crashing": TrialState.FAILED, "killed": TrialState.KILLED}
SCRIPTS = {
    "plain": PLAIN,
    "ownname": OWN_NAME,
    "nested": NESTED,
    "several": SEVERAL,
    "autologged": AUTOLOGGED,
    "tensorboard": TENSORBOARD,
    "silent": "print('val_loss=0.5')",
    "crashing": CRASHING,
    "killed": KILLED,
}


def train(mlflow_url, folder, trial, script):
    """Run a script as a trial's pod does."""
    tags = run_tags.planned(**FACTS, **SOURCE) | run_tags.submitted(
        FACTS["sweep"], "r/i@sha256:12", "https://s/p1"
    )
    context = run_tags.encode(tags).replace("${trialParameters.trialName}", trial)
    assert json.loads(context)[run_tags.TRIAL] == trial
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    env |= {
        "MLFLOW_TRACKING_URI": mlflow_url,
        "MLFLOW_EXPERIMENT_NAME": EXPERIMENT,
        run_tags.VARIABLE: context,
    }
    script = script if script == AUTOLOGGED else NO_PANDAS + script
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, check=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(mlflow_url, tmp_path_factory):
    """Return the results of a sweep whose trials ran these scripts, with their runs completed."""
    folder = tmp_path_factory.mktemp("trials")
    mlflow_client(mlflow_url).create_experiment(EXPERIMENT)
    await asyncio.gather(
        *(
            asyncio.to_thread(train, mlflow_url, folder, f"lr-brave-otter-{name}", script)
            for name, script in SCRIPTS.items()
        )
    )
    times = {"started": NOW, "ended": NOW + timedelta(minutes=1)}
    trials = [
        a_result(name, state=STATES.get(name, TrialState.SUCCEEDED), parameters=PARAMETERS, **times)
        for name in SCRIPTS
    ]
    trials = [
        replace(trial, value=trial.value if trial.name[15:] not in STATES else None) for trial in trials
    ]
    results = some_results(*trials, mlflow_experiment=EXPERIMENT)
    done = await RunWriter(mlflow_url, "http://ui").complete(results, TAGS, nothing)
    assert done.complete
    return replace(
        results, trials=tuple(replace(trial, run_url=done.urls[trial.name]) for trial in results.trials)
    )


async def test_trial_has_one_complete_run_whatever_its_script_logs(mlflow_url, ended):
    client = mlflow_client(mlflow_url)
    for trial in ended.trials:
        name = trial.name.removeprefix("lr-brave-otter-")
        run = client.get_run(trial.run_url.rpartition("/")[2])
        assert run.info.run_name == ("mine" if name == "ownname" else trial.name)
        assert {run_tags.TRIAL: trial.name, "sweepbot.owner": "ada", "mlflow.user": "ada"}.items() <= (
            run.data.tags.items()
        ), name
        assert run.data.params["lr"] == "0.01", name
        assert run.data.metrics["val_loss"] == {"crashing": 0.9, "killed": 0.7}.get(name, 0.5), name
        assert run.info.status == {"crashing": "FAILED", "killed": "KILLED"}.get(name, "FINISHED"), name
        assert run.data.tags["sweepbot.state"] == trial.state.value
        assert "mlflow.parentRunId" not in run.data.tags
    number = client.get_experiment_by_name(EXPERIMENT).experiment_id
    assert len(client.search_runs([number])) == len(SCRIPTS) + 3  # two nested ones, and one more of `several`


async def test_every_figure_of_the_end_is_in_the_csv_and_in_mlflow(mlflow_url, ended):
    rows = {row["trial"]: row for row in csv.DictReader(csv_text(ended).splitlines())}
    lines = best_table(ended).text.splitlines()[1:]
    assert len(lines) == len(SCRIPTS) - len(STATES)
    for line in lines:
        value, trial = re.fullmatch(r"\d+\. (\S+) \(`(.+)`\)", line).groups()
        assert f"{float(rows[trial]['val_loss']):.6g}" == value
    for trial, row in rows.items():
        run = mlflow_client(mlflow_url).get_run(row["run_url"].rpartition("/")[2])
        assert run.data.tags[run_tags.TRIAL] == trial
        assert run.data.params["lr"] == row["lr"]
        assert row["val_loss"] in {"", repr(run.data.metrics["val_loss"])}, trial
        assert run.data.tags["sweepbot.state"] == (
            "succeeded" if row["state"] == "done" else STATES[trial[15:]]
        )


@pytest.fixture
def calls(monkeypatch):
    """Count the requests to MLflow, by the end of their path."""
    found, send = Counter(), requests.Session.request

    def counting(session, method, url, *args, **kwargs):
        found[url.partition("?")[0].rpartition("/mlflow/")[2]] += 1
        return send(session, method, url, *args, **kwargs)

    monkeypatch.setattr(requests.Session, "request", counting)
    return found


INSERT = {
    "runs": "insert into runs (run_uuid, name, status, start_time, lifecycle_stage, artifact_uri,"
    " experiment_id, user_id) values (?, ?, ?, ?, 'active', 'mlflow-artifacts:/x', ?, 'ada')",
    "tags": "insert into tags (key, value, run_uuid) values (?, ?, ?)",
    "params": "insert into params (key, value, run_uuid) values ('lr', '0.01', ?)",
    "latest_metrics": "insert into latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
    " values ('val_loss', 0.5, 1000, 1, 0, ?)",
    "metrics": "insert into metrics (key, value, timestamp, step, is_nan, run_uuid)"
    " values ('val_loss', 0.5, 1000, 1, 0, ?)",
}


def add_runs(mlflow_url, database, name, states):
    """Create an experiment with runs as trainings leave them, directly in the server's database."""
    number = mlflow_client(mlflow_url).create_experiment(name)
    with sqlite3.connect(database, timeout=60) as connection:
        for place, (trial, (status, tags)) in enumerate(states.items()):
            run = f"{int(number):08x}{place:024x}"
            named = {run_tags.TRIAL: trial, run_tags.RUN_NAME: trial} | tags
            connection.execute(INSERT["runs"], (run, trial, status, place, int(number)))
            connection.executemany(INSERT["tags"], [(*each, run) for each in named.items()])
            for table in ("params", "metrics", "latest_metrics"):
                connection.execute(INSERT[table], (run,))


async def test_thousand_runs_cost_few_reads_and_one_write_for_each_missing_part(
    mlflow_url, mlflow_folder, calls
):
    complete = ("FINISHED", {"sweepbot.state": "succeeded"})
    logged = {f"lr-brave-otter-{n}": complete for n in range(985)}
    logged |= {f"lr-brave-otter-{n}": ("FINISHED", {}) for n in range(985, 990)}
    logged |= {f"lr-brave-otter-{n}": ("RUNNING", {}) for n in range(990, 995)}
    add_runs(mlflow_url, mlflow_folder / DATABASE, "digits/thousand", logged)
    states = dict.fromkeys(range(990, 995), TrialState.KILLED)
    trials = [
        a_result(str(n), state=states.get(n, TrialState.SUCCEEDED), parameters=PARAMETERS)
        for n in range(1000)
    ]
    results, writer = (
        some_results(*trials, mlflow_experiment="digits/thousand"),
        RunWriter(mlflow_url, "http://ui"),
    )
    calls.clear()
    done = await writer.complete(results, {run_tags.SWEEP: results.sweep}, nothing)
    assert (len(done.urls), done.complete) == (1000, True)
    writes = {"runs/log-batch": 15, "runs/create": 5, "runs/update": 5 + 5}
    once = {"experiments/get-by-name": 1, "experiments/set-experiment-tag": 1}
    assert calls == {**once, **writes, "runs/search": 10}
    calls.clear()
    assert await writer.complete(results, {run_tags.SWEEP: results.sweep}, nothing) == done
    assert calls == {"experiments/get-by-name": 1, "runs/search": 10}
    calls.clear()
    api = TrackingApi(mlflow_url)
    live = await asyncio.to_thread(api.runs, "digits/thousand", "val_loss")
    best = {run.id: trial for trial, run in list(live.items())[:6]}
    curves = await asyncio.to_thread(api.curves, best, "val_loss")
    assert (len(live), len(curves)) == (1000, 6)
    assert calls == {"experiments/get-by-name": 1, "runs/search": 4, "metrics/get-history-bulk-interval": 1}


async def test_server_that_stops_answering_gets_two_requests_and_later_all_runs(
    mlflow_url, calls, monkeypatch
):
    """Between them is a connection that holds back what the real server answers."""
    monkeypatch.setitem(experiments.CLIENT_SETTINGS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    answers = asyncio.Event()

    async def relay(reader, writer):
        url = urlsplit(mlflow_url)
        upstream, onward = await asyncio.open_connection(url.hostname, url.port)
        await asyncio.gather(pass_on(reader, onward), pass_on(upstream, writer, answers))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        results = some_results(a_result(parameters=PARAMETERS), mlflow_experiment="digits/slow")
        writer = RunWriter(url, "http://ui")
        for _ in range(3):
            with pytest.raises(MlflowUnavailableError):
                await writer.complete(results, {}, nothing)
        assert calls == {"experiments/get-by-name": 1, "experiments/search": 1}
        monkeypatch.setitem(experiments.CLIENT_SETTINGS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        answers.set()
        done = await RunWriter(url, "http://ui").complete(results, {}, nothing)
        assert list(done.urls) == ["lr-brave-otter-t1"]


async def pass_on(reader, writer, when=None):
    """Copy bytes, those after an event if there is one, until either side closes."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(2**16):
            if when:
                await when.wait()
            writer.write(piece)
            await writer.drain()
    writer.close()
