"""A finished sweep offers more trials, or says why it can't run any."""

from dataclasses import replace

import pytest

from bot.config.policy import Limits
from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.space import Parameter
from bot.sweeps.lifecycle import advance
from bot.sweeps.observation import Observation
from bot.sweeps.parent_message import Links, parent
from k8s.katib.patches import DRAINED, GOAL_REACHED, MAX_TRIALS_REACHED
from k8s.katib.status import Experiment, ExperimentState
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, a_sweep

RAW = {"metadata": {"name": "x"}, "spec": {"maxTrialCount": 4}, "status": {}}
DONE = Experiment(state=ExperimentState.SUCCEEDED, raw=RAW, reason=MAX_TRIALS_REACHED)
GRID = replace(PLAN.space, algorithm="grid", parameters=(Parameter(name="w", values=("1", "2", "3", "4")),))


def ended(reason=MAX_TRIALS_REACHED, space=PLAN.space, limit=500):
    plan, config = replace(PLAN, space=space), replace(CONFIG, limits=Limits(trials=limit))
    stopping = a_sweep(Phase.STOPPING, ending=Phase.SUCCEEDED, submitted=True, plan=plan, image="i")
    return advance(stopping, Observation(experiment=replace(DONE, reason=reason)), config, NOW)


def buttons(sweep):
    [row] = [block for block in parent(sweep, Links()).blocks if block["type"] == "actions"]
    return [each["text"]["text"] for each in row["elements"]]


def test_finished_sweep_offers_as_many_trials_as_the_limit_leaves():
    assert "20 more trials" in buttons(ended())
    assert "6 more trials" in buttons(ended(limit=10))


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"reason": GOAL_REACHED}, "Katib only extends a sweep that used all its trials"),
        ({"reason": DRAINED}, "Katib only extends a sweep that used all its trials"),
        ({"space": GRID}, "all combinations have been tried"),
        ({"limit": 4}, "4 trials are the maximum"),
    ],
)
def test_finished_sweep_that_cannot_run_more_says_why(case, why):
    sweep = ended(**case)
    assert not [label for label in buttons(sweep) if "more" in label]
    assert f"Can't run more trials: {why}" in str(parent(sweep, Links()).blocks)


def test_button_adds_its_number_of_trials():
    click = Command(action=Action.EXTEND, user=OWNER, user_name="ada")
    again = advance(ended(), Observation(experiment=DONE, commands=(click,)), CONFIG, NOW)
    assert (again.phase, again.plan.space.max_trials) == (Phase.RUNNING, 24)
