"""Metrics and parameters in the local world: output, files, seeds, and W&B."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.scenarios.local_world import Instance, instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PRINTS = """
import json, os, sys
print("training with", sys.argv[1:], flush=True)
print(json.dumps({"epoch": 1, "loss": 1 / float(os.environ["NET_WIDTH"]), "acc": 0.5}))
"""
WRITES = """
import sys
given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[2:])
with open(sys.argv[1], "a") as file:  # a local path: nothing is mounted in the local world
    print(f"step 1: loss: {1 / float(given['net.width'])}", file=file)
"""
SEEDED = """
import sys
seed = int(sys.argv[1].removeprefix("--seed="))
if seed == 1:
    sys.exit("seed 1 fails")
print(f"val/acc={seed / 10}")
"""
SPACE = """\
command: python {program}
objective: {{metric: loss, goal: minimize, additional: [acc]}}
algorithm: grid
metrics: {metrics}
flags: {flags}
parameters: {{net: {{width: [1, 2]}}}}
"""
WANDB = """\
program: wandb.py
method: grid
project: digits
metric: {name: val/acc, goal: maximize}
parameters: {seed: {values: [2, 3]}}
"""
STOPPED = """
import pathlib, time
count = pathlib.Path({path!r})
number = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (number + 1))
print(f"loss={{9 if number == 3 else 1}}", flush=True)
print(f"loss={{9 if number == 3 else 1}}", flush=True)
if number == 3:
    time.sleep(300)
"""
EARLY = """\
command: python stopped.py
objective: {metric: loss, goal: minimize}
metrics: stdout
trials: {max: 4, parallel: 1}
parameters: {lr: {min: 0.1, max: 1}}
early_stopping: {name: medianstop, min_trials_required: 3, start_step: 2}
"""
PATH = "/logs/metrics.txt"
FILES = {
    "prints.py": PRINTS,
    "writes.py": WRITES,
    "seeded.py": SEEDED,
    "wandb.py": SEEDED,
    "silent.py": "print('nothing to see')\n",
    "sweeps/printed.yaml": SPACE.format(program="prints.py", metrics="stdout", flags="env"),
    "sweeps/written.yaml": SPACE.format(
        program="writes.py /logs/metrics.txt",
        metrics="{from: file, path: /logs/metrics.txt}",
        flags="--a.b=1",
    ),
    "sweeps/silent.yaml": SPACE.format(program="silent.py", metrics="stdout", flags="--a.b=1"),
    "sweeps/wandb.yaml": WANDB,
    "sweeps/early.yaml": EARLY,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url) as made:
        stopped = STOPPED.format(path=str(made.here.folder / "count"))
        made.commit("Add programs that print and write metrics", FILES | {"stopped.py": stopped})
        yield made


async def test_metrics_in_the_output_are_read_and_the_log_stays_complete(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=printed")
    end = await sweep.posts("Finished:", "2 trials done")
    assert "*0.5* with `net.width=2`" in end
    assert "NET_WIDTH=2 python prints.py" in end
    log = await instance.answer(f"logs {sweep.id}")
    assert "training with []" in log


async def test_metrics_in_a_file_are_read(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=written")
    assert "*0.5* with `net.width=2`" in await sweep.posts("Finished:", "2 trials done")


async def test_training_without_a_metric_is_reported_with_the_fix(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=silent")
    await sweep.posts("printed no line with `loss=0.1`", "Print it")


async def test_seeds_report_their_mean_and_the_failed_seed(instance: Instance) -> None:
    sweep = await instance.sweep(
        'branch=main seeds=4 metrics=stdout metric=val/acc goal=maximize cmd="python seeded.py"'
    )
    end = await sweep.posts("Finished:", "Mean `val/acc` *0.166667*")
    assert "Values by seed: 0: 0, 2: 0.2, 3: 0.3." in end
    assert f"`/sweep rerun {sweep.id} seeds=1-1`" in end
    values = [trial["spec"]["parameterAssignments"] for trial in sweep.objects("Trial")]
    assert sorted(seed["value"] for [seed] in values) == ["0", "1", "2", "3"]
    assert sweep.pods_alive() == []
    again = await instance.answer(f"rerun {sweep.id} seeds=2-2")
    assert "queued: a rerun of" in again


async def test_trial_worse_than_the_others_is_stopped_early(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=early")
    await sweep.posts("Finished:", "4 trials done (1 stopped early)", "Best: `loss` *1*")
    await sweep.shows("4 of 4 trials", "1 stopped early")
    assert {"Created", "EarlyStopped", "Running"} in sweep.conditions("Trial")
    assert instance.pods_alive() == []


async def test_wandb_file_is_a_space_with_notes_in_the_thread(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=wandb")
    await sweep.posts("Notes on this sweep:", "line 3: project: not used")
    assert "*0.3* with `seed=3`" in await sweep.posts("Finished:", "2 trials done")
