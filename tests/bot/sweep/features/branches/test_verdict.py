"""What a sweep that compares branches says of them, shows, and refuses afterwards."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.record import Phase, dump, load
from bot.core.request import SweepRequest
from bot.core.space import SEARCH_SERVICE, Goal
from bot.sweep.charts.picture import Content, alt_text, png
from bot.sweep.features.branches import FEATURE, footer
from bot.sweep.features.extension import limit_reason
from bot.sweep.launch.branches import with_branches
from bot.sweep.launch.plan import plan
from bot.sweep.launch.promote import promoted
from bot.sweep.model.observation import Observation
from bot.sweep.results.table import best_table
from k8s.engine import End, Experiment, ExperimentState
from k8s.katib.status import read_trial
from tests.bot.factories import CONFIG, ORDER, SETTINGS, SOURCE, SPACE, a_sweep
from tests.bot.sweep.results.factories import a_result, some_results

REQUEST = SweepRequest(branch="main,wider", space="lr")
SEARCH = replace(SPACE, metric="acc", goal=Goal.MAXIMIZE, algorithm=SEARCH_SERVICE, max_trials=60)
PAIRED = with_branches(SEARCH, REQUEST, replace(CONFIG, search_service=True))
PLAN = plan(
    replace(ORDER, request=REQUEST, space=PAIRED, others=(replace(SOURCE, commit="f" * 40),)), SETTINGS
)
SWEEP = a_sweep(Phase.STOPPING, plan=PLAN, request=REQUEST, ending=Phase.SUCCEEDED, submitted=True)
BETTER = "`wider` is better than `main` by "


def trial(number: int, branch: str, value: float) -> dict:
    values = {"branch": branch, "lr": "0.1", "seed": str(number)}
    return {
        "metadata": {"name": f"{branch}-{number}"},
        "spec": {"parameterAssignments": [{"name": name, "value": text} for name, text in values.items()]},
        "status": {
            "conditions": [{"type": "Succeeded", "status": "True"}],
            "observation": {"metrics": [{"name": "acc", "max": str(value)}]},
        },
    }


def trials(gain: float, count: int = 12) -> tuple:
    found = [trial(n, "main", 0.8 + n % 3 / 100) for n in range(1, count + 1)]
    found += [trial(n, "wider", 0.8 + gain + n % 4 / 100) for n in range(1, count + 1)]
    return tuple(read_trial(each, {"acc": "max"}) for each in found)


def test_end_of_the_sweep_names_the_better_branch_only_if_it_leads():
    done = FEATURE.ended(SWEEP, Observation(trials=trials(0.1)), CONFIG)
    assert FEATURE.saved(load(dump(done))).startswith(BETTER)
    assert FEATURE.saved(SWEEP) == ""
    assert footer(SWEEP) == "Compares `main` @ `01234567` and `wider` @ `ffffffff`, in the space of `main`"
    plain = a_sweep(Phase.STOPPING, submitted=True)
    assert FEATURE.ended(plain, Observation(trials=trials(0.1)), CONFIG) is plain
    assert footer(plain) == ""
    lucky = (*trials(0), read_trial(trial(99, "wider", 7.0), {"acc": "max"}))
    done = FEATURE.ended(SWEEP, Observation(trials=lucky), CONFIG)
    assert FEATURE.saved(done).startswith("No difference between ")


def test_picture_and_table_have_the_pairs():
    found = (a_result(each.name, each.value, parameters=each.parameters) for each in trials(0.1))
    results = some_results(*found, space=PAIRED, best="")
    table = best_table(results)
    assert table.text == "Pairs by `acc`, higher is better:"
    rows = [[cell["text"] for cell in row] for row in table.blocks[1]["rows"]]
    assert rows[0][:3] == ["wider", "main", "lr"]
    assert (len(rows), rows[1][:3]) == (13, ["0.91", "0.81", "0.1"])
    assert BETTER.replace("`", "") in alt_text(Content(results))
    assert png(Content(results)).startswith(b"\x89PNG")


def test_ended_comparison_is_neither_promoted_nor_extended():
    with pytest.raises(UserError, match="compared branches, in pairs with seeds"):
        promoted(replace(SWEEP, phase=Phase.SUCCEEDED), "", CONFIG)
    experiment = Experiment(state=ExperimentState.SUCCEEDED, end=End.ALL_TRIALS)
    assert limit_reason(SWEEP, experiment, CONFIG).startswith("it compared branches")
