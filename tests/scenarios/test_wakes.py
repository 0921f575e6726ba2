"""Reports follow from watch events alone: no reconcile here comes from a later requeue."""

import itertools

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.platform.storage.work_queue import Lease
from bot.sweep.sweeps.reconciler import reconcile
from k8s.api.cache import Change
from k8s.objects import SWEEP_LABEL
from tests.bot.factories import NOW, OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

ENDLESS, TRAININGS = {"endless": True}, {"endless": "trainings"}


class WatchedSweep:
    """A simulation whose reconciles come from a change of its own or from a watch event."""

    def __init__(self, simulation):
        self.simulation, self.wakes = simulation, simulation.informer.wakes
        self.wakes._clock = itertools.count().__next__  # nothing is gathered

    async def until(self, phase, *, pods):
        """Until the sweep is in this phase and has pods, or has none."""
        again = True
        for _ in range(40):
            if (await self.simulation.record()).phase is phase and bool(self.simulation.gpus_held()) is pods:
                return
            if not again:
                await self._woken()
            again = await self._turn()
        pytest.fail(
            f"{(await self.simulation.record()).phase} instead of {phase}: {self.simulation.slack.posted}"
        )

    async def _turn(self):
        """Whether another reconcile follows at once."""
        lease = Lease(WorkItem.sweep(SWEEP), "worker", failures=0, key="life:lease:worker")
        await self.simulation.redis.set(lease.key, lease.token)
        due = await reconcile(lease, self.simulation.clients)
        return due is not None and not due

    async def _woken(self):
        await self.simulation.redis.delete("life:queue:delayed")  # what the reconcile itself requeued
        for _ in range(10):
            await self.simulation.settle()
            await self.wakes.send()
            if await self.simulation.redis.zrem("life:queue:ready", SWEEP):
                return
            await self.simulation._time_passes()
        pytest.fail(f"nothing wakes it any more: {self.simulation.slack.posted}")


@pytest.fixture
async def watched(redis, request):
    async with SimulatedSweep(redis, Clock(None), **request.param).started() as simulation:
        yield WatchedSweep(simulation)


@pytest.mark.parametrize(
    ("watched", "phase", "pods"),
    [
        (ENDLESS, Phase.RECEIVED, False),
        (ENDLESS, Phase.OPENING, False),
        (ENDLESS, Phase.BUILDING, True),
        (TRAININGS, Phase.PENDING, False),
        (TRAININGS, Phase.PENDING, True),
        (TRAININGS, Phase.RUNNING, True),
    ],
    indirect=["watched"],
)
async def test_cancelled_sweep_ends_with_its_last_pod(watched, phase, pods):
    simulation = watched.simulation
    await watched.until(phase, pods=pods)
    await simulation.store.add_command(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await watched.until(Phase.CANCELLED, pods=False)
    await watched._turn()
    reported = simulation.slack.posted or [text for _, text in simulation.slack.ephemeral_messages]
    assert "Cancelled" in reported[-1]


@pytest.mark.parametrize("watched", [TRAININGS], indirect=True)
async def test_prebuilt_image_is_submitted_and_reported_in_the_next_reconcile(watched):
    await watched.until(Phase.PENDING, pods=False)
    await watched._turn()
    steps = (await watched.simulation.record()).steps
    assert [*steps.values()][1:] == ["✓ Submitted", "○ First trial"]


@pytest.mark.parametrize("watched", [TRAININGS], indirect=True)
@pytest.mark.parametrize("initial", [False, True])
async def test_objects_left_by_an_ended_sweep_wake_it_and_ended_ones_wake_none(watched, initial):
    """A paused worker can submit after the end: active objects must then be stopped."""
    simulation = watched.simulation
    await simulation.store.save((await simulation.record()).to(Phase.CANCELLED, NOW))
    for live in (False, True):
        watched.wakes.add(Change((SWEEP_LABEL, SWEEP), live, initial))
        await watched.wakes.send()
        assert await simulation.redis.zrem("life:queue:ready", SWEEP) == live


@pytest.mark.parametrize("watched", [TRAININGS], indirect=True)
async def test_first_list_wakes_no_unfinished_sweep(watched):
    """The resync wakes each of them once; a list per kind would do so four times."""
    watched.wakes.add(Change((SWEEP_LABEL, SWEEP), live=True, initial=True))
    await watched.wakes.send()
    assert await watched.simulation.redis.exists("life:queue:ready", "life:queue:delayed") == 0
