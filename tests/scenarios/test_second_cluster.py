"""Two whole clusters with real processes: the second one loses power while its trials run, and comes back."""

from pathlib import Path

import pytest

from local.world import world
from tests.scenarios.local_world import prepared, shown, until
from tests.scenarios.second_cluster import NAME, SecondCluster

pytestmark = [pytest.mark.slow]

SPACE = """\
command: python tiny.py --wait=1
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2, max_failed: 3}
parameters:
  width: {min: 1, max: 4}
"""


async def test_cluster_that_lost_power_is_shown_and_its_sweep_finishes_after_it_is_restored(
    tmp_path: Path, mlflow_url: str
) -> None:
    async with world(tmp_path, mlflow_url) as here:
        west = SecondCluster(tmp_path / NAME, here.env["IMAGE_REGISTRY"], here.processes)
        await west.start()
        instance = prepared(here, f"clusters: {{main: {{}}, west: {{kubeconfig: {west.kubeconfig}}}}}\n")
        instance.commit("Add four trials", {"sweeps/far.yaml": SPACE})
        await here.start_bot("all")

        there = await instance.sweep("branch=main space=far cluster=west")
        await until(lambda: len(west.running()) == 2, "two trials run in west", there.story)
        await west.lose_power()
        await there.shows("Cluster `west` hasn't answered since <!date")

        at_home = await instance.sweep("branch=main space=tiny cluster=main")
        await at_home.posts("Finished:", "2 trials done")
        assert "hasn't answered since" in shown(there.parent())
        assert "hasn't answered" not in at_home.story()

        await west.start()
        await until(lambda: len(west.running()) == 2, "the next trials run in west", there.story)
        instance.hold.unlink()
        await there.posts("The node restarted while the pod was running")
        await there.posts("Finished: 4 trials done (2 failed)")
        assert "hasn't answered" not in shown(there.parent())
        await until(lambda: not west.running(), "west's GPUs are released", there.story)
        west.close()
