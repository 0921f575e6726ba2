"""A sweep with each search algorithm, in memory: from its space file to the end, in a Katib that searches."""

import pytest

from bot.core.record import Phase
from bot.core.space import ALGORITHMS
from bot.sweep.spaces.algorithms import resolve_auto
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

RANGES = "  a: {min: 0.1, max: 0.9}\n  b: {min: 1, max: 8}\n"
POINTS = "  a: [0.1, 0.4, 0.8]\n  b: [1, 8]\n"
LOG = "  a: {min: 0.1, max: 0.9, scale: log}\n  b: {min: 1, max: 8}\n"
PARAMETERS = dict.fromkeys(ALGORITHMS, RANGES) | {
    "grid": POINTS,
    "sobol": POINTS,
    "bayesianoptimization": LOG,
}
SPACE = """\
command: python train.py
objective: {{metric: loss, goal: minimize}}
algorithm: {algorithm}
trials: {{max: 6, parallel: 3, max_failed: 1}}
parameters:
{parameters}"""


class Numbers(SimulatedSweep):
    """The loss of a trial is its first parameter."""

    def _width(self, namespace: str, trial: str) -> str:
        values = self.kubernetes.get("Trial", namespace, trial)["spec"]["parameterAssignments"]
        return values[0]["value"]


async def ended(redis, algorithm: str, parameters: str) -> Numbers:
    return await Numbers(
        redis, Clock(None), image=True, space=SPACE.format(algorithm=algorithm, parameters=parameters)
    ).run()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_sweep_with_each_algorithm_succeeds(redis, algorithm):
    simulation = await ended(redis, algorithm, PARAMETERS[algorithm])
    assert simulation.last.phase is Phase.SUCCEEDED
    assert simulation.last.progress.succeeded == 6
    [experiment] = simulation.kubernetes.list("Experiment")
    name = resolve_auto(algorithm, search_service=False)
    assert experiment["spec"]["algorithm"] == {"algorithmName": name}
    losses = [
        float(simulation._width("sweeps", one["metadata"]["name"]))
        for one in simulation.kubernetes.list("Trial")
    ]
    assert simulation.last.progress.best.value == min(losses)
    assert len(set(losses)) > 1


async def test_settings_reach_the_service_as_strings(redis):
    simulation = await ended(redis, "{name: tpe, n_EI_candidates: 24, random_state: 1}", RANGES)
    assert simulation.last.phase is Phase.SUCCEEDED
    [suggestion] = simulation.kubernetes.list("Suggestion")
    assert suggestion["spec"]["algorithm"]["algorithmSettings"] == [
        {"name": "n_EI_candidates", "value": "24"},
        {"name": "random_state", "value": "1"},
    ]


async def test_algorithm_that_would_behave_differently_is_rejected_before_the_build(redis):
    simulation = await ended(redis, "bayesianoptimization", RANGES)
    assert simulation.last.phase is Phase.REFUSED
    [(_, reported)] = simulation.slack.ephemeral_messages
    assert "parameters.a: bayesianoptimization always searches decimals on a log scale" in reported
    assert simulation.kubernetes.list("Experiment") == simulation.kubernetes.list("Job") == []
