"""Whether a sweep runs one trial first, and where that is shown before it starts."""

from dataclasses import replace

import pytest

from bot.sweep.form.preview import preview
from bot.sweep.form.view import Draft, form, options_of, read, request
from bot.sweep.launch.resolve import is_gated
from k8s.katib.manifest import gated
from tests.bot.factories import CONFIG, PLAN, REQUEST, SPACE

ON = replace(CONFIG, gate=True)


@pytest.mark.parametrize(
    ("option", "config", "parallel", "expected"),
    [
        (None, ON, 2, True),
        (None, ON, 1, False),
        (None, CONFIG, 2, False),
        (False, ON, 2, False),
        (True, CONFIG, 2, True),
        (True, CONFIG, 1, True),
    ],
)
def test_is_gated_follows_option_then_configuration(option, config, parallel, expected):
    space = replace(SPACE, parallel=parallel)
    assert is_gated(replace(REQUEST, gate=option), space, config) is expected


def test_gated_limits_katib_to_one_trial_and_is_shown_but_never_for_a_single_trial():
    assert not is_gated(replace(REQUEST, gate=True), replace(SPACE, max_trials=1, parallel=1), ON)
    spec, before = gated(PLAN.experiment)["spec"], PLAN.experiment["spec"]
    counts = {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    assert spec == before | counts
    assert spec["resumePolicy"] == "LongRunning"
    plan = replace(PLAN, space=replace(PLAN.space, gate=True, max_hours=12))
    shown = str(preview(Draft(channel="C1"), REQUEST, plan, CONFIG))
    assert "One trial first, and the 3 other trials once it is healthy" in shown
    assert "12 h from the first trial's start" in shown
    assert "One trial first" not in str(preview(Draft(channel="C1"), REQUEST, PLAN, CONFIG))


@pytest.mark.parametrize("gate", [None, True, False])
def test_form_keeps_gate_max_hours_and_from(gate):
    asked = replace(REQUEST, gate=gate, max_hours=1.5, from_="auto")
    draft = Draft(options=options_of(asked), channel="C1")
    view = form(draft, CONFIG)
    values = {
        block["block_id"]: {block["element"]["action_id"]: _state(block["element"])}
        for block in view["blocks"]
        if block["type"] == "input"
    }
    found, errors = request(read({**view, "state": {"values": values}}), CONFIG)
    assert (errors, found.gate, found.max_hours, found.from_) == ({}, gate, 1.5, "auto")


def _state(element):
    return {"value": element.get("initial_value"), "selected_option": element.get("initial_option")}
