"""Opening the gate, and pausing and resuming, as recorded from the real Katib."""

import pytest

from local.kubernetes.apiserver.kinds import Refused

ONE = {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1, "resumePolicy": "LongRunning"}
COUNTS = ("maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")


def conditions(status):
    return [(each["type"], each["status"], each["reason"], each["message"]) for each in status["conditions"]]


def counts(status):
    """Pods that the scheduler hasn't seen yet are pending in the recording."""
    active = status.get("trialsRunning", 0) + status.get("trialsPending", 0)
    return status["trials"], active, status.get("trialsSucceeded", 0), status.get("trialsFailed", 0)


def same(world, name):
    recorded = world.recorded(f"katib/{name}")["body"]
    assert conditions(world.status()) == conditions(recorded["status"])
    assert counts(world.status()) == counts(recorded["status"])
    assert ("completionTime" in world.status()) is ("completionTime" in recorded["status"])
    spec = world.store.get("Experiment", "kaniko", "sweep")["spec"]
    assert {key: spec[key] for key in COUNTS} == {key: recorded["spec"][key] for key in COUNTS}


async def refused(world, name):
    """Send the recorded patch, and expect the recorded refusal."""
    call = world.recorded(f"katib/{name}")
    with pytest.raises(Refused) as caught:
        await world.patch("Experiment", "sweep", call["request_body"])
    assert (caught.value.code, caught.value.body["message"]) == (call["status"], call["body"]["message"])


@pytest.mark.parametrize("scenario", ["g1ok", "g1run"])
async def test_gate_opens_as_recorded_after_and_beside_the_first_trial(world, scenario):
    await world.experiment(**ONE)
    if scenario == "g1ok":
        await world.succeed(world.trials()[0])
    await world.patch("Experiment", "sweep", world.recorded(f"katib/09-{scenario}-open")["request_body"])
    same(world, f"09-{scenario}-experiment")


async def test_gate_stays_shut_as_recorded_after_a_failure(world):
    await world.experiment(**ONE)
    await world.fail(world.trials()[0])
    await refused(world, "09-g1fail-open")
    same(world, "09-g1fail-experiment")


async def test_experiment_pauses_and_resumes_as_recorded(world):
    await world.experiment(**ONE | {"maxTrialCount": 5, "maxFailedTrialCount": 3})
    first = world.trials()[0]
    pause = world.recorded("katib/04-drain4-A")["request_body"]["status"]
    await world.patch("Experiment", "sweep", {"status": pause}, "status")
    assert conditions(world.status()) == conditions(pause)
    await refused(world, "04-drain4-B-edit")
    await world.succeed(first)
    assert world.trials() == [first]
    resume = world.recorded("katib/04-drain4-C-undrain")["request_body"]["status"]
    await world.patch("Experiment", "sweep", {"status": resume}, "status")
    for number in range(1, 5):
        await world.succeed(world.trials()[number])
    same(world, "04-drain4-D-after-undrain")
