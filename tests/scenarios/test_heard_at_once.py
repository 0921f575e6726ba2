"""What is told follows from what the watches bring. Here no turn comes by a look that was only due later."""

import itertools

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.storage.work_queue import Lease
from bot.sweeps.reconciler import reconcile
from k8s.cache import Change
from k8s.objects import SWEEP_LABEL
from tests.bot.factories import NOW, OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

ENDLESS, TRAININGS = {"endless": True}, {"endless": "trainings"}


class Heard:
    """A life whose turns come by a step that was made, or by a change that a watch brought."""

    def __init__(self, life):
        self.life, self.wakes = life, life.informer.wakes
        self.wakes._clock = itertools.count().__next__  # nothing is gathered

    async def until(self, phase, *, pods):
        """Until the sweep is in this phase and has pods, or has none."""
        again = True
        for _ in range(40):
            if (await self.life.record()).phase is phase and bool(self.life.gpus_held()) is pods:
                return
            if not again:
                await self._woken()
            again = await self._turn()
        pytest.fail(f"{(await self.life.record()).phase} instead of {phase}: {self.life.slack.said}")

    async def _turn(self):
        """Whether another one follows at once."""
        lease = Lease(WorkItem.sweep(SWEEP), "worker", failures=0, key="life:lease:worker")
        await self.life.redis.set(lease.key, lease.token)
        due = await reconcile(lease, self.life.clients)
        return due is not None and not due

    async def _woken(self):
        await self.life.redis.delete("life:queue:delayed")  # what the turn itself asked for
        for _ in range(10):
            await self.life.settle()
            await self.wakes.send()
            if await self.life.redis.zrem("life:queue:ready", SWEEP):
                return
            await self.life._time_passes()
        pytest.fail(f"nothing wakes it any more: {self.life.slack.said}")


@pytest.fixture
async def heard(redis, request):
    async with SimulatedSweep(redis, Clock(None), **request.param).started() as life:
        yield Heard(life)


@pytest.mark.parametrize(
    ("heard", "phase", "pods"),
    [
        (ENDLESS, Phase.RECEIVED, False),
        (ENDLESS, Phase.OPENING, False),
        (ENDLESS, Phase.BUILDING, False),
        (ENDLESS, Phase.BUILDING, True),
        (TRAININGS, Phase.PENDING, False),
        (TRAININGS, Phase.PENDING, True),
        (TRAININGS, Phase.RUNNING, True),
    ],
    indirect=["heard"],
)
async def test_cancelled_sweep_ends_with_its_last_pod(heard, phase, pods):
    life = heard.life
    await heard.until(phase, pods=pods)
    await life.store.add_command(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await heard.until(Phase.CANCELLED, pods=False)
    await heard._turn()
    told = life.slack.said or [text for _, text in life.slack.whispers]
    assert "Cancelled" in told[-1]


@pytest.mark.parametrize("heard", [TRAININGS], indirect=True)
async def test_prebuilt_image_is_submitted_and_reported_in_the_next_reconcile(heard):
    said = heard.life.slack.said
    await heard.until(Phase.PENDING, pods=False)
    assert said[-1].startswith(":package: Image built")
    await heard._turn()
    assert said[-1].startswith(":hourglass_flowing_sand: Submitted")


@pytest.mark.parametrize("heard", [TRAININGS], indirect=True)
@pytest.mark.parametrize("initial", [False, True])
async def test_objects_left_by_an_ended_sweep_wake_it_and_ended_ones_wake_none(heard, initial):
    """A paused worker may submit after the end: what is live then has to be stopped."""
    life = heard.life
    await life.store.save((await life.record()).to(Phase.CANCELLED, NOW))
    for live in (False, True):
        heard.wakes.add(Change((SWEEP_LABEL, SWEEP), live, initial))
        await heard.wakes.send()
        assert await life.redis.zrem("life:queue:ready", SWEEP) == live


@pytest.mark.parametrize("heard", [TRAININGS], indirect=True)
async def test_first_list_wakes_no_unfinished_sweep(heard):
    """The resync wakes each of them once; a list per kind would do so four times."""
    heard.wakes.add(Change((SWEEP_LABEL, SWEEP), live=True, initial=True))
    await heard.wakes.send()
    assert await heard.life.redis.exists("life:queue:ready", "life:queue:delayed") == 0
