"""The limit of GPUs per user: two concurrent sweeps can't both use the remainder."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.platform.config.limits import Launch
from tests.bot.factories import ADMIN, CONFIG, NOW, PLAN, STRANGER, a_sweep
from tests.scenarios.sweep_in_memory import ROUNDS, SPACE, SWEEP, Clock, SimulatedSweep

SECOND = "lr-calm-lynx"
LIMITED = replace(CONFIG, launch=Launch(gpus_per_person=3))
FIVE = SPACE.replace("[a, b, c]", "[a, b, c, d, e]")  # two more than `trials: max`


@pytest.fixture
async def simulation(redis):
    """Two trials with a GPU each are two GPUs at the peak, of three."""
    simulation = SimulatedSweep(redis, Clock(None), endless=True)
    simulation.clients = replace(simulation.clients, config=LIMITED)
    async with simulation.started():
        yield simulation


async def another(simulation, **changes):
    """A second sweep, by default of the same user."""
    later = a_sweep(id=SECOND, request_id="trigger-2", **{"created": NOW + timedelta(seconds=1)} | changes)
    await simulation.store.create(later, [SECOND], "trigger-2")


async def phases(simulation, *runs):
    for item in runs:
        await simulation.round(item=item)
    return (await simulation.store.get(SWEEP)).phase, (await simulation.store.get(SECOND)).phase


async def test_second_sweep_waits_for_the_plan_of_the_first_and_is_denied(simulation):
    await another(simulation)
    assert await phases(simulation, SECOND) == (Phase.RECEIVED, Phase.RECEIVED)
    assert await phases(simulation, SWEEP) == (Phase.OPENING, Phase.RECEIVED)
    assert await phases(simulation, SECOND) == (Phase.OPENING, Phase.REFUSED)
    reported = dict(simulation.slack.ephemeral_messages)["UOWNER"]
    assert (
        "can use up to 2 GPUs, your other sweeps can use up to 2, and one person can use 3. *Fix:*"
        in reported
    )


@pytest.mark.parametrize("user", [STRANGER, ADMIN])
async def test_limit_per_person_ignores_others_and_admins(simulation, user):
    requester = replace(a_sweep().requester, user=user)
    await another(simulation, requester=requester)
    assert await phases(simulation, SECOND, SWEEP) == (Phase.OPENING, Phase.OPENING)


async def test_sweep_that_is_never_planned_delays_others_briefly(simulation):
    await another(simulation)
    simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(minutes=4))
    assert await phases(simulation, SECOND) == (Phase.RECEIVED, Phase.OPENING)


async def test_paused_sweep_leaves_room_for_another_one(simulation):
    await another(simulation, phase=Phase.PAUSED, plan=PLAN)
    assert await phases(simulation, SWEEP) == (Phase.OPENING, Phase.PAUSED)


@pytest.mark.features("extension")
@pytest.mark.parametrize(
    ("phase", "extended"), [(Phase.RUNNING, Phase.SUCCEEDED), (Phase.CANCELLED, Phase.RUNNING)]
)
async def test_ended_sweep_is_extended_only_if_the_other_sweeps_leave_room(redis, phase, extended):
    simulation = SimulatedSweep(redis, Clock(None), image=True, space=FIVE)
    simulation.clients = replace(simulation.clients, config=LIMITED)
    async with simulation.started():
        for _ in range(ROUNDS):
            await simulation.round()
        assert simulation.last.phase is Phase.SUCCEEDED
        await another(simulation, phase=phase, plan=PLAN)
        simulation.acts = {Action.EXTEND: Phase.SUCCEEDED}
        await simulation._interfere(Phase.SUCCEEDED)
        await simulation.round()
    assert simulation.last.phase is extended
    denied = "one person can use 3" in str(simulation.slack.ephemeral_messages)
    assert denied == (extended is Phase.SUCCEEDED)
