"""A sweep with each search algorithm, in memory: from its space file to the end, in a Katib that searches."""

import pytest

from bot.core.record import Phase
from bot.core.space import ALGORITHMS
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
trials: {{max: 6, parallel: 2, max_failed: 1}}
parameters:
{parameters}"""


class Numbers(SimulatedSweep):
    """The loss of a trial is its first parameter."""

    def _width(self, namespace: str, trial: str) -> str:
        values = self.kubernetes.get("Trial", namespace, trial)["spec"]["parameterAssignments"]
        return values[0]["value"]


async def ended(redis, algorithm: str, parameters: str) -> Numbers:
    return await Numbers(
        redis, Clock(None), space=SPACE.format(algorithm=algorithm, parameters=parameters)
    ).run()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_sweep_with_each_algorithm_succeeds(redis, algorithm):
    life = await ended(redis, algorithm, PARAMETERS[algorithm])
    assert life.last.phase is Phase.SUCCEEDED
    assert life.last.progress.succeeded == 6
    [experiment] = life.kubernetes.list("Experiment")
    assert experiment["spec"]["algorithm"] == {"algorithmName": algorithm}
    losses = [float(life._width("sweeps", one["metadata"]["name"])) for one in life.kubernetes.list("Trial")]
    assert life.last.progress.best.value == min(losses)
    assert len(set(losses)) > 1


async def test_settings_reach_the_service_as_strings(redis):
    life = await ended(redis, "{name: tpe, n_EI_candidates: 24, random_state: 1}", RANGES)
    assert life.last.phase is Phase.SUCCEEDED
    [suggestion] = life.kubernetes.list("Suggestion")
    assert suggestion["spec"]["algorithm"]["algorithmSettings"] == [
        {"name": "n_EI_candidates", "value": "24"},
        {"name": "random_state", "value": "1"},
    ]


async def test_algorithm_that_would_behave_differently_is_rejected_before_the_build(redis):
    life = await ended(redis, "bayesianoptimization", RANGES)
    assert life.last.phase is Phase.REFUSED
    [(_, told)] = life.slack.whispers
    assert "parameters.a: bayesianoptimization always searches decimals on a log scale" in told
    assert life.kubernetes.list("Experiment") == life.kubernetes.list("Job") == []
