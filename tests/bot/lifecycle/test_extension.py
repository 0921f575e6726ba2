"""A finished sweep offers more trials, or says why it can't run any."""

from dataclasses import replace

import pytest

from bot.config.limits import Launch, Limits
from bot.config.permissions import launch_denial
from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.space import Parameter
from bot.lifecycle.observation import Observation
from bot.lifecycle.phases import advance
from bot.lifecycle.required_changes import required_changes
from bot.messages.parent import Links, parent
from k8s.katib.patches import DRAINED, GOAL_REACHED, MAX_TRIALS_REACHED
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.bot.lifecycle.observations import CANCEL, DONE, OPEN, RAW, after

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


@pytest.mark.parametrize("ending", [Phase.CANCELLED, Phase.FAILED])
def test_sweep_that_did_not_succeed_offers_no_more_trials(ending):
    stopping = a_sweep(Phase.STOPPING, ending=ending, submitted=True)
    sweep = advance(stopping, Observation(experiment=DONE), CONFIG, NOW)
    assert (sweep.phase, sweep.more_trials, sweep.not_extendable) == (ending, 0, "")


def test_button_adds_its_number_of_trials():
    click = Command(action=Action.EXTEND, user=OWNER, user_name="ada")
    again = advance(ended(), Observation(experiment=DONE, commands=(click,)), CONFIG, NOW)
    assert (again.phase, again.plan.space.max_trials) == (Phase.RUNNING, 24)


def an_ended(*, extendable=True, **changes):
    space = replace(PLAN.space, extendable=extendable)
    done = {"submitted": True, "plan": replace(PLAN, space=space), "ending": Phase.SUCCEEDED}
    return a_sweep(Phase.SUCCEEDED, **done | changes)


def test_extended_sweep_runs_until_katib_has_the_new_total():
    command = replace(CANCEL, action=Action.EXTEND, trials=9)
    again = after(an_ended(), experiment=DONE, commands=(command,))
    assert (
        required_changes(
            again, Observation(experiment=replace(DONE, raw={"spec": {"maxTrialCount": 9}})), NOW
        ).patch
        == ()
    )
    assert (again.phase, again.extending, again.plan.space.max_trials) == (Phase.RUNNING, True, 9)
    [patch] = required_changes(again, Observation(experiment=DONE), NOW).patch
    assert (patch.body, patch.subresource) == ({"spec": {"maxTrialCount": 9}}, "")
    waiting = after(again, experiment=DONE)
    assert waiting == again
    assert after(waiting, experiment=OPEN) == waiting  # Katib runs on with the old number
    more = RAW | {"spec": RAW["spec"] | {"maxTrialCount": 9}}
    reopened = after(waiting, experiment=replace(OPEN, raw=more))
    assert (reopened.extending, after(reopened, experiment=DONE).phase) == (False, Phase.STOPPING)


def test_extension_is_denied_to_owners_who_can_no_longer_start_sweeps():
    config = replace(CONFIG, launch=Launch(people=(STRANGER,)))
    click = Command(action=Action.EXTEND, user=OWNER, user_name="ada")
    seen = Observation(experiment=DONE, commands=(click,))
    refused = advance(ended(), seen, config, NOW)
    assert (refused.phase, refused.outbox[-1].text) == (Phase.SUCCEEDED, launch_denial(OWNER, "C1", config))
