"""results.csv and the JSON form: a line per trial, whole numbers, and nothing that a spreadsheet runs."""

import csv
import json
from dataclasses import replace

from bot.core.space import Goal, Parameter
from bot.sweep.results.csv_file import csv_text, json_text
from k8s.engine import TrialState
from tests.bot.factories import NOW, SPACE
from tests.bot.sweep.results.factories import SWEEP, a_result, some_results

FULL = a_result(
    "t2",
    0.1234567890123,
    more={"acc": 0.9},
    started=NOW,
    ended=NOW,
    node="n1",
    gpu_model="NVIDIA A100",
    gpu_hours=1.5,
    utilization=0.25,
    cost=3.75,
    run_url="http://mlflow/#/1",
)
WITH_ACC = replace(SPACE, additional=("acc",))


def rows(results):
    return list(csv.DictReader(csv_text(results).splitlines()))


def test_csv_has_a_line_per_trial_the_best_first():
    failed, never = a_result("t3", None, TrialState.FAILED), a_result("t4", None, TrialState.NOT_STARTED)
    found = rows(some_results(a_result("t1"), FULL, failed, never, space=WITH_ACC))
    assert [row["trial"] for row in found] == [f"{SWEEP}-{name}" for name in ("t2", "t1", "t3", "t4")]
    assert found[0] == {
        "trial": f"{SWEEP}-t2",
        "state": "done",
        "val_loss": "0.1234567890123",
        "acc": "0.9",
        "lr": "0.01",
        "layers": "2",
        "optimizer": "adam",
        "started": "2026-11-21T12:00:00+00:00",
        "ended": "2026-11-21T12:00:00+00:00",
        "node": "n1",
        "gpu_model": "NVIDIA A100",
        "gpu_hours": "1.5",
        "utilization": "0.25",
        "cost": "3.75",
        "run_url": "http://mlflow/#/1",
    }
    assert (found[2]["state"], found[2]["val_loss"], found[2]["cost"]) == ("failed", "", "")
    assert found[3]["state"] == "not started"


def test_csv_has_no_formulas_and_prefixes_names_of_its_own_columns():
    hostile = {"lr": "=1+1", "layers": "-2", "optimizer": '@SUM(A1)\n"'}
    parameters = (*SPACE.parameters, Parameter(name="=cmd", values=("+x",)))
    trial = a_result(parameters=hostile | {"=cmd": "+x"}, node="=HYPERLINK(1)")
    results = some_results(trial, space=replace(SPACE, parameters=parameters))
    header, line = list(csv.reader(csv_text(results).splitlines(keepends=True)))
    assert "'=cmd" in header
    assert not [cell for cell in (*header, *line) if cell.startswith(("=", "+", "@"))]
    assert "-2" in line  # a number stays a number
    names = ("node", "trial", "val_loss")
    parameters = tuple(Parameter(name=name, values=("a",)) for name in names)
    trial = a_result(parameters={"node": "a", "trial": "b", "val_loss": "c"})
    [row] = rows(some_results(trial, space=replace(SPACE, parameters=parameters)))
    assert [row["params.node"], row["params.trial"], row["params.val_loss"]] == ["a", "b", "c"]
    assert (row["trial"], row["val_loss"], row["node"]) == (trial.name, "0.5", "")


def test_csv_of_seeds_is_by_seed_and_ends_with_their_statistics():
    space = replace(SPACE, seed="seed", parameters=(Parameter(name="seed", values=("0", "2", "10")),))
    trials = [a_result(f"t{seed}", float(seed), parameters={"seed": seed}) for seed in ("10", "2", "0")]
    found = rows(some_results(*trials, space=space))
    assert [row["seed"] for row in found[:3]] == ["0", "2", "10"]
    assert [(row["trial"], row["val_loss"]) for row in found[3:5]] == [
        ("mean", "4.0"),
        ("standard deviation", "5.291502622129181"),
    ]


def test_json_has_the_sweep_and_its_trials():
    found = json.loads(json_text(some_results(FULL, space=WITH_ACC, best=FULL.name)))
    assert (found["sweep"], found["metric"], found["goal"]) == (SWEEP, "val_loss", "minimize")
    [trial] = found["trials"]
    assert trial["metrics"] == {"val_loss": 0.1234567890123, "acc": 0.9}
    assert (trial["parameters"]["lr"], trial["started"]) == ("0.01", "2026-11-21T12:00:00+00:00")


def test_files_of_several_objectives_say_which_trials_are_on_the_front():
    space = replace(WITH_ACC, goals={"acc": Goal.MAXIMIZE})
    results = some_results(a_result("t1"), FULL, space=space, front=(FULL.name,))
    assert [row["pareto_front"] for row in rows(results)] == ["True", "False"]
    found = json.loads(json_text(results))
    assert found["objectives"] == {"val_loss": "minimize", "acc": "maximize"}
    assert [trial["pareto_front"] for trial in found["trials"]] == [True, False]
