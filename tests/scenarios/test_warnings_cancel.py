"""A warning's button that cancels many trials: only those that are still idle, each once."""

from dataclasses import replace

import pytest

from bot.core.commands import Action
from bot.measure.gpus.models import ITEM
from bot.watch.idle.alert_commands import GONE, UNSEEN
from tests.bot.factories import OWNER, STRANGER
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.moments import sample
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


async def idle_for(redis, minutes, *, stop, gpus=(QUIET,), snoozed=False, crash_at=None):
    """Two trials of a sweep after their warning; the monitor runs each ten minutes."""
    simulation = SimulatedMonitor(redis, *trials(QUIET, QUIET), crash_at=crash_at)
    await simulation.sweep()
    clients = simulation.watching.clients
    warnings = replace(clients.config.warnings, stop_minutes=stop)
    clients.config = replace(clients.config, warnings=warnings)
    await simulation.run()
    simulation.source.now = trials(*gpus)
    if snoozed:
        await simulation.click(Action.KEEP, alert="idle/sweeps/lr-brave-otter-w", hours=4)
    for number in range(1, minutes // 10 + 1):
        await simulation.run(10 * number)
    return simulation


async def stops(simulation):
    commands = await simulation.store.commands("lr-brave-otter")
    assert {(each.action, each.user) for each in commands} <= {(Action.STOP_IDLE, "")}
    return [each.trial.removeprefix("lr-brave-otter-") for each in commands]


@pytest.mark.parametrize(
    ("minutes", "what", "stopped"),
    [
        (50, {"stop": 60}, []),
        (70, {"stop": 60}, ["w", "x"]),
        (120, {"stop": 60}, ["w", "x"]),  # once
        (120, {"stop": 0}, []),
        (120, {"stop": 60, "gpus": (QUIET, BUSY)}, ["w"]),
        (120, {"stop": 60, "snoozed": True}, ["x"]),
        (280, {"stop": 60, "snoozed": True}, ["x"]),  # warned again after the snooze
        (320, {"stop": 60, "snoozed": True}, ["x", "w"]),
    ],
)
async def test_trials_whose_warning_was_ignored_are_stopped_if_the_configuration_says_so(
    redis, minutes, what, stopped
):
    assert await stops(await idle_for(redis, minutes, **{"gpus": (QUIET, QUIET)} | what)) == stopped


async def test_trial_that_is_not_measured_any_more_is_not_stopped(redis):
    assert await stops(await idle_for(redis, 120, stop=60, gpus=(QUIET, (None, None, None)))) == ["w"]
    await redis.flushall()
    assert await stops(await idle_for(redis, 120, stop=60, gpus=())) == []


async def test_reply_that_fails_delays_no_stop_and_is_sent_later(redis):
    simulation = await idle_for(redis, 50, stop=60, gpus=(QUIET, QUIET))
    await simulation.click(Action.KEEP, user=STRANGER, alert="idle/sweeps/lr-brave-otter-w", hours=4)
    simulation.slack.errors = {STRANGER: TimeoutError()}
    with pytest.raises(TimeoutError):
        await simulation.run(70)
    assert await stops(simulation) == ["w", "x"]
    simulation.slack.errors = {}
    await simulation.run(80)
    assert [user for user, _ in simulation.slack.ephemeral_messages] == [STRANGER]


async def test_time_to_stop_counts_from_the_warning_that_says_it(redis):
    """A setting made later stops no trial at once, and nor does an older warning that a trial joins:
    its time counts from the post that names it.
    """
    simulation = await idle_for(redis, 120, stop=0, gpus=(QUIET, QUIET))
    clients = simulation.watching.clients
    warnings = replace(clients.config.warnings, stop_minutes=20)
    clients.config = replace(clients.config, warnings=warnings)
    for minutes, stopped in ((130, []), (140, []), (150, ["w", "x"])):
        await simulation.run(minutes)
        assert await stops(simulation) == stopped
    await redis.flushall()
    simulation = SimulatedMonitor(redis, *trials(*[QUIET] * 4))
    await simulation.sweep()
    simulation.watching.clients.config = clients.config
    for minutes in (0, 10):
        await simulation.run(minutes)
    late = a_pod(QUIET, pod="v", trial="lr-brave-otter-v")
    simulation.source.now = (*trials(*[QUIET] * 4), late)
    for minutes, stopped in ((20, [*FOUR]), (40, [*FOUR]), (50, [*FOUR]), (60, [*FOUR, "v"])):
        await simulation.run(minutes)
        assert await stops(simulation) == stopped


async def test_warning_says_when_trials_are_stopped(redis):
    simulation = await idle_for(redis, 10, stop=60, gpus=(QUIET, QUIET))
    shown = [message.blocks[1]["elements"][0]["text"] for _, _, message in simulation.slack.posted.values()]
    stops_after = "Sweepbot stops idle trials 1 h after their warning, unless someone snoozes it."
    assert [text.endswith(stops_after) for text in shown] == [True, True]


async def test_crash_while_trials_are_stopped_stops_each_once(redis):
    what = {"stop": 60, "gpus": (QUIET, QUIET)}
    calls = (await idle_for(redis, 90, **what)).clock.calls
    for crash_at in sample(range(1, calls + 1), every=8):
        await redis.flushall()
        assert await stops(await idle_for(redis, 90, **what, crash_at=crash_at)) == ["w", "x"], crash_at
