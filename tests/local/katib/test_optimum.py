"""Each algorithm finds the minimum of a known function: a bowl around (0.25, 0.75)."""

import pytest

MINIMUM = {"x": 0.25, "y": 0.75}
LEAST = {"type": "minimize", "objectiveMetricName": "loss"}


def space(step):
    feasible = {"min": "0", "max": "1"} | ({"step": step} if step else {})
    return [{"name": name, "parameterType": "double", "feasibleSpace": feasible} for name in MINIMUM]


def distance(values):
    """Return the square of the distance to the minimum."""
    return sum((float(values[name]) - at) ** 2 for name, at in MINIMUM.items())


def template(world):
    found = world.recorded_experiment()["spec"]["trialTemplate"]
    found["trialParameters"] = [{"name": name, "reference": name} for name in MINIMUM]
    [container] = found["trialSpec"]["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": name, "value": f"${{trialParameters.{name}}}"} for name in MINIMUM]
    container["args"] = ["train"]
    return found


async def best_of(world, algorithm, count, step=""):
    seed = [{"name": "random_state", "value": "1"}]
    await world.experiment(
        parameters=space(step),
        algorithm={"algorithmName": algorithm, "algorithmSettings": seed},
        trialTemplate=template(world),
        objective=LEAST,
        maxTrialCount=count,
        parallelTrialCount=2,
        maxFailedTrialCount=1,
    )
    while running := world.status().get("runningTrialList"):
        given = {one["name"]: one for one in world.status("sweep", "Suggestion")["suggestions"]}
        for trial in [name for name in given if name in running]:
            values = {one["name"]: one["value"] for one in given[trial]["parameterAssignments"]}
            await world.succeed(trial, f"{distance(values)}")
    optimal = world.status()["currentOptimalTrial"]
    assert world.status()["trialsSucceeded"] == count
    return distance({one["name"]: one["value"] for one in optimal["parameterAssignments"]})


@pytest.mark.parametrize(
    ("algorithm", "count", "step", "at_most"),
    [("grid", 25, "0.25", 0.0), ("random", 40, "", 0.04), ("tpe", 40, "", 0.01), ("cmaes", 40, "", 0.01)],
)
async def test_algorithm_finds_the_minimum(world, algorithm, count, step, at_most):
    assert await best_of(world, algorithm, count, step) <= at_most
