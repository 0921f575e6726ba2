"""The idle GPU monitor: who is warned about what, the commands, and workers that die anywhere."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.gpus.models import ITEM, Xid
from bot.idle.store import AlertStore
from k8s.api.errors import ApiError
from tests.bot.factories import ADMIN, OWNER, PLAN, STRANGER
from tests.bot.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.simulated_monitor import TRIAL, VISION, SimulatedMonitor


@pytest.fixture
async def simulation(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET))
    await simulation.sweep()
    return simulation


async def test_idle_trial_is_reported_once_in_its_thread(simulation):
    await simulation.run()
    await simulation.run(3)
    [(channel, thread, _)] = simulation.slack.posted.values()
    assert (channel, thread) == ("C1", "1.1")
    assert f"Trial `{TRIAL}`: 1 GPU idle for 30 min" in simulation.texts()[0]


async def test_idle_warning_follows_its_trial(simulation):
    await simulation.run()
    await simulation.run(31)
    assert "for 1 h," in simulation.texts()[0]
    await simulation.run(40, a_pod(BUSY))
    assert simulation.texts() == [
        f":white_check_mark: Trial `{TRIAL}` is busy again after 70 min with 1 GPU idle."
    ]
    simulation.source.now = ()
    await simulation.run(50)
    assert simulation.texts() == [
        f":white_check_mark: Trial `{TRIAL}` ended, busy again after 70 min with 1 GPU idle."
    ]
    assert await AlertStore(simulation.redis).all() == ()


async def test_idle_warning_repeated_mentions_the_owner_again_and_stays_one_message(simulation):
    posts = []
    for minutes in (0, 15, 31, 60, 91, 200):
        await simulation.run(minutes)
        posts.append(simulation.slack.number)
        assert len(simulation.texts()) == 1
    assert posts == [1, 1, 2, 2, 3, 3]
    await simulation.run(210, a_pod(BUSY))
    await simulation.run(300, a_pod(QUIET))
    assert (simulation.slack.number, len(simulation.texts())) == (4, 1)


async def test_snoozed_warning_mentions_no_one_until_the_snooze_expires(simulation):
    await simulation.run()
    await simulation.click(Action.KEEP, hours=4)
    for minutes in (1, 40, 100, 239):
        await simulation.run(minutes)
    assert (simulation.slack.number, "for 2 h," in simulation.texts()[0]) == (1, True)
    await simulation.run(242)
    assert (simulation.slack.number, len(simulation.texts())) == (2, 1)


async def test_snooze_is_recorded_with_its_user_and_survives_redis(simulation):
    await simulation.run()
    await simulation.click(Action.KEEP, hours=4)
    await simulation.run(1)
    assert f"Snoozed by {OWNER.lower()} until" in simulation.texts()[0]
    await simulation.redis.flushall()
    await simulation.sweep()
    await simulation.run(200)
    assert len(simulation.texts()) == 1
    await simulation.run(242)
    assert len(simulation.texts()) == 2  # only Redis had the earlier warnings


async def test_a_condition_that_changes_during_a_snooze_is_posted_when_the_snooze_expires(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET, busy_ever=False))
    await simulation.sweep()
    await simulation.run()
    await simulation.click(Action.KEEP, alert=f"unused/sweeps/{TRIAL}", hours=4)
    await simulation.run(1)
    await simulation.run(100, a_pod(QUIET))
    [changed] = simulation.texts()
    assert changed.startswith(f":zzz: Trial `{TRIAL}` is now idle after")
    assert ("Snoozed by" in changed, "newer warning" in changed) == (True, False)
    await simulation.run(242)
    changed, newer = simulation.texts()
    assert changed.endswith("; see the newer warning.")
    assert f"Trial `{TRIAL}`: 1 GPU idle for" in newer


@pytest.mark.parametrize(("user", "denial"), [(OWNER, True), (ADMIN, True), (STRANGER, False)])
async def test_snooze_is_for_owner_team_and_admins(simulation, user, denial):
    await simulation.run()
    await simulation.click(Action.KEEP, user, hours=24)
    await simulation.run(1)
    assert (f"Snoozed by {user.lower()} until" in simulation.texts()[0]) is denial
    refusals = [] if denial else [(user, f"Only <@{OWNER}> (owner) or an admin can snooze GPU warnings for")]
    assert [
        (who, text[: len(refusals[0][1])]) for who, text in simulation.slack.ephemeral_messages
    ] == refusals


async def test_utilization_is_shown_to_everybody(simulation):
    await simulation.run()
    await simulation.click(Action.MEASURES, STRANGER)
    await simulation.run(1)
    [(user, text)] = simulation.slack.ephemeral_messages
    assert user == STRANGER
    assert "max 0.4%, mean 0.2%" in text


async def test_click_on_an_old_warning_is_answered(simulation):
    await simulation.click(Action.KEEP, alert="idle/sweeps/gone", hours=4)
    await simulation.run()
    assert simulation.slack.ephemeral_messages == [
        (OWNER, "These GPUs are busy again or no longer allocated.")
    ]


async def test_commands_work_while_no_metrics_are_available(simulation):
    await simulation.run()
    simulation.source.now = None
    await simulation.click(Action.KEEP, hours=4)
    await simulation.run(90)
    assert "for 30 min," in simulation.texts()[0]
    assert "Snoozed by" in simulation.texts()[0]


async def test_invalid_alert_is_skipped(simulation):
    await simulation.redis.hset("usage:main:alerts", "old", '{"kind": "idle"}')
    snoozed = {"metadata": {"name": "sweepbot-keeps", "namespace": "sweeps"}, "data": {"keeps": "[]"}}
    simulation.kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", **snoozed})
    await simulation.run()
    await simulation.click(Action.KEEP, hours=4)
    await simulation.run(1)
    assert "Snoozed by" in simulation.texts()[0]


async def test_sweep_can_have_its_own_thresholds(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET, age=15))
    space = replace(PLAN.space, watch={"idle_minutes": 10})
    await simulation.sweep(plan=replace(PLAN, space=space))
    await simulation.run()
    assert simulation.source.over == [30, 120, 10]
    assert "idle for 10 min," in simulation.texts()[0]


ALWAYS = (1.0, 0.99, 1.0)


@pytest.mark.parametrize(
    ("recent", "ever", "reported"),
    [("", "step 300", True), ("step 301", "step 301", False), ("", "", False), (None, "", False)],
)
async def test_busy_trial_with_a_stalled_log_is_reported(redis, recent, ever, reported):
    simulation, asked = SimulatedMonitor(redis, a_pod(ALWAYS)), []
    await simulation.sweep()

    async def log(namespace, pod, query):
        asked.append((namespace, pod, query["container"]))
        if recent is None:
            raise ApiError(500, "", "its node does not answer")
        return recent if "sinceSeconds" in query else ever

    simulation.cluster.raw_log = log
    await simulation.run()
    assert asked[0] == ("sweeps", f"{TRIAL}-1", "main")
    assert ["busy for 30 min with no log output" in text for text in simulation.texts()] == [True] * reported


async def test_ended_sweep_gets_no_warning(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET))
    await simulation.sweep(phase=Phase.STOPPING)
    await simulation.run()
    assert simulation.texts() == []


async def test_pods_without_a_sweep_are_reported_to_their_team_if_it_has_a_channel(redis):
    lost = {"sweep": "", "trial": "", "namespace": "vision"}
    simulation = SimulatedMonitor(
        redis, a_pod(QUIET, pod="notebook", team="vision", **lost), a_pod(QUIET, pod="other", **lost)
    )
    await simulation.run()
    [(channel, thread, _)] = simulation.slack.posted.values()
    assert (channel, thread) == ("C9", "")
    assert "Pod `vision/notebook` (team vision): 1 GPU idle" in simulation.texts()[0]
    for user in (STRANGER, "UMATE"):
        await simulation.click(Action.KEEP, user, alert="idle/vision/notebook", hours=4)
    await simulation.run(1)
    assert "Snoozed by umate until" in simulation.texts()[0]
    assert simulation.slack.ephemeral_messages == [
        (STRANGER, "Only the pod's owner, a member of team vision, or an admin can snooze this warning.")
    ]


async def test_team_that_someone_chose_is_no_right_to_snooze_its_warnings(redis):
    lost = {"sweep": "", "trial": "", "namespace": "vision"}
    teams = (replace(VISION, members=(*VISION.members, STRANGER)),)
    notebook = a_pod(QUIET, pod="notebook", team="vision", **lost)
    simulation = SimulatedMonitor(redis, notebook, teams=teams, self_assigned=[STRANGER])
    await simulation.run()
    await simulation.click(Action.KEEP, STRANGER, alert="idle/vision/notebook", hours=4)
    await simulation.run(1)
    assert [user for user, _ in simulation.slack.ephemeral_messages] == [STRANGER]
    assert "Snoozed" not in simulation.texts()[0]


async def test_gpu_error_is_reported_to_the_admins_once(redis):
    simulation = SimulatedMonitor(redis)
    simulation.source.errors = (Xid(device="GPU-1", node="n1", code=79),)
    for _ in range(3):
        await simulation.run()
    [(channel, thread, message)] = simulation.slack.posted.values()
    assert (channel, thread) == ("CADMINS", "")
    assert "Xid 79, fallen off the bus" in message.text


async def test_busy_channel_does_not_delay_the_others(redis):
    simulation = SimulatedMonitor(
        redis, a_pod(QUIET), a_pod(QUIET, pod="notebook", team="vision", sweep="", namespace="vision")
    )
    await simulation.sweep()
    simulation.slack.busy = {"C1"}
    assert await simulation.run() == timedelta(seconds=7)
    assert [channel for channel, _, _ in simulation.slack.posted.values()] == ["C9"]
    simulation.slack.busy = set()
    assert await simulation.run() is None
    assert sorted(channel for channel, _, _ in simulation.slack.posted.values()) == ["C1", "C9"]


async def a_day(redis, crash_at=None) -> SimulatedMonitor:
    """Idle, snoozed, reported again, and ended; with one more run wherever a worker can die."""
    simulation = SimulatedMonitor(redis, a_pod(QUIET), crash_at=crash_at)
    await simulation.sweep()
    for _ in range(2):
        await simulation.run()
    await simulation.store.add_command(
        str(ITEM), Command(action=Action.MEASURES, user=OWNER, user_name="", alert=f"idle/sweeps/{TRIAL}")
    )
    await simulation.click(Action.KEEP, hours=4)
    for _ in range(2):
        await simulation.run(1)
    for _ in range(2):
        await simulation.run(300)
    simulation.source.now = ()
    for _ in range(2):
        await simulation.run(310)
    return simulation


async def test_crash_at_any_call_posts_each_warning_once(redis):
    whole = await a_day(redis)
    calls, texts, ephemeral_messages = whole.clock.calls, whole.texts(), len(whole.slack.ephemeral_messages)
    assert (len(texts), ephemeral_messages) == (1, 1)
    for crash_at in range(1, calls + 1):
        await redis.flushall()
        simulation = await a_day(redis, crash_at)
        posted, reply = len(simulation.texts()), len(simulation.slack.ephemeral_messages)
        assert simulation.texts()[-1] == texts[0], crash_at
        assert posted + reply <= 3, f"{crash_at}: {posted} messages and {reply} answers"
        assert await AlertStore(redis).all() == ()


@pytest.mark.parametrize(
    ("gated", "used", "noted"), [(True, BUSY, True), (True, QUIET, False), (False, BUSY, False)]
)
async def test_gpu_use_is_noted_for_the_gate_of_a_first_trial_only(redis, gated, used, noted):
    simulation = SimulatedMonitor(redis, a_pod(used))
    await simulation.sweep(gated=gated)
    await simulation.run()
    assert await simulation.store.is_busy_trial(TRIAL) is noted
