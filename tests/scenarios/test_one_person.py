"""GPUs that one person's sweeps can use together: two that come at once can't both take what is left."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.config.policy import Launch
from bot.core.record import Phase
from tests.bot.factories import ADMIN, CONFIG, NOW, STRANGER, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

SECOND = "lr-calm-lynx"


@pytest.fixture
async def life(redis):
    """Two trials with a GPU each are two GPUs at the peak, of three."""
    life = SimulatedSweep(redis, Clock(None), endless=True)
    life.clients = replace(life.clients, config=replace(CONFIG, launch=Launch(gpus_per_person=3)))
    async with life.started():
        yield life


async def another(life, **changes):
    """A second sweep, of the same person if nothing else is said."""
    later = a_sweep(id=SECOND, request_id="trigger-2", **{"created": NOW + timedelta(seconds=1)} | changes)
    await life.store.create(lambda _: later, [SECOND], "trigger-2")


async def phases(life, *turns):
    for item in turns:
        await life.round(item=item)
    return (await life.store.get(SWEEP)).phase, (await life.store.get(SECOND)).phase


async def test_second_sweep_waits_for_the_plan_of_the_first_and_is_denied(life):
    await another(life)
    assert await phases(life, SECOND) == (Phase.RECEIVED, Phase.RECEIVED)
    assert await phases(life, SWEEP) == (Phase.OPENING, Phase.RECEIVED)
    assert await phases(life, SECOND) == (Phase.OPENING, Phase.REFUSED)
    told = dict(life.slack.whispers)["UOWNER"]
    assert "can use up to 2 GPUs, your other sweeps can use up to 2, and one person can use 3. *Fix:*" in told


@pytest.mark.parametrize("user", [STRANGER, ADMIN])
async def test_limit_per_person_ignores_others_and_admins(life, user):
    requester = replace(a_sweep().requester, user=user)
    await another(life, requester=requester)
    assert await phases(life, SECOND, SWEEP) == (Phase.OPENING, Phase.OPENING)


async def test_sweep_that_is_never_planned_delays_others_briefly(life):
    await another(life)
    life.clients = replace(life.clients, now=lambda: NOW + timedelta(minutes=5))
    assert await phases(life, SECOND) == (Phase.RECEIVED, Phase.OPENING)
