"""What a trial usually uses, from the latest sweep that compares, and how many of them fit a budget."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Budget
from bot.sweep.form.preview import facts
from bot.sweep.launch.spending import usual_gpu_hours
from bot.sweep.results.store import ResultsStore
from k8s.engine import TrialState
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, NOW, PLAN, REQUEST
from tests.bot.sweep.results.factories import a_result, some_results
from tests.scenarios.fakes import DirectCluster


async def test_usual_gpu_hours_are_the_mean_of_the_latest_sweep_that_compares():
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    kept = ResultsStore(DirectCluster(store), "sweeps")
    assert await usual_gpu_hours(PLAN, kept) is None
    ends = iter(range(9))
    for name, hours, facts_ in (
        ("lr-old-fox", 9.0, {}),
        ("lr-last-fox", 2.0, {}),
        ("lr-wide-fox", 5.0, {"gpus": 4}),
        ("lr-many-fox", 6.0, {"nodes": 2}),
        ("lr-other-fox", 7.0, {"repo_url": "https://git.example/other.git"}),
        ("wd-calm-fox", 8.0, {"space": replace(PLAN.space, name="wd")}),
        ("lr-unmeasured-fox", None, {}),
    ):
        trials = (
            a_result("t1", gpu_hours=hours),
            a_result("t2", gpu_hours=hours and hours + 1),
            a_result("t3"),
            a_result("t4", state=TrialState.FAILED, gpu_hours=0.1),
        )
        ended = NOW + timedelta(hours=next(ends))
        await kept.save(some_results(*trials, sweep=name, ended=ended, **facts_))
    assert await usual_gpu_hours(PLAN, kept) == 2.5


@pytest.mark.parametrize(
    ("usual", "limit", "effect"),
    [
        (None, None, "then no new trials start"),
        (None, 11, "then no new trials start"),
        (None, 10, "enough for all trials"),
        (15.0, None, "about 2 of 4 trials fit"),
        (1.0, None, "about 4 of 4 trials fit"),
        (15.0, 10, "enough for all trials"),
    ],
)
def test_preview_says_how_many_trials_the_budget_has_room_for(usual, limit, effect):
    budget, space = Budget(gpu_hours=40, usual=usual), replace(PLAN.space, trial_hours=limit)
    plan = replace(PLAN, budget=budget, space=space)
    assert dict(facts(REQUEST, plan, CONFIG))["Budget"] == f"40 GPU-h; {effect}"
