"""An experiment from its creation to its end, without any action of a user."""

import re

import pytest

from local.katib.metrics import Reported

RUNNING = [("Created", "True", "ExperimentCreated"), ("Running", "True", "ExperimentRunning")]
WAS_RUNNING = [("Created", "True", "ExperimentCreated"), ("Running", "False", "ExperimentRunning")]


def shape(status):
    """A status without times, and with normalized names and parameters of trials."""
    text = re.sub(r"'(last(Transition|Update)|start|completion)Time': '[^']*'", "", repr(sorted_deep(status)))
    return re.sub(r"'value': '[^']*'", "", re.sub(r"[a-z0-9]+-[a-z0-9]{8}", "TRIAL", text))


def sorted_deep(value):
    if isinstance(value, dict):
        return {key: sorted_deep(value[key]) for key in sorted(value) if "parameterAss" not in key}
    return [sorted_deep(one) for one in value] if isinstance(value, list) else value


async def test_experiment_starts_parallel_trials(world):
    await world.experiment(parallelTrialCount=2)
    status = world.status()
    assert world.conditions() == RUNNING
    assert (status["trials"], status["trialsRunning"]) == (2, 2)
    assert sorted(status["runningTrialList"]) == sorted(world.trials()) == world.jobs()
    assert world.store.get("Experiment", "kaniko", "sweep")["metadata"]["finalizers"] == [
        "update-prometheus-metrics"
    ]


async def test_trial_and_job_have_the_recorded_shape(world):
    await world.experiment("c1b")
    (name,) = world.trials("c1b")
    trial, recorded = world.store.get("Trial", "kaniko", name), world.recorded("katib/01-trial")["body"]
    assert shape(trial["status"]) == shape(recorded["status"])
    given, was = trial["spec"]["parameterAssignments"][0]["value"], "0.0024572012020848597"
    text = repr(sorted_deep(trial["spec"])).replace(given, was).replace(name, "c1b-jd8wqr7q")
    assert text == repr(sorted_deep(recorded["spec"]))
    assert trial["metadata"]["labels"] == recorded["metadata"]["labels"]
    assert trial["metadata"]["finalizers"] == recorded["metadata"]["finalizers"]
    assert re.fullmatch(r"c1b-[a-z0-9]{8}", name)
    job, wanted = world.store.get("Job", "kaniko", name), world.recorded("katib/01-job")["body"]
    assert job["metadata"]["labels"] == wanted["metadata"]["labels"]
    (owner,), (wanted_owner,) = (one["metadata"]["ownerReferences"] for one in (job, wanted))
    assert owner == wanted_owner | {"name": name, "uid": trial["metadata"]["uid"]}
    assert {reason for _, reason, _ in world.events(name)} == {"JobCreated", "JobRunning"}


async def test_trials_are_started_up_to_the_maximum(world):
    await world.experiment(maxTrialCount=3, parallelTrialCount=2)
    while world.conditions()[-1][0] != "Succeeded":
        await world.succeed(world.status()["runningTrialList"][0])
    recorded = world.recorded("13-experiment-final")["body"]["status"]
    assert shape(world.status()) == shape(recorded)
    assert shape(world.status("sweep", "Suggestion")) == shape(
        world.recorded("13-suggestion")["body"]["status"]
    )


async def test_trial_that_succeeded_quotes_its_job(world):
    await world.experiment()
    (trial,) = world.trials()
    await world.succeed(trial)
    *_, end = world.status(trial, "Trial")["conditions"]
    assert end["reason"] == "TrialSucceeded. Job reason: CompletionsReached"
    assert end["message"] == "Trial has succeeded. Job message: Reached expected number of succeeded pods"
    metrics = [{"name": "loss", "min": "0.31", "max": "0.9", "latest": "0.31"}]
    assert world.status(trial, "Trial")["observation"] == {"metrics": metrics}


async def test_trial_without_metrics_runs_until_they_arrive(world):
    await world.experiment()
    (trial,) = world.trials()
    await world.job_ends(trial, ("Complete", "CompletionsReached", "m"))
    assert world.conditions(trial, "Trial")[-1] == ("Running", "True", "TrialRunning")
    world.katib.metrics.report(trial, [Reported("0.5", 1)])
    await world.settle()
    assert world.conditions(trial, "Trial")[-1][0] == "Succeeded"


async def test_experiment_fails_with_its_trials_and_others_run_on(world):
    await world.experiment(maxTrialCount=3, parallelTrialCount=2, maxFailedTrialCount=1)
    first, second = world.trials()
    await world.fail(first)
    assert shape(world.status()) == shape(world.recorded("15-experiment-failed")["body"]["status"])
    wanted = world.recorded("15-trials-failed")["body"]["items"][0]["status"]
    assert shape(world.status(first, "Trial")) == shape(wanted)
    assert world.conditions(second, "Trial")[-1] == ("Running", "True", "TrialRunning")
    assert world.jobs() == sorted([first, second])


async def test_unavailable_metrics_count_as_failures(world):
    await world.experiment(maxTrialCount=2, parallelTrialCount=2, maxFailedTrialCount=1)
    for trial in world.trials():
        await world.succeed(trial, "unavailable")
    assert shape(world.status()) == shape(
        world.recorded("15-experiment-metrics-unavailable")["body"]["status"]
    )
    wanted = world.recorded("15-trials-metrics-unavailable")["body"]["items"][0]["status"]
    assert shape(world.status(world.trials()[0], "Trial")) == shape(wanted)


