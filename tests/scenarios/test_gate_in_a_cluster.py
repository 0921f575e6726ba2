"""The gate with real processes, including pods and their GPUs."""

import pytest

from tests.scenarios.local_world import Instance, instance

pytestmark = pytest.mark.slow

BROKEN = """\
command: python broken.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 8, max_failed: 8}
parameters:
  width: {min: 1, max: 40}
"""


@pytest.fixture
async def here(tmp_path, mlflow_url):
    async with instance(tmp_path, mlflow_url) as made:
        files = {"broken.py": 'raise SystemExit("no data")', "sweeps/broken40.yaml": BROKEN}
        made.commit("A training that can't run", files)
        yield made


async def test_gate_of_a_broken_sweep_of_40_trials_costs_one_trial(here: Instance):
    sweep = await here.sweep("branch=main gpus=1 space=broken40 gate=on")
    await sweep.posts("On hold: first trial failed.", "39 other trials didn't start.")
    assert (len(sweep.objects("Trial")), sweep.pods_alive()) == (1, [])
    await sweep.shows("On hold: no data")
    await here.types(f"retry {sweep.id}")
    await sweep.posts("is retrying the first trial")
    await sweep.posts(f"Trial `{sweep.id}-2-")
    await sweep.shows("On hold: no data", "1 failed")
    assert (len(sweep.objects("Trial")), sweep.pods_alive()) == (2, [])
    await sweep.click_cancel("ada")
    await sweep.shows("Cancelled")

    tiny = await here.sweep("branch=main gpus=1 space=tiny gate=on")
    await tiny.shows("First trial healthy")
    await tiny.posts("Finished:", "2 trials")
    assert tiny.pods_alive() == []
