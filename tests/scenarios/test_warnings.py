"""The idle GPU monitor: who is warned about what, the commands, and workers that die anywhere."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import pytest
from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.request import Notify
from bot.measure.gpus.models import ITEM
from bot.platform.config.personal import Personal
from bot.platform.config.teams import Team
from bot.platform.slack.client import SlackBusyError
from bot.watch.idle.alerts import Snooze
from bot.watch.idle.store import AlertStore, SnoozeStore
from k8s.api.errors import ApiError
from k8s.nodes.dcgm import Load, Xid
from tests.bot.factories import ADMIN, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.moments import sample
from tests.scenarios.simulated_monitor import TRIAL, VISION, SimulatedMonitor


@pytest.fixture
async def simulation(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET))
    await simulation.sweep()
    return simulation


async def test_idle_trial_is_reported_once_in_its_thread_and_its_warning_follows_it(simulation):
    await simulation.click(Action.KEEP, alert="idle/sweeps/gone", hours=4)
    await simulation.run()
    await simulation.click(Action.MEASURES, STRANGER)
    await simulation.run(3)
    [(channel, thread, _)] = simulation.slack.posted.values()
    assert (channel, thread) == ("C1", "1.1")
    assert f"Trial `{TRIAL}`: 1 GPU idle for 30 min" in simulation.texts()[0]
    old, (user, text) = simulation.slack.ephemeral_messages
    assert old == (OWNER, "This warning is over: its cause is gone, or the pods are.")
    assert user == STRANGER
    assert "max 0.4%, mean 0.2%" in text
    await simulation.run(31)
    assert "for 1 h," in simulation.texts()[0]
    await simulation.run(40, a_pod(BUSY))
    assert simulation.texts() == [
        f":white_check_mark: Trial `{TRIAL}` is busy again after 70 min with 1 GPU idle."
    ]
    simulation.source.now = ()
    for minutes in (50, 53):  # the second check confirms that it ended
        await simulation.run(minutes)
    assert simulation.texts() == [
        f":white_check_mark: Trial `{TRIAL}` ended, busy again after 70 min with 1 GPU idle."
    ]
    assert await AlertStore(simulation.redis).all() == ()


@pytest.mark.parametrize(
    ("notify", "owner", "muted", "called"),
    [
        (Notify.CHANNEL, OWNER, (), f"<@{OWNER}> "),
        (Notify.DM, OWNER, (), f"<@{OWNER}> "),
        (Notify.NONE, OWNER, (), ""),
        (Notify.CHANNEL, "team-vision", (), ""),
        (Notify.CHANNEL, OWNER, ("lr-brave-otter",), "ada "),
    ],
)
async def test_idle_warning_mentions_the_owner_who_did_not_turn_that_off(redis, notify, owner, muted, called):
    simulation = SimulatedMonitor(redis, a_pod(QUIET))
    people = {OWNER: Personal(name="ada", muted=muted)}
    clients = simulation.watching.clients
    clients.config = replace(clients.config, people=people)
    sweep = a_sweep()
    requester, request = replace(sweep.requester, user=owner), replace(sweep.request, notify=notify)
    await simulation.sweep(requester=requester, request=request)
    await simulation.run()
    [text] = simulation.texts()
    assert text.startswith(f":zzz: {called}Trial `{TRIAL}`: 1 GPU idle for 30 min")


async def test_trials_that_join_a_warning_are_told_by_a_new_post_once_an_hour(redis):
    def trials(number, gpu=QUIET):
        pods = [a_pod(gpu, pod=f"p{each}", trial=f"lr-brave-otter-p{each}") for each in range(number)]
        return [*pods, *([a_pod(BUSY, pod="q", trial="lr-brave-otter-q")] if number == 4 else [])]

    simulation = SimulatedMonitor(redis, *trials(4))
    await simulation.sweep()
    posts = []
    for minutes, number in ((0, 4), (100, 4), (130, 5), (133, 6), (160, 7), (163, 7), (190, 7), (193, 7)):
        await simulation.run(minutes, *trials(number))
        posts.append(simulation.slack.number)
        [text] = simulation.texts()
        assert text.startswith(f":zzz: <@{OWNER}> {number} of {number} trials:")
    # First, at four times the minutes, and for those that joined, an hour after the post before.
    assert posts == [1, 2, 2, 2, 3, 3, 3, 3]


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
    assert (simulation.slack.number, "for 4 h," in simulation.texts()[0]) == (1, True)
    await simulation.run(246)
    assert (simulation.slack.number, len(simulation.texts())) == (2, 1)
    assert "for 4 h," in simulation.texts()[0]  # 4 h 36 min, without the time that changes at each check


async def test_snooze_is_for_those_trials_of_a_warning_that_are_still_idle(redis):
    def trials(first):
        gpus = zip("wxyz", (first, QUIET, QUIET, QUIET), strict=True)
        return [a_pod(gpu, pod=pod, trial=f"lr-brave-otter-{pod}") for pod, gpu in gpus]

    simulation = SimulatedMonitor(redis, *trials(QUIET))
    await simulation.sweep()
    for minutes in (0, 3):
        await simulation.run(minutes)
    await simulation.run(40, *trials(BUSY))
    store, over = SnoozeStore(simulation.watching.clients), Snooze(until=NOW, by=OWNER, name="ada")
    await store.save({"sweeps/old": over}, NOW - timedelta(hours=1))
    await simulation.click(Action.KEEP, alert="idle/sweeps/lr-brave-otter-w", hours=4)
    await simulation.run(43)
    assert (await store.all()).keys() == {f"sweeps/lr-brave-otter-{pod}" for pod in "xyz"}


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


async def test_snooze_is_for_owner_and_admins_also_while_no_metrics_are_available(simulation):
    await simulation.run()
    await simulation.click(Action.KEEP, STRANGER, hours=24)
    await simulation.run(1)
    assert "Snoozed by" not in simulation.texts()[0]
    [(user, refusal)] = simulation.slack.ephemeral_messages
    assert user == STRANGER
    assert refusal.startswith(f"Only <@{OWNER}> (owner) or an admin can snooze GPU warnings for")
    simulation.source.now = None
    for minutes, allowed in ((2, OWNER), (90, ADMIN)):
        await simulation.click(Action.KEEP, allowed, hours=24)
        await simulation.run(minutes)
        assert f"Snoozed by {allowed.lower()} until" in simulation.texts()[0]
    assert "for 30 min," in simulation.texts()[0]
    assert len(simulation.slack.ephemeral_messages) == 1


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


@pytest.mark.parametrize(
    ("recent", "condition"),
    [("step 301", "busy for 2 h, but hardly computing"), ("", "busy for 30 min with no log output")],
)
async def test_waiting_trial_is_reported_as_stuck_if_its_log_stalled(redis, recent, condition):
    pod = a_pod(ALWAYS, age=300)
    spinning = replace(pod, gpus=(replace(pod.gpus[0], load=Load(sm=0.02, watts=110)),))
    simulation = SimulatedMonitor(redis, spinning)
    await simulation.sweep()

    async def log(namespace, pod, query):
        return recent if "sinceSeconds" in query else "step 300"

    simulation.cluster.raw_log = log
    await simulation.run()
    [text] = simulation.texts()
    assert f"1 GPU {condition}, since" in text
    assert "\nSM activity 2%, 110 W.\n" in text


async def test_ended_sweep_gets_no_warning(redis):
    simulation = SimulatedMonitor(redis, a_pod(QUIET))
    await simulation.sweep(phase=Phase.STOPPING)
    await simulation.run()
    assert simulation.texts() == []


async def test_pods_without_a_sweep_are_reported_to_their_team_if_it_has_a_channel(redis):
    lost = {"sweep": "", "trial": "", "namespace": "vision"}
    pods = a_pod(QUIET, pod="notebook", team="vision", **lost), a_pod(QUIET, pod="other", **lost)
    simulation = SimulatedMonitor(redis, *pods, teams=(VISION, Team(name="speech", members=("USPEECH",))))
    await simulation.run()
    [(channel, thread, _)] = simulation.slack.posted.values()
    assert (channel, thread) == ("C9", "")
    assert "Pod `vision/notebook` (team vision): 1 GPU idle" in simulation.texts()[0]
    for user in (STRANGER, "USPEECH", "UMATE"):
        await simulation.click(Action.KEEP, user, alert="idle/vision/notebook", hours=4)
    await simulation.run(1)
    assert "Snoozed by umate until" in simulation.texts()[0]
    refusal = "Only the pod's owner, a member of team vision, or an admin can snooze this warning."
    assert simulation.slack.ephemeral_messages == [(STRANGER, refusal), ("USPEECH", refusal)]


NOTEBOOK = a_pod(
    QUIET, pod="notebook", namespace="vision", team="vision", owner=OWNER, sweep="", trial="", age=100
)
ASKED = "asked-idle/vision/notebook"


def elements(message):
    return [each["text"]["text"] for b in message.blocks if b["type"] == "actions" for each in b["elements"]]


async def test_owner_of_an_idle_pod_is_asked_in_a_direct_message_and_the_answer_is_passed_on(redis):
    simulation = SimulatedMonitor(redis, NOTEBOOK, teams=())
    await simulation.run()
    assert simulation.texts() == []  # its team has no channel
    await simulation.click(Action.ASK, ADMIN, alert="vision/notebook")
    await simulation.run(1)
    [(channel, thread, message)] = simulation.slack.posted.values()
    assert (channel, thread) == (f"D-{OWNER}", "")
    [text] = simulation.texts()
    assert text.startswith(":zzz: Pod `vision/notebook` (team vision): 1 GPU idle for 30 min, since ")
    assert text.endswith(
        f"\n<@{ADMIN}> asks whether you still need it. If not, stop it; others may be waiting for GPUs."
    )
    assert "Sweepbot doesn't stop pods that it didn't start." in str(message)
    assert elements(message) == ["Snooze 4 h", "It's needed", "Show utilization"]
    assert simulation.slack.ephemeral_messages == [
        (ADMIN, f"Asked <@{OWNER}> about `vision/notebook` in a direct message.")
    ]
    for minutes in (40, 130):
        await simulation.run(minutes)
    assert simulation.slack.number == 1  # asked once

    await simulation.click(Action.MEASURES, alert=ASKED)
    await simulation.click(Action.KEEP, alert=ASKED, hours=24)
    await simulation.run(131)
    (_, measured), (asker, answer) = simulation.slack.ephemeral_messages[1:]
    assert "• `notebook` `GPU-0`: max 0.4%, mean 0.2%, p95 0.3%" in measured
    assert asker == ADMIN
    assert answer.startswith(f"<@{OWNER}> needs `vision/notebook`, and snoozed its warnings until <!date^")
    assert f"Snoozed by {OWNER.lower()} until" in simulation.texts()[0]

    await simulation.run(140, replace(NOTEBOOK, gpus=a_pod(BUSY).gpus))
    [text] = simulation.texts()
    assert text.startswith(":white_check_mark: Pod `vision/notebook` (team vision) is busy again after")
    assert await AlertStore(redis).all() == ()


async def test_owner_who_snoozed_is_asked_again_when_the_snooze_expires(redis):
    simulation = SimulatedMonitor(redis, NOTEBOOK)
    await simulation.click(Action.ASK, "UMATE", alert="vision/notebook")
    await simulation.run()
    team, dm = simulation.slack.posted.values()
    assert (team[0], dm[0]) == ("C9", f"D-{OWNER}")
    assert elements(team[2]) == ["Ask owner", "Snooze 4 h", "Snooze 24 h", "Show utilization"]
    await simulation.click(Action.KEEP, alert=ASKED, hours=4)
    await simulation.run(1)
    snoozed = f"<@{OWNER}> snoozed its warnings"
    assert [text[: len(snoozed)] for _, text in simulation.slack.ephemeral_messages[1:]] == [snoozed]
    assert [f"Snoozed by {OWNER.lower()}" in text for text in simulation.texts()] == [True, True]
    await simulation.run(242)
    assert simulation.slack.number == 4
    assert sorted(channel for channel, _, _ in simulation.slack.posted.values()) == ["C9", f"D-{OWNER}"]


async def test_answer_to_someone_who_left_blocks_no_other_command(redis):
    simulation = SimulatedMonitor(redis, NOTEBOOK, teams=(replace(VISION, members=("UGONE",)),))
    await simulation.click(Action.ASK, "UGONE", alert="vision/notebook")
    await simulation.run()
    await simulation.click(Action.KEEP, alert=ASKED, hours=4)
    await simulation.run(1)
    assert await simulation.store.commands(str(ITEM)) == []
    assert f"Snoozed by {OWNER.lower()} until" in simulation.texts()[1]


@pytest.mark.parametrize(
    ("user", "pod", "answer"),
    [
        (
            STRANGER,
            NOTEBOOK,
            f"Only <@{OWNER}>, a member of team vision, or an admin can ask about `vision/no",
        ),
        (
            "UMATE",
            replace(NOTEBOOK, gpus=a_pod(BUSY).gpus),
            "Not asked: the GPUs of `vision/notebook` are bus",
        ),
        (
            "UMATE",
            replace(NOTEBOOK, gpus=()),
            "Not asked: the GPUs of `vision/notebook` are busy, not measured",
        ),
        (
            "UMATE",
            replace(NOTEBOOK, pod="other"),
            "Not asked: the GPUs of `vision/notebook` are busy, not mea",
        ),
        (
            "UMATE",
            replace(NOTEBOOK, owner=""),
            "Not asked: the owner of `vision/notebook` is unknown. *Fix:*",
        ),
        (
            "UMATE",
            replace(NOTEBOOK, owner="UGONE"),
            "Not asked: Slack can't send a direct message to <@UGONE>",
        ),
    ],
)
async def test_owner_is_asked_only_about_idle_gpus_and_by_the_team(redis, user, pod, answer):
    simulation = SimulatedMonitor(redis, pod)
    await simulation.click(Action.ASK, user, alert="vision/notebook")
    await simulation.run()
    [(asker, text)] = simulation.slack.ephemeral_messages
    assert (asker, text[: len(answer)]) == (user, answer)
    assert [channel for channel, _, _ in simulation.slack.posted.values() if channel != "C9"] == []


async def test_owner_is_asked_once_not_about_sweeps_and_not_during_a_snooze(simulation):
    simulation.source.now = (NOTEBOOK, *simulation.source.now)
    for _ in range(2):
        await simulation.click(Action.ASK, ADMIN, alert=f"vision/notebook sweeps/{TRIAL}")
        await simulation.run()
    trial = f"Not asked: the GPUs of `sweeps/{TRIAL}` are busy, not measured, or no longer allocated."
    assert [text.splitlines() for _, text in simulation.slack.ephemeral_messages] == [
        [f"Asked <@{OWNER}> about `vision/notebook` in a direct message.", trial],
        [f"<@{OWNER}> was asked about `vision/notebook` before.", trial],
    ]
    await simulation.click(Action.KEEP, alert=ASKED, hours=4)
    await simulation.run(1)
    await simulation.click(Action.ASK, ADMIN, alert="vision/notebook")
    await simulation.run(2)
    assert simulation.slack.ephemeral_messages[-1][1].startswith(
        f"Not asked: <@{OWNER}> snoozed `vision/notebook` until <!date^"
    )
    simulation.source.now = None
    await simulation.click(Action.ASK, ADMIN, alert="vision/notebook")
    await simulation.run(3)
    assert simulation.slack.ephemeral_messages[-1] == (
        ADMIN,
        "GPU metrics are unavailable, so no owner was asked.",
    )


async def test_crash_at_any_call_asks_the_owner_once(redis):
    async def asked(crash_at=None):
        simulation = SimulatedMonitor(redis, NOTEBOOK, teams=(), crash_at=crash_at)
        await simulation.click(Action.ASK, ADMIN, alert="vision/notebook")
        for minutes in (0, 1, 2):
            await simulation.run(minutes)
        return simulation

    calls = (await asked()).clock.calls
    for crash_at in sample(range(1, calls + 1), every=4):
        await redis.flushall()
        simulation = await asked(crash_at)
        assert len(simulation.texts()) <= 2, crash_at  # twice if it dies between the post and saving that
        [alert] = await AlertStore(redis).all()
        assert (alert.id, alert.ts in simulation.slack.posted) == (ASKED, True)


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


@pytest.mark.parametrize(
    ("error", "raised"),
    [(SlackBusyError(7), nullcontext()), (SlackApiError("down", {}), pytest.raises(SlackApiError))],
)
async def test_channel_that_slack_does_not_accept_now_does_not_delay_the_others(redis, error, raised):
    simulation = SimulatedMonitor(
        redis, a_pod(QUIET), a_pod(QUIET, pod="notebook", team="vision", sweep="", namespace="vision")
    )
    await simulation.sweep()
    simulation.slack.errors = {"C1": error, STRANGER: SlackApiError("down", {})}
    await simulation.click(Action.MEASURES, STRANGER)  # an answer that is lost
    with raised:
        assert await simulation.run() == timedelta(seconds=7)
    assert [channel for channel, _, _ in simulation.slack.posted.values()] == ["C9"]
    simulation.slack.errors = {}
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
    for _ in range(3):  # the second check confirms that it ended
        await simulation.run(310)
    return simulation


async def test_crash_at_any_call_posts_each_warning_once(redis):
    whole = await a_day(redis)
    calls, texts, ephemeral_messages = whole.clock.calls, whole.texts(), len(whole.slack.ephemeral_messages)
    assert (len(texts), ephemeral_messages) == (1, 1)
    for crash_at in sample(range(1, calls + 1), every=4):
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
    await simulation.sweep(first_only=gated)
    await simulation.run()
    assert await simulation.store.is_busy_trial(TRIAL) is noted
