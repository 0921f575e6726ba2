"""A warning's button that cancels many trials: only those that are still idle, each once."""

from bot.core.commands import Action
from bot.measure.gpus.models import ITEM
from bot.watch.idle.alert_commands import GONE, UNSEEN
from tests.bot.factories import OWNER
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.simulated_monitor import SimulatedMonitor

FOUR = "wxyz"


def trials(*gpus):
    """One GPU each."""
    named = zip(FOUR, gpus, strict=False)
    return tuple(a_pod(gpu, pod=name, trial=f"lr-brave-otter-{name}") for name, gpu in named)


async def four_are_cancelled(redis, *gpus, crash_at=None, **what):
    """The state by the time the warning's button is handled."""
    simulation = SimulatedMonitor(redis, *trials(*[QUIET] * 4), crash_at=crash_at)
    await simulation.sweep()
    for _ in range(2):
        await simulation.run()
    command = {"trial": "w x y", "request_id": "trigger-2", "alert": "idle/sweeps/lr-brave-otter-w"}
    await simulation.click(Action.KILL, **command | what)
    simulation.source.now = trials(*gpus) if gpus else None
    for _ in range(2):
        await simulation.run(2)
    return simulation


async def kills(simulation) -> list[str]:
    commands = await simulation.store.commands("lr-brave-otter")
    assert {(command.action, command.user, command.in_thread) for command in commands} <= {
        (Action.KILL, OWNER, True)
    }
    return [command.trial.removeprefix("lr-brave-otter-") for command in commands]


async def test_cancel_of_many_keeps_trials_that_are_busy_again(redis):
    simulation = await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET)
    assert await kills(simulation) == ["w", "y"]
    assert (await simulation.queue.get(wait=0)).item.key == "lr-brave-otter"
    reported = "Not cancelled:\n• `lr-brave-otter-x` is busy again after 32 min with 1 GPU idle"
    assert simulation.slack.ephemeral_messages == [(OWNER, reported)]


async def test_cancel_of_trials_that_are_busy_or_ended_is_answered(redis):
    simulation = await four_are_cancelled(redis, BUSY, BUSY, BUSY, BUSY)
    assert (await kills(simulation), simulation.slack.ephemeral_messages) == ([], [(OWNER, GONE)])


async def test_cancel_of_many_needs_a_current_measurement(redis):
    simulation = await four_are_cancelled(redis)
    assert (await kills(simulation), simulation.slack.ephemeral_messages) == ([], [(OWNER, UNSEEN)])


async def test_crash_while_cancelling_many_cancels_each_once(redis):
    calls = (await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET)).clock.calls
    for crash_at in range(1, calls + 1):
        await redis.flushall()
        simulation = await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET, crash_at=crash_at)
        assert await kills(simulation) == ["w", "y"], crash_at
        assert (await simulation.queue.get(wait=0)).item.key == "lr-brave-otter"
        assert len(simulation.slack.ephemeral_messages) in {1, 2}, crash_at
        assert await simulation.store.commands(str(ITEM)) == []
