"""The priority that a sweep gets when it is raised or lowered."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.lifecycle.commands import apply_command
from bot.lifecycle.observation import Observation
from k8s.kueue import PRIORITY_LABEL
from tests.bot.factories import ADMIN, CONFIG, NOW, PLAN, a_sweep
from tests.scenarios.queued_sweep import CLASSES, POLICY

QUEUED = replace(CONFIG, queueing=POLICY)
SEEN = Observation(priority_values=CLASSES)


def asked(action, priority, seen=SEEN):
    plan = replace(PLAN, queue="research", priority=priority)
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
    return apply_command(sweep, Command(action=action, user=ADMIN, user_name="x"), seen, QUEUED, NOW)


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (Action.RAISE, "low", "normal"),
        (Action.RAISE, "normal", "high"),
        (Action.LOWER, "high", "normal"),
        (Action.LOWER, "normal", "low"),
        (Action.RAISE, "", "high"),  # without a priority, or with one that isn't configured anymore
        (Action.LOWER, "", "low"),
    ],
)
def test_priority_changes_by_one_step(action, before, after):
    state = asked(action, before).queueing
    class_name = f"sweeps-{after}"
    assert (state.priority, state.value) == (after, CLASSES[class_name])
    assert state.labels == {PRIORITY_LABEL: class_name}


@pytest.mark.parametrize(
    ("action", "priority", "text"),
    [
        (Action.RAISE, "high", "already has the highest configured priority: high."),
        (Action.LOWER, "low", "already has the lowest configured priority: low."),
    ],
)
def test_last_priority_cannot_change_further(action, priority, text):
    after = asked(action, priority)
    assert text in after.outbox[0].text
    assert after.queueing.labels == {}


def test_priority_whose_class_cannot_be_read_is_refused():
    after = asked(Action.RAISE, "low", Observation(priority_values={"sweeps-low": 10}))
    assert "can't read the WorkloadPriorityClass `sweeps-normal`" in after.outbox[0].text
    assert after.queueing.labels == {}