async def test_trial_without_metrics_is_replaced_beyond_the_maximum(world):
    await world.experiment(maxTrialCount=2, parallelTrialCount=2, maxFailedTrialCount=2)
    await world.succeed(world.trials()[0], "unavailable")
    assert world.status()["trials"] == 3


async def test_zero_allowed_failures_need_one_failure(world):
    await world.experiment(maxFailedTrialCount=0)
    assert world.conditions() == RUNNING
    await world.fail(world.trials()[0])
    assert world.conditions() == [*WAS_RUNNING, ("Failed", "True", "ExperimentFailed")]


async def test_goal_closes_the_experiment_and_later_results_count(world):
    objective = {"type": "minimize", "goal": 0.4, "objectiveMetricName": "loss"}
    await world.experiment(maxTrialCount=3, parallelTrialCount=2, objective=objective)
    first, second = world.trials()
    await world.succeed(first, "0.9", "0.31")
    assert world.conditions() == [*WAS_RUNNING, ("Succeeded", "True", "ExperimentGoalReached")]
    assert second in world.jobs()
    await world.succeed(second, "0.9", "0.2")
    assert world.status()["currentOptimalTrial"]["bestTrialName"] == second
    assert world.status()["trialsSucceeded"] == 2
    assert len(world.trials()) == 2


@pytest.mark.parametrize(
    ("type_", "strategy", "best"), [("minimize", None, 0), ("maximize", None, 1), ("minimize", "latest", 1)]
)
async def test_best_trial_follows_the_strategy(world, type_, strategy, best):
    strategies = {"metricStrategies": [{"name": "loss", "value": strategy}]} if strategy else {}
    objective = {"type": type_, "objectiveMetricName": "loss", **strategies}
    await world.experiment(maxTrialCount=5, parallelTrialCount=2, objective=objective)
    first, second = world.trials()
    await world.succeed(first, "0.1", "0.8")
    await world.succeed(second, "0.9", "0.3")
    assert world.status()["currentOptimalTrial"]["bestTrialName"] == [first, second][best]


async def test_nan_of_the_first_trial_stays_the_best(world):
    await world.experiment(maxTrialCount=5, parallelTrialCount=2)
    first, second = sorted(world.trials())
    await world.succeed(first, "nan")
    await world.succeed(second, "0.1")
    assert world.status()["currentOptimalTrial"]["bestTrialName"] == first


async def test_deleted_job_of_an_active_trial_is_recreated(world):
    await world.experiment()
    (trial,) = world.trials()
    before = world.store.get("Job", "kaniko", trial)["metadata"]["uid"]
    world.store.delete("Job", "kaniko", trial)
    await world.settle()
    assert world.store.get("Job", "kaniko", trial)["metadata"]["uid"] != before
    assert world.conditions(trial, "Trial")[-1] == ("Running", "True", "TrialRunning")


async def test_deleted_trial_is_recreated_with_its_name_and_values(world):
    await world.experiment(parallelTrialCount=2)
    trial, other = world.trials()
    before = world.store.get("Trial", "kaniko", trial)
    world.store.delete("Trial", "kaniko", trial)
    await world.settle()
    after = world.store.get("Trial", "kaniko", trial)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert world.trials() == [trial, other]


async def test_finished_job_is_deleted_unless_retained(world):
    body = world.recorded_experiment()
    body["spec"]["trialTemplate"]["retain"] = False
    world.store.create(body)
    await world.settle()
    (trial,) = world.trials()
    await world.succeed(trial)
    assert "deletionTimestamp" in world.store.get("Job", "kaniko", trial)["metadata"]
    assert ("Normal", "JobDeleted", f"Job {trial} has been deleted") in world.events(trial)


async def test_deleted_experiment_starts_nothing(world):
    await world.experiment()
    (trial,) = world.trials()
    await world.succeed(trial)
    world.store.delete("Experiment", "kaniko", "sweep")
    await world.settle()
    assert world.store.get("Experiment", "kaniko", "sweep") is None
    world.store.delete("Trial", "kaniko", trial)
    await world.settle()
    assert world.store.get("Trial", "kaniko", trial) is None
    assert world.katib.metrics.observation(trial, "loss") is None


async def test_ended_experiment_whose_trials_are_used_up_can_be_deleted(world):
    await world.experiment(maxTrialCount=1, maxFailedTrialCount=1)
    (trial,) = world.trials()
    await world.succeed(trial)
    assert ("Succeeded", "True") in [each[:2] for each in world.conditions()]
    world.store.delete("Experiment", "kaniko", "sweep")
    await world.settle()
    assert world.store.get("Experiment", "kaniko", "sweep") is None


async def test_value_with_a_quote_leaves_a_created_experiment_and_an_event(world):
    space = {"list": ['a"b']}
    parameter = {"name": "lr", "parameterType": "categorical", "feasibleSpace": space}
    await world.experiment(parameters=[parameter])
    assert world.conditions() == [("Created", "True", "ExperimentCreated")]
    assert world.store.list("Trial") == []
    ((type_, reason, message),) = world.events("sweep")[:1]
    assert (type_, reason) == ("Warning", "ReconcileError")
    assert message.startswith("Failed to reconcile: failed to convert string to unstructured: ")


async def test_unused_parameter_leaves_only_an_event(world):
    unused = {"name": "opt", "parameterType": "categorical", "feasibleSpace": {"list": ["a"]}}
    parameters = [world.recorded_experiment()["spec"]["parameters"][0], unused]
    await world.experiment(parameters=parameters)
    assert world.conditions() == [("Created", "True", "ExperimentCreated")]
    assert (
        "unable to find parameter from ParameterAssignment in TrialParameters" in world.events("sweep")[0][2]
    )
