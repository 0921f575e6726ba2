"""What MLflow lacks of each trial."""

from dataclasses import replace

import pytest

from bot.core.space import Goal
from bot.sweep.results.trial_runs import Run, RunChange, changes, main_run
from k8s.engine import TrialState
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import a_result, some_results
from tests.cases import cases

NAMES = frozenset({"lr", "layers", "optimizer"})


def a_run(trial="t1", **facts):
    known = {"id": "r1", "status": "FINISHED", "params": NAMES, "metrics": frozenset({"val_loss"})}
    return Run(trial=f"lr-brave-otter-{trial}", **known | facts)


def test_silent_trial_gets_a_run_and_one_of_the_training_only_what_it_lacks():
    trial = a_result(value=0.25, more={"accuracy": 0.9})
    assert changes(some_results(trial), []) == [
        RunChange(
            trial=trial,
            params=trial.parameters,
            metrics={"accuracy": 0.9, "val_loss": 0.25},
            tags={"sweepbot.state": "succeeded", "sweepbot.source": "katib"},
            status="FINISHED",
        )
    ]
    [change] = changes(some_results(a_result()), [a_run(params=frozenset({"lr"}), metrics=frozenset())])
    assert (change.run_id, change.status) == ("r1", "")
    assert (change.params, change.metrics) == ({"layers": "2", "optimizer": "adam"}, {"val_loss": 0.5})
    assert change.tags == {"sweepbot.state": "succeeded"}
    results = some_results(a_result(), a_result("t2", state=TrialState.LIVE, value=None))
    assert changes(results, [a_run(state="succeeded")]) == []
    assert changes(results, [a_run(state="succeeded", status="RUNNING")]) != []


@cases(
    ("state", "status", "wanted"),
    [
        (TrialState.FAILED, "FINISHED", "FAILED"),  # MLflow ends the run of a crashed program as FINISHED
        (TrialState.KILLED, "RUNNING", "KILLED"),
        (TrialState.NOT_STARTED, "RUNNING", "KILLED"),
        (TrialState.STOPPED_EARLY, "RUNNING", "FINISHED"),
        (TrialState.SUCCEEDED, "RUNNING", "FINISHED"),
        (TrialState.SUCCEEDED, "FAILED", ""),  # as the training's author says
        (TrialState.FAILED, "KILLED", ""),
        (TrialState.NO_METRICS, "FINISHED", ""),
    ],
)
def test_status_says_how_the_trial_ended(state, status, wanted):
    [change] = changes(some_results(a_result(state=state, value=None)), [a_run(status=status)])
    assert change.status == wanted


def test_runs_that_are_too_many_go_or_end():
    ours = a_run(id="r2", ours=True, state="succeeded")
    first, second = changes(some_results(a_result()), [ours, a_run()])
    assert (first.run_id, first.delete) == ("r1", False)
    assert (second.run_id, second.delete) == ("r2", True)
    twice = changes(some_results(a_result()), [ours, a_run(id="r3", ours=True, state="succeeded")])
    assert [(change.run_id, change.delete) for change in twice] == [("r2", True)]
    nested = a_run(id="r2", nested=True, status="RUNNING", metrics=frozenset())
    results = some_results(a_result(state=TrialState.KILLED, value=None))
    main, child = changes(results, [a_run(status="RUNNING"), nested])
    assert (main.run_id, main.tags) == ("r1", {"sweepbot.state": "killed"})
    assert (child.run_id, child.status, dict(child.tags)) == ("r2", "KILLED", {})


@pytest.mark.parametrize(
    ("other", "main"),
    [
        ({"metrics": frozenset(), "started": 9}, "r1"),
        ({"nested": True, "started": 9}, "r1"),
        ({"params": frozenset({"lr"}), "started": 9}, "r1"),
        ({"started": 9}, "r2"),
    ],
)
def test_main_run_has_the_objective_isnt_nested_has_the_parameters_and_started_last(other, main):
    found = main_run([a_run(), a_run(id="r2", **other)], "val_loss")
    assert found is not None
    assert found.id == main


def test_runs_of_several_objectives_say_whether_they_are_on_the_front():
    """A sweep that is extended can change it."""
    space = replace(SPACE, additional=("accuracy",), goals={"accuracy": Goal.MAXIMIZE})
    results = some_results(a_result(), a_result("t2"), space=space, front=("lr-brave-otter-t2",))
    was = [a_run(state="succeeded", front="true"), a_run("t2", state="succeeded", front="true")]
    [change] = changes(results, was)
    assert change.trial.name == "lr-brave-otter-t1"
    assert change.tags == {"sweepbot.state": "succeeded", "sweepbot.pareto_front": "false"}
