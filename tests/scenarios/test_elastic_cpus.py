"""Elastic replicas without GPUs, with all processes: a sweep's trials get their CPUs at once."""

import pytest

from local import cluster
from local.kubernetes.controllers.deployments import Deployments
from local.world import world
from tests.bot.workspaces.elastic.factories import SERVING, deployment_of
from tests.scenarios.local_world import prepared, until

pytestmark = pytest.mark.slow
CPUS = 40  # of the 64 of each of the two nodes: one replica or one trial fits
CONFIG = f"""\
profiles: {{cpu: {{gpus: 0, cpu: {CPUS}, memory: 1Gi}}}}
elastic: [{{namespace: serving, deployment: llm, gpus: 0, max: 2, reserve: 0, channel: C01SWEEPS00}}]
"""


async def test_trials_without_gpus_get_the_cpus_of_replicas_and_their_number_is_lowered(tmp_path, mlflow_url):
    async with world(tmp_path, mlflow_url) as here:
        here.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SERVING}})
        cluster.apply(here.store, "elastic/priority.yaml", "elastic/rights.yaml")
        here.store.create(deployment_of(gpus=0, replicas=2, cpu=str(CPUS)))
        deployments = Deployments(here.store, SERVING)
        deployments.start()
        lab = prepared(here, CONFIG)
        await here.start_bot("all")

        def message(*words):
            found = [
                m["text"] + str(m["blocks"]) for m in here.slack.messages("sweeps") if "`llm`" in m["text"]
            ]
            assert len(found) <= 1
            return found and all(word in found[0] for word in words)

        def replicas():
            return here.store.get("Deployment", SERVING, "llm")["spec"]["replicas"]

        await until(lambda: message("of max 2 replicas"), "the message is posted")
        sweep = await lab.sweep("branch=main space=held gpus=0")
        await sweep.shows("2 running")
        await until(lambda: replicas() == 0, "both replicas are gone")
        # The trials may have replaced the replicas before the scaler sees them wait.
        reasons = f"CPUs given to `{sweep.id}`", "others have the CPUs"
        await until(
            lambda: any(message("Lowered", each) for each in reasons),
            "the message says why",
            lambda: str(here.slack.messages("sweeps")),
        )
        lab.hold.unlink()
        await sweep.posts("Finished:", "2 trials done")
        await deployments.close()
