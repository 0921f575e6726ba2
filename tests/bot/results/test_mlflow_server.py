"""Trials' runs on MLflow's real server: what training scripts leave there, and what Sweepbot makes of it."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest
import pytest_asyncio
from mlflow import MlflowClient

from bot.results import run_tags
from bot.results.run_writer import RunWriter
from k8s.katib.status import TrialState
from local.processes import Processes
from tests.bot.factories import NOW
from tests.bot.results.factories import a_result, some_results

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PARAMETERS = {"lr": "0.01"}
FACTS = {"sweep": "lr-brave-otter", "owner": "ada", "owner_id": "U1", "team": "vision"}
SOURCE = {"repository": "https://git.example/digits.git", "branch": "main", "commit": "ab" * 20}
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    processes = Processes(folder)
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "0"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    await processes.start("mlflow", *command, env={"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
    yield await processes.says("mlflow", r"running on (http://[0-9.:]+)")
    await processes.stop_all()


def train(server, folder, trial, script):
    """Run a script as a trial's pod does."""
    tags = run_tags.planned(**FACTS, **SOURCE) | run_tags.submitted(
        FACTS["sweep"], "r/i@sha256:12", "https://s/p1"
    )
    context = run_tags.encode(tags).replace("${trialParameters.trialName}", trial)
    assert json.loads(context)[run_tags.TRIAL] == trial
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    env |= {"MLFLOW_TRACKING_URI": server, "MLFLOW_EXPERIMENT_NAME": "digits/lr", run_tags.VARIABLE: context}
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, check=False)


async def test_trial_has_one_complete_run_whatever_its_script_logs(server, tmp_path):
    MlflowClient(server).create_experiment("digits/lr")
    await asyncio.gather(
        *(
            asyncio.to_thread(train, server, tmp_path, f"lr-brave-otter-{name}", script)
            for name, script in SCRIPTS.items()
        )
    )
    times = {"started": NOW, "ended": NOW + timedelta(minutes=1)}
    trials = [
        a_result(name, state=STATES.get(name, TrialState.SUCCEEDED), parameters=PARAMETERS, **times)
        for name in SCRIPTS
    ]
    results = some_results(*trials, mlflow_experiment="digits/lr")
    urls = await RunWriter(server, "http://ui").complete(results, run_tags.planned(**FACTS, **SOURCE))
    client = MlflowClient(server)
    for trial in trials:
        name = trial.name.removeprefix("lr-brave-otter-")
        run = client.get_run(urls[trial.name].rpartition("/")[2])
        assert run.info.run_name == ("mine" if name == "ownname" else trial.name)
        assert {run_tags.TRIAL: trial.name, "sweepbot.owner": "ada", "mlflow.user": "ada"}.items() <= (
            run.data.tags.items()
        ), name
        assert run.data.params["lr"] == "0.01", name
        assert run.data.metrics["val_loss"] == {"crashing": 0.9, "killed": 0.7}.get(name, 0.5), name
        assert run.info.status == {"crashing": "FAILED", "killed": "KILLED"}.get(name, "FINISHED"), name
        assert run.data.tags["sweepbot.state"] == trial.state.value
        assert "mlflow.parentRunId" not in run.data.tags
    number = client.get_experiment_by_name("digits/lr").experiment_id
    assert len(client.search_runs([number])) == len(SCRIPTS) + 3  # two nested ones, and one more of `several`
