"""Sweeps whose trainings only write TensorBoard files; the reader in the trials' pods is a real process."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import pytest_asyncio

from bot.sweep.results.store import _parsed
from k8s.pods import READER
from local.world import NAMESPACE
from tests.bot.sweep.results.mlflow_client import mlflow_client
from tests.scenarios.local_world import Instance, instance, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TRAINING = """
import argparse, numpy, os, time
from tensorboardX import SummaryWriter
options = argparse.ArgumentParser()
options.add_argument("--width", type=int)
options.add_argument("--tensorboard_dir")
options = options.parse_args()
value = VALUE
with SummaryWriter(options.tensorboard_dir, flush_secs=1) as log:
    for step in range(1, 10):
        log.add_scalar("loss", value / step, step)
        log.add_scalar("rate", 0.1, step)
        log.add_image("samples", numpy.full((3, 8, 8), value / 2), step)
    while value > FIRST and os.path.exists(HOLD):
        time.sleep(0.5)
    log.add_scalar("loss", value, 10)
"""
SPACE = """\
command: python NAME.py
objective: {metric: loss, goal: minimize, strategy: latest}
algorithm: grid
trials: {parallel: PARALLEL}
parameters:
  width: {min: 1, max: 2}
"""
ASHA = "early_stopping: {name: asha, grace_period: 3, reduction_factor: 2}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory, mlflow_url):
    folder = tmp_path_factory.mktemp("instance")
    async with instance(folder, mlflow_url, METRICS_READER_IMAGE="reg.example/sweepbot:1") as made:
        files = {}
        # The grid is shuffled, so the second trial is the worse one whatever its width.
        first_one = repr(str(folder / "first"))
        order = f"2 if os.path.exists({first_one}) else open({first_one}, 'x').write('.')"
        for name, value, first, parallel, more in (
            ("held", "options.width", 0, 2, ""),
            ("judged", order, 1, 1, ASHA),
        ):
            program = TRAINING.replace("VALUE", value).replace("FIRST", str(first))
            program = program.replace("HOLD", repr(str(made.hold)))
            space = SPACE.replace("NAME", f"files_{name}").replace("PARALLEL", str(parallel))
            files |= {f"files_{name}.py": program, f"sweeps/files-{name}.yaml": space + more}
        made.commit("Write event files only", files)
        yield made


@pytest.mark.features("live_values")
async def test_values_and_curves_are_live_and_the_last_value_is_the_trials(here: Instance, mlflow_url):
    here.hold.touch()
    sweep = await here.sweep("branch=main space=files-held")
    await sweep.shows("Best running trial: `loss` *0.111111* at step 9")
    for metric, other in (("loss", "rate"), ("rate", "loss")):
        drawn = await here.answer(f"curves {sweep.id} metric={metric}")
        assert f"2 trials with `{metric}` in TensorBoard files" in drawn
        assert f"Also logged: `{other}`." in drawn
    assert "Also logged: `rate`." in await here.answer(f"logs {sweep.id}")
    here.hold.unlink()
    await sweep.posts("Finished:", "2 trials done")
    await sweep.shows("Best: `loss` *1*")
    metrics = [trial["status"]["observation"]["metrics"][0] for trial in sweep.objects("Trial")]
    assert sorted((m["latest"], round(float(m["min"]), 6), m["max"]) for m in metrics) == [
        ("1.0", 0.111111, "1.0"),
        ("2.0", 0.222222, "2.0"),
    ]
    stored = here.here.store.get("ConfigMap", NAMESPACE, f"results-{sweep.id}")["binaryData"]["results"]
    curves = [[point.step for point in curve] for curve in _parsed(stored).curves.values()]
    assert curves == [list(range(1, 11))] * 2
    await until(lambda: uploaded(here) == ["samples-9.png"], "the best trial's picture is there", sweep.story)
    await here.types(f"show {sweep.id} {sweep.objects('Trial')[0]['metadata']['name']}")
    await until(lambda: uploaded(here) == ["samples-9.png"] * 2, "it is shown on demand", sweep.story)
    # A thread: the import takes seconds, in which the world, which is in this process, would answer nothing.
    client = await asyncio.to_thread(mlflow_client, mlflow_url)
    kept: list[str] = []
    for trial in sweep.objects("Trial"):
        name = trial["metadata"]["name"]
        run = await until(lambda n=name: run_of(client, sweep.id, n), f"MLflow has {name}", sweep.story)
        pictures = [each.path for each in client.list_artifacts(run.info.run_id, "pictures")]
        kept += pictures
        assert [each.step for each in client.get_metric_history(run.info.run_id, "loss")] == [*range(1, 11)]
    assert kept == ["pictures/samples-9.png"], "of the best trial"
    for pod in sweep.objects("Pod"):
        [status] = pod["status"]["initContainerStatuses"]
        assert (status["name"], status["state"]["terminated"]["exitCode"]) == (READER, 0)


def uploaded(here):
    """Return the names of the pictures that trainings logged."""
    files = here.slack.workspace.files.values()
    return [file["name"] for file in files if "content" in file and file["name"].startswith("samples")]


def run_of(client, sweep_id, trial):
    """Return the trial's run once Sweepbot has completed it."""
    experiment = client.get_experiment_by_name(f"digits/{sweep_id}")
    found = client.search_runs([experiment.experiment_id], f"attributes.run_name = '{trial}'")
    return next((run for run in found if "sweepbot.state" in run.data.tags), None)


