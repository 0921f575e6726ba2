"""A sweep with several nodes per trial waits, is shown as waiting, and starts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Event
from bot.core.record import Phase
from bot.sweep.features.nodes.decide import (
    CHECKING,
    NodesSeen,
    NodesState,
    can_start_trials,
    drain_denial,
    follow_start,
    headline,
    problem,
    restarted,
    waiting_text,
    waits_for_nodes,
)
from bot.sweep.model.observation import Observation
from tests.bot.factories import NOW, PLAN, a_sweep

NODES = replace(PLAN, nodes=4, gpus=8)
HOUR = timedelta(hours=1)
NEW = a_sweep(Phase.PENDING, plan=NODES, image="i")
RUNNING = a_sweep(Phase.RUNNING, plan=NODES, submitted=True, deadline=NOW + HOUR)
WHY = waiting_text(NODES, {"lr-calm-owl": "running", "lr-eager-gnu": "waiting"})
EVENT = Event(
    kind="start_waiting",
    text=":hourglass_flowing_sand: Waiting for 4 nodes with 8 free GPUs each. Sweeps ahead: lr-calm-owl "
    "(running) and lr-eager-gnu (waiting). Trials start once enough nodes are free for all of these sweeps, "
    "or once those ahead have ended.",
)


def followed(sweep, wait, now=NOW):
    return follow_start(sweep, Observation().put(NodesSeen(wait=wait)), now)


def shown(sweep):
    return headline(sweep), problem(sweep)


def test_new_sweep_waits_is_reported_once_and_starts():
    checked = followed(NEW, CHECKING)
    assert shown(checked) == ((":hourglass_flowing_sand:", "Waiting for nodes"), [CHECKING])
    assert (checked.holds, checked.outbox) == (("nodes",), ())
    waiting = followed(checked, WHY)
    assert (waiting.of(NodesState).wait, waiting.outbox) == (WHY, (EVENT,))
    assert "waiting for nodes, so it has no trials to drain" in drain_denial(waiting)
    assert followed(waiting, WHY) == waiting
    assert followed(followed(waiting, CHECKING), WHY) == waiting, "each wait is reported once"
    started = followed(waiting, "")
    assert (started.holds, started.of(NodesState), started.sent_keys) == ((), NodesState(), ())
    assert (shown(started), drain_denial(started)) == ((None, []), "")
    waiting = followed(restarted(replace(RUNNING, phase=Phase.PAUSED), RUNNING), WHY)
    assert followed(waiting, "", NOW + 5 * HOUR).deadline == NOW + 6 * HOUR
    assert followed(RUNNING, CHECKING) == RUNNING
    for plan in (None, PLAN, replace(NODES, queue="research")):
        assert can_start_trials(replace(NEW, plan=plan)), "its pods needn't start together"
    assert shown(replace(RUNNING, phase=Phase.CANCELLED, holds=("nodes",))) == (None, [])


@pytest.mark.parametrize(
    ("phase", "waits"), [(Phase.PAUSED, True), (Phase.SUCCEEDED, True), (Phase.RUNNING, False)]
)
def test_sweep_that_is_restarted_waits_unless_its_trials_could_start_all_the_time(phase, waits):
    after = restarted(replace(RUNNING, phase=phase), RUNNING)
    assert (waits_for_nodes(after), can_start_trials(after)) == (waits, not waits)
    assert after.of(NodesState).wait == (CHECKING if waits else "")
    other = replace(RUNNING, plan=replace(NODES, queue="research"))
    assert restarted(replace(other, phase=phase), other) == other, "Kueue admits its workers together"
