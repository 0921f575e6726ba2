"""The search service behind the local Katib: a process, called as Katib's controller calls it."""

import asyncio

import pytest

from local.cluster import katib_config
from local.kubernetes.apiserver.kinds import Refused

RANGE = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}
COUNTS = {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
TIMEOUT = 120


async def search(world, name="sweep", **settings):
    listed = [{"name": key, "value": value} for key, value in settings.items()]
    algorithm = {"algorithmName": "sweepbot", "algorithmSettings": listed}
    await world.experiment(name, parameters=[RANGE], algorithm=algorithm, **COUNTS)


async def until(world, fact):
    """The process takes seconds to start, and each change of it is an event."""
    async with asyncio.timeout(TIMEOUT):
        while not fact():  # noqa: ASYNC110 - facts of another process
            await asyncio.sleep(0.02)
    await world.settle()


def suggested(world, name="sweep"):
    given = world.status(name, "Suggestion").get("suggestions", [])
    return [{one["name"]: float(one["value"]) for one in each["parameterAssignments"]} for each in given]


@pytest.mark.slow
async def test_killed_service_is_started_again_and_continues_the_search(world):
    world.store.create(katib_config())
    await search(world)
    assert ("DeploymentReady", "False", "DeploymentNotReady") in world.conditions(kind="Suggestion")
    await until(world, lambda: len(suggested(world)) == 2)
    assert ("DeploymentReady", "True", "DeploymentReady") in world.conditions(kind="Suggestion")
    first = world.katib.search.process
    first.kill()
    await first.wait()
    for trial in world.trials():
        await world.succeed(trial)
    await until(world, lambda: len(suggested(world)) == 4)
    assert world.katib.search.process is not first
    assert len({each["lr"] for each in suggested(world)}) == 4
    assert all(0 <= each["lr"] <= 1 for each in suggested(world))


@pytest.mark.slow
async def test_settings_that_the_service_rejects_fail_the_experiment_with_its_reason(world):
    world.store.create(katib_config())
    await search(world, method="gp")
    await until(world, lambda: world.conditions()[-1][0] == "Failed")
    *_, end = world.status("sweep", "Suggestion")["conditions"]
    assert end["message"].startswith(
        "Validation failed: ValidateAlgorithmSettings Error: method must be one of"
    )
    assert world.store.list("Trial") == []


async def test_unregistered_service_is_an_unknown_algorithm(world):
    with pytest.raises(Refused, match="failed to find suggestion config for algorithm: sweepbot"):
        await search(world)
