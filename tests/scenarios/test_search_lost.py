"""Katib's suggestion service restarts in the middle of a search that it can't continue."""

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.sweep.decisions.parent_message import summary
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import MANAGED_BY, SWEEP_LABEL
from tests.scenarios.queued_sweep import QueuedSweep
from tests.scenarios.sweep_in_memory import SWEEP

SPACE = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: ALGORITHM
trials: {max: 6, parallel: 2}
parameters:
  lr: {min: 0.001, max: 0.1}
  width: {min: 0.1, max: 0.9}
"""


def restart_service(simulation):
    """Show the service's pod, with the labels of Katib's Deployment, after a restart of its container."""
    labels = {SWEEP_LABEL: SWEEP, MANAGED_BY: "sweepbot", EXPERIMENT_LABEL: SWEEP}
    meta = {"name": f"{SWEEP}-service", "namespace": "sweeps", "labels": labels}
    spec = {"containers": [{"name": "suggestion", "image": "x"}]}
    simulation.kubernetes.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    running = {"startedAt": "2099-01-01T00:00:00Z"}
    container = {"name": "suggestion", "restartCount": 1, "state": {"running": running}}
    pod = simulation.kubernetes.get("Pod", "sweeps", f"{SWEEP}-service")
    simulation.kubernetes.set_status(pod, {"phase": "Running", "containerStatuses": [container]})


@pytest.mark.features("search_lost")
@pytest.mark.parametrize(("algorithm", "lost"), [("sobol", True), ("random", False)])
async def test_restart_of_the_service_is_reported_once_with_the_fix(redis, algorithm, lost):
    async with QueuedSweep(redis, space=SPACE.replace("ALGORITHM", algorithm)).started() as simulation:
        await simulation.until(Phase.RUNNING)
        restart_service(simulation)
        await simulation.rounds(3)
        assert len(simulation.said("Katib's suggestion service restarted")) == lost
        assert ("No new trials start" in summary(await simulation.record())) == lost
        if lost:
            [text] = simulation.said("Katib's suggestion service restarted")
            assert f"*Fix:* Run `/sweep drain {SWEEP}`" in text
            await simulation.asks(Action.DRAIN)
            assert (await simulation.record()).draining
