"""Cancel a trial, pause, drain, and extend, with real processes and pods."""

import pytest
import pytest_asyncio

from tests.scenarios.local_world import Instance, instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

MORE = """\
command: python tiny.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 1, parallel: 1}
parameters:
  width: {min: 1, max: 3}
"""
QUEUE = """\
command: python tiny.py --wait=1
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
parameters:
  width: {min: 1, max: 6}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory, mlflow_url):
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url) as made:
        made.commit("Spaces to control", {"sweeps/more.yaml": MORE, "sweeps/queue.yaml": QUEUE})
        yield made


async def test_trial_is_cancelled_sweep_drained_and_finished_sweep_extended(here: Instance):
    sweep = await here.sweep("branch=main gpus=1 space=queue")
    await sweep.shows("2 running")
    first, second = sorted(sweep.pods_alive())
    trial = first.rpartition("-")[0]
    await here.types(f"cancel {sweep.id} {trial.rpartition('-')[2]}")
    await sweep.posts(trial, "cancelled", "GPUs are free")
    assert first not in sweep.pods_alive()
    assert second in sweep.pods_alive()
    await sweep.shows("2 running", "1 stopped")  # Katib has started the next one
    await here.types(f"pause {sweep.id} now")
    await sweep.posts(":zzz: Paused. All pods are gone and the GPUs are free.")
    assert sweep.pods_alive() == []
    await sweep.shows("Paused by", "3 stopped")
    assert await here.slack.click("ada", "sweeps", sweep.parent()["ts"], "resume_sweep") is None
    await sweep.posts("resumed this sweep")
    await sweep.shows("2 running", "3 stopped")
    await here.types(f"drain {sweep.id}")
    await sweep.posts("is draining this sweep")
    here.hold.unlink()
    await sweep.posts("Finished:", "drained after 5 trials")
    assert sweep.pods_alive() == []
    assert len(sweep.objects("Trial")) == 5  # of six; history stays
    assert min(map(sorted, sweep.conditions("Trial"))) == ["Created", "Killed"]

    other = await here.sweep("branch=main gpus=1 space=more")
    await other.posts("Finished:", "1 trial")
    await here.types(f"extend {other.id} trials=3")
    await other.posts("extended this sweep to 3 trials")
    await other.posts("Finished:", "3 trials")
    assert len(other.objects("Trial")) == 3
    answer = await here.answer(f"extend {sweep.id} trials=9")
    assert answer.endswith(
        f"|{sweep.id}>* can't be extended: Katib only extends a sweep that used all its trials."
    )


async def test_results_logs_and_rerun_work_by_command_mention_and_button(here: Instance):
    sweep = await here.sweep("branch=main gpus=1 space=tiny")
    await sweep.posts("Finished:", "2 trials")
    assert "2 of 2 trials" in await here.answer(f"results {sweep.id}")
    assert sweep.id in await here.types("list mine")
    here.slack.say("ada", "sweeps", "@sweepbot logs", sweep.parent()["ts"])
    await sweep.posts("Log of trial", "```")
    before = len(here.slack.ephemerals("ada"))
    await here.slack.click("ada", "sweeps", sweep.parent()["ts"], "rerun_sweep")
    told = await here.whispered("ada", before)
    assert "a rerun of *<http" in told
    assert f"|{sweep.id}>*" in told