@pytest.mark.features("early_stopping", "live_values")
async def test_asha_stops_a_trial_by_its_event_files_alone(here: Instance):
    here.hold.touch()
    sweep = await here.sweep("branch=main space=files-judged")
    await sweep.posts("Sweepbot stopped 1 trial early (asha)")
    await sweep.posts("Finished:")


@pytest.mark.features("live_values")
async def test_trials_succeed_on_a_node_too_busy_for_their_readers(here: Instance):
    """The readers stand still from before the trainings' end to 10 s after it, within their pods' 30 s."""
    here.hold.touch()
    sweep = await here.sweep("branch=main space=files-held")
    await sweep.shows("Best running trial")
    frozen = readers(here)
    assert len(frozen) == 2
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    here.hold.unlink()
    await until(lambda: all(map(has_trained, sweep.objects("Pod"))), "the trainings have ended", sweep.story)
    await asyncio.sleep(10)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    await sweep.posts("Finished:", "2 trials done")
    await sweep.shows("Best: `loss` *1*")


@pytest.mark.features("live_values")
async def test_trial_of_two_nodes_reports_the_first_workers_values(here: Instance):
    here.hold.unlink(missing_ok=True)
    sweep = await here.sweep("branch=main space=files-held nodes=2 parallel=1")
    await sweep.posts("Finished:", "2 trials done")
    await sweep.shows("Best: `loss` *1*", "2 nodes × 1 GPU per trial")
    firsts = 0
    for pod in sweep.objects("Pod"):  # without a second worker that still ran when the first one had ended
        [status] = pod["status"]["initContainerStatuses"]
        assert (status["name"], status["state"]["terminated"]["exitCode"]) == (READER, 0)
        firsts += pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert firsts == 2


def readers(here):
    """Return the IDs of the readers' processes."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_of_a_pod = process.joinpath("cwd").readlink().is_relative_to(here.here.folder)
            words = process.joinpath("cmdline").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or of another user
            continue
        if is_of_a_pod and b"reader" in words:
            found.append(int(process.name))
    return found


def has_trained(pod):
    return all("terminated" in each["state"] for each in pod["status"]["containerStatuses"])


@pytest.mark.features("interruptions")
async def test_trial_whose_report_fails_says_why_and_runs_again(here: Instance):
    here.hold.unlink(missing_ok=True)
    here.here.katib.db_manager.away = True
    try:
        sweep = await here.sweep("branch=main space=files-held")
        await sweep.posts("its training finished, but its metrics weren't stored: Can't report the metrics")
    finally:
        here.here.katib.db_manager.away = False
    # Katib may ask for one more point while a trial is gone; a grid then repeats one.
    await sweep.posts("Finished:", "trials done")
    assert all("Succeeded" in each for each in sweep.conditions("Trial"))
    assert "counts as failed" not in sweep.story()
