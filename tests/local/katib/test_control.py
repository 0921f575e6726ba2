"""The patches that control a running experiment, and those that have no effect."""

import pytest

from local.kubernetes.apiserver.store import Refused

RUNNING = [("Created", "True", "ExperimentCreated"), ("Running", "True", "ExperimentRunning")]
WAS_RUNNING = [("Created", "True", "ExperimentCreated"), ("Running", "False", "ExperimentRunning")]
ALL_TRIALS = ("Succeeded", "True", "ExperimentMaxTrialsReached")


async def test_killed_trial_is_counted_and_replaced_and_its_job_stays_deleted(world):
    await world.experiment(maxTrialCount=6, parallelTrialCount=2)
    killed, other = world.trials()
    await world.kill(killed)
    status, recorded = world.status(), world.recorded("katib/02-A4-experiment-after")["body"]["status"]
    counts = ("trials", "trialsKilled", "trialsRunning")
    assert [status[key] for key in counts] == [recorded[key] for key in counts]
    assert status["killedTrialList"] == [killed]
    assert killed not in world.jobs()
    assert other in world.jobs()
    await world.kill(other)
    assert "trialsFailed" not in world.status()


async def test_killed_trial_never_runs_again(world):
    await world.experiment(maxTrialCount=4, parallelTrialCount=1)
    killed = world.trials()[0]
    before = world.status(killed, "Trial")["conditions"]
    killed_condition = {"type": "Killed", "status": "True", "reason": "SweepbotKilled", "message": "m"}
    conditions = [killed_condition, *before]  # Running left True, no times: killed as well
    await world.patch("Trial", killed, {"status": {"conditions": conditions}}, "status")
    await world.succeed(killed)
    assert world.status()["killedTrialList"] == [killed]
    assert "observation" not in world.status(killed, "Trial")


async def test_killed_trials_use_up_the_maximum(world):
    await world.experiment(maxTrialCount=3, parallelTrialCount=1)
    while world.conditions() == RUNNING:
        await world.kill(world.status()["runningTrialList"][0])
    assert world.conditions() == [*WAS_RUNNING, ALL_TRIALS]
    assert world.status()["trialsKilled"] == 3


@pytest.mark.parametrize(
    ("type_", "reason"), [("Succeeded", "SweepbotDrained"), ("Failed", "SweepbotCancelled")]
)
async def test_experiment_closed_by_a_client_starts_no_trials_and_stays_closed(world, type_, reason):
    await world.experiment(maxTrialCount=5, parallelTrialCount=2, maxFailedTrialCount=1)
    first, second = world.trials()
    await world.close_from_client(type_, reason)
    await world.succeed(first)
    await world.fail(second)
    assert world.conditions() == [*WAS_RUNNING, (type_, "True", reason)]
    status = world.status()
    assert (status["succeededTrialList"], status["failedTrialList"], status["trials"]) == (
        [first],
        [second],
        2,
    )
    assert status["currentOptimalTrial"]["bestTrialName"] == first
    assert status["completionTime"] == "2026-11-21T13:44:16Z"
    recorded = world.recorded("katib/04-cancel-E-suggestion")["body"]["status"]["conditions"]
    assert without_times(world.status("sweep", "Suggestion")["conditions"]) == without_times(recorded)
    with pytest.raises(Refused, match="Experiment can be restarted if it is in succeeded state"):
        world.store.patch("Experiment", "kaniko", "sweep", {"spec": {"maxTrialCount": 9}})


async def test_minimal_conditions_stop_no_controller(world):
    await world.experiment(parallelTrialCount=2)
    first, second = world.trials()
    await world.patch(
        "Trial", first, {"status": {"conditions": [{"type": "Created", "status": "True"}, {}]}}, "status"
    )
    await world.succeed(first)
    await world.succeed(second)
    assert world.status()["trialsSucceeded"] == 2


def without_times(conditions):
    return [{key: text for key, text in one.items() if not key.endswith("Time")} for one in conditions]


@pytest.mark.parametrize(("policy", "goes_on"), [("LongRunning", True), ("Never", False)])
async def test_removed_close_resumes_a_long_running_experiment_only(world, policy, goes_on):
    await world.experiment(maxTrialCount=4, maxFailedTrialCount=3, resumePolicy=policy)
    await world.close_from_client("Succeeded", "SweepbotPaused")
    await world.succeed(world.trials()[0])
    assert world.status()["trials"] == 1
    conditions = [c | {"status": "True"} for c in world.status()["conditions"] if c["type"] != "Succeeded"]
    await world.patch("Experiment", "sweep", {"status": {"conditions": conditions}}, "status")
    assert world.conditions() == RUNNING
    assert (world.status()["trials"] == 2) is goes_on


@pytest.mark.parametrize("first_ends", [False, True])
async def test_gate_opens_with_one_patch(world, first_ends):
    await world.experiment(
        maxTrialCount=1, parallelTrialCount=1, maxFailedTrialCount=1, resumePolicy="LongRunning"
    )
    if first_ends:
        await world.succeed(world.trials()[0])
        assert world.conditions() == [*WAS_RUNNING, ALL_TRIALS]
    counts = {"maxTrialCount": 6, "parallelTrialCount": 4, "maxFailedTrialCount": 3}
    await world.patch("Experiment", "sweep", {"spec": counts})
    assert world.status()["trialsRunning"] == 4
    assert ("Restarting" in [one[0] for one in world.conditions()]) is first_ends


async def test_gate_stays_shut_after_a_failure(world):
    await world.experiment(
        maxTrialCount=1, parallelTrialCount=1, maxFailedTrialCount=1, resumePolicy="LongRunning"
    )
    await world.fail(world.trials()[0])
    with pytest.raises(Refused, match="Experiment can be restarted if it is in succeeded state"):
        world.store.patch("Experiment", "kaniko", "sweep", {"spec": {"maxTrialCount": 6}})


async def test_finished_experiment_can_be_extended_as_recorded(world):
    counts = {"maxTrialCount": 2, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
    await world.experiment(**counts, resumePolicy="LongRunning")
    for trial in world.trials():
        await world.succeed(trial)
    ended = world.status()["completionTime"]
    await world.patch("Experiment", "sweep", {"spec": {"maxTrialCount": 4}})
    created, running = RUNNING
    restarting = ("Restarting", "True", "ExperimentRestarting")
    assert world.conditions() == [created, restarting, running]
    assert world.status()["completionTime"] == ended
    for trial in world.trials()[2:]:
        await world.succeed(trial)
    recorded = world.recorded("katib/06-LongRunning-after-extend")["body"]["status"]
    assert without_times(world.status()["conditions"]) == without_times(recorded["conditions"])
    assert world.status()["trials"] == recorded["trials"]


async def test_lowering_parallel_trials_that_would_delete_trials_is_rejected(world):
    await world.experiment(maxTrialCount=9, parallelTrialCount=5)
    with pytest.raises(Refused, match="the local Katib refuses to delete trials"):
        world.store.patch("Experiment", "kaniko", "sweep", {"spec": {"parallelTrialCount": 2}})
