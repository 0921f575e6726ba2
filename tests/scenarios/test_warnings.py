"""Turns of the watch on GPUs: who is warned of what, what people say to it, and workers that die anywhere."""

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.clients import Clients
from bot.config.teams import Team
from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.gpus.hourly_store import HourlyStore
from bot.gpus.models import ITEM, NodeUse, NoGpuDataError, Xid
from bot.idle.alert_commands import GONE, UNSEEN
from bot.idle.monitor import IdleMonitor
from bot.idle.store import AlertStore
from bot.slack.client import SlackBusyError
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from k8s.errors import ApiError
from local.kubernetes import store as kubernetes
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, SETTINGS, STRANGER, a_sweep
from tests.bot.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, DirectCluster, WorkerCrash

TRIAL = "lr-brave-otter-x"
VISION = Team(name="vision", namespaces=("vision",), members=("UMATE",), channel="C9")
NODE = NodeUse(node="n1", physical=2, allocatable=2, allocated=1)


class FakeSlack:
    def __init__(self) -> None:
        self.posted, self.whispers, self.busy, self.number = {}, [], set(), 0

    async def post(self, channel, message, thread=""):
        if channel in self.busy:
            raise SlackBusyError(7)
        self.number += 1
        self.posted[f"m{self.number}"] = (channel, thread, message)
        return f"m{self.number}"

    async def delete(self, channel, ts):
        self.posted.pop(ts, None)

    async def update(self, channel, ts, message):
        self.posted[ts] = (*self.posted[ts][:2], message)

    async def post_ephemeral(self, user, text, response_url="", channel="", thread=""):
        self.whispers.append((user, text))


class FakeSource:
    def __init__(self, *pods) -> None:
        self.now, self.over, self.errors = pods, [], ()

    async def pods(self, over):
        self.over.append(over / timedelta(minutes=1))
        if self.now is None:
            raise NoGpuDataError("nobody looked")
        return self.now

    async def xids(self):
        return self.errors

    async def nodes(self):
        return (NODE,) if self.now is not None else ()


class FailingTrials:
    """`dies_at`: at which outside call a worker dies; the next turn is another worker's."""

    def __init__(self, redis, *pods, dies_at=None, teams=(VISION,)) -> None:
        self.redis, self.now, self.clock = redis, NOW, Clock(dies_at)
        self.slack, self.source, self.store = FakeSlack(), FakeSource(*pods), Store(redis)
        self.kubernetes = kubernetes.Store()
        self.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
        self.cluster = DirectCluster(self.kubernetes)
        parts = {"slack": self.slack, "store": self.store, "cluster": self.cluster}
        mortal = {name: CrashingProxy(part, self.clock) for name, part in parts.items()}
        self.queue = Queue(redis)
        clients = Clients(
            **mortal,
            registry=None,
            git=None,
            results=None,
            usage=HourlyStore(redis),
            live=None,
            queue=CrashingProxy(self.queue, self.clock),
            settings=SETTINGS,
            config=replace(CONFIG, teams=teams, admin_channel="CADMINS"),
            now=lambda: self.now,
        )
        self.watching = IdleMonitor(clients, self.source, CrashingProxy(AlertStore(redis), self.clock))

    async def sweep(self, phase=Phase.RUNNING, **changes) -> None:
        sweep = a_sweep(phase, **changes)
        await self.store.create(lambda _: sweep, [sweep.id], "trigger-1")

    async def run(self, minutes=0, *pods):
        self.now, self.source.now = NOW + timedelta(minutes=minutes), pods or self.source.now
        with contextlib.suppress(WorkerCrash):
            return await self.watching.run()

    async def click(self, action, user=OWNER, **what) -> None:
        alert = what.pop("alert", f"idle/sweeps/{TRIAL}")
        await self.store.add_command(
            str(ITEM), Command(action=action, user=user, user_name=user.lower(), alert=alert, **what)
        )

    def texts(self) -> list[str]:
        return [message.blocks[0]["text"]["text"] for _, _, message in self.slack.posted.values()]


@pytest.fixture
async def ward(redis):
    ward = FailingTrials(redis, a_pod(QUIET))
    await ward.sweep()
    return ward


async def test_idle_trial_is_reported_once_in_its_thread(ward):
    await ward.run()
    await ward.run(3)
    [(channel, thread, _)] = ward.slack.posted.values()
    assert (channel, thread) == ("C1", "1.1")
    assert f"Trial `{TRIAL}`: 1 GPU idle for 30 min" in ward.texts()[0]


async def test_idle_warning_follows_its_trial(ward):
    await ward.run()
    await ward.run(31)
    assert "for 1 h," in ward.texts()[0]
    await ward.run(40, a_pod(BUSY))
    assert ward.texts() == [f":white_check_mark: Trial `{TRIAL}` is busy again after 70 min with 1 GPU idle."]
    ward.source.now = ()
    await ward.run(50)
    assert ward.texts() == [
        f":white_check_mark: Trial `{TRIAL}` ended, busy again after 70 min with 1 GPU idle."
    ]
    assert await AlertStore(ward.redis).all() == ()


async def test_idle_warning_repeated_mentions_the_owner_again_and_stays_one_message(ward):
    posts = []
    for minutes in (0, 15, 31, 60, 91, 200):
        await ward.run(minutes)
        posts.append(ward.slack.number)
        assert len(ward.texts()) == 1
    assert posts == [1, 1, 2, 2, 3, 3]
    await ward.run(210, a_pod(BUSY))
    await ward.run(300, a_pod(QUIET))
    assert (ward.slack.number, len(ward.texts())) == (4, 1)


async def test_snoozed_warning_mentions_nobody_until_the_snooze_expires(ward):
    await ward.run()
    await ward.click(Action.KEEP, hours=4)
    for minutes in (1, 40, 100, 239):
        await ward.run(minutes)
    assert (ward.slack.number, "for 2 h," in ward.texts()[0]) == (1, True)
    await ward.run(242)
    assert (ward.slack.number, len(ward.texts())) == (2, 1)


async def test_snooze_is_recorded_with_its_user_and_survives_redis(ward):
    await ward.run()
    await ward.click(Action.KEEP, hours=4)
    await ward.run(1)
    assert f"Snoozed by {OWNER.lower()} until" in ward.texts()[0]
    await ward.redis.flushall()
    await ward.sweep()
    await ward.run(200)
    assert len(ward.texts()) == 1
    await ward.run(242)
    assert len(ward.texts()) == 2  # of what was told before, Redis knew alone


async def test_a_condition_that_changes_during_a_snooze_is_posted_when_the_snooze_expires(redis):
    ward = FailingTrials(redis, a_pod(QUIET, busy_ever=False))
    await ward.sweep()
    await ward.run()
    await ward.click(Action.KEEP, alert=f"unused/sweeps/{TRIAL}", hours=4)
    await ward.run(1)
    await ward.run(100, a_pod(QUIET))
    [changed] = ward.texts()
    assert changed.startswith(f":zzz: Trial `{TRIAL}` is now idle after")
    assert ("Snoozed by" in changed, "newer warning" in changed) == (True, False)
    await ward.run(242)
    changed, newer = ward.texts()
    assert changed.endswith("; see the newer warning.")
    assert f"Trial `{TRIAL}`: 1 GPU idle for" in newer


@pytest.mark.parametrize(("user", "denial"), [(OWNER, True), (ADMIN, True), (STRANGER, False)])
async def test_snooze_is_for_owner_team_and_admins(ward, user, denial):
    await ward.run()
    await ward.click(Action.KEEP, user, hours=24)
    await ward.run(1)
    assert (f"Snoozed by {user.lower()} until" in ward.texts()[0]) is denial
    refusals = [] if denial else [(user, f"Only <@{OWNER}> (owner) or an admin can snooze GPU warnings for")]
    assert [(who, text[: len(refusals[0][1])]) for who, text in ward.slack.whispers] == refusals


async def test_utilization_is_shown_to_everybody(ward):
    await ward.run()
    await ward.click(Action.MEASURES, STRANGER)
    await ward.run(1)
    [(user, text)] = ward.slack.whispers
    assert user == STRANGER
    assert "max 0.4%, mean 0.2%" in text


async def test_click_on_an_old_warning_is_answered(ward):
    await ward.click(Action.KEEP, alert="idle/sweeps/gone", hours=4)
    await ward.run()
    assert ward.slack.whispers == [(OWNER, "These GPUs are busy again or no longer allocated.")]


async def test_commands_work_while_no_metrics_are_available(ward):
    await ward.run()
    ward.source.now = None
    await ward.click(Action.KEEP, hours=4)
    await ward.run(90)
    assert "for 30 min," in ward.texts()[0]
    assert "Snoozed by" in ward.texts()[0]


async def test_invalid_alert_is_skipped(ward):
    await ward.redis.hset("usage:main:alerts", "old", '{"kind": "idle"}')
    snoozed = {"metadata": {"name": "sweepbot-keeps", "namespace": "sweeps"}, "data": {"keeps": "[]"}}
    ward.kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", **snoozed})
    await ward.run()
    await ward.click(Action.KEEP, hours=4)
    await ward.run(1)
    assert "Snoozed by" in ward.texts()[0]


async def test_sweep_can_have_its_own_thresholds(redis):
    ward = FailingTrials(redis, a_pod(QUIET, age=15))
    space = replace(PLAN.space, watch={"idle_minutes": 10})
    await ward.sweep(plan=replace(PLAN, space=space))
    await ward.run()
    assert ward.source.over == [30, 120, 10]
    assert "idle for 10 min," in ward.texts()[0]


ALWAYS = (1.0, 0.99, 1.0)


@pytest.mark.parametrize(
    ("lately", "ever", "told"),
    [("", "step 300", True), ("step 301", "step 301", False), ("", "", False), (None, "", False)],
)
async def test_busy_trial_with_a_stalled_log_is_reported(redis, lately, ever, told):
    ward, asked = FailingTrials(redis, a_pod(ALWAYS)), []
    await ward.sweep()

    async def log(namespace, pod, query):
        asked.append((namespace, pod, query["container"]))
        if lately is None:
            raise ApiError(500, "", "its node does not answer")
        return lately if "sinceSeconds" in query else ever

    ward.cluster.raw_log = log
    await ward.run()
    assert asked[0] == ("sweeps", f"{TRIAL}-1", "main")
    assert ["busy for 30 min with no log output" in text for text in ward.texts()] == [True] * told


async def test_ended_sweep_gets_no_warning(redis):
    ward = FailingTrials(redis, a_pod(QUIET))
    await ward.sweep(phase=Phase.STOPPING)
    await ward.run()
    assert ward.texts() == []


async def test_pods_without_a_sweep_are_reported_to_their_team_if_it_has_a_channel(redis):
    lost = {"sweep": "", "trial": "", "namespace": "vision"}
    ward = FailingTrials(
        redis, a_pod(QUIET, pod="notebook", team="vision", **lost), a_pod(QUIET, pod="other", **lost)
    )
    await ward.run()
    [(channel, thread, _)] = ward.slack.posted.values()
    assert (channel, thread) == ("C9", "")
    assert "Pod `vision/notebook` (team vision): 1 GPU idle" in ward.texts()[0]
    for user in (STRANGER, "UMATE"):
        await ward.click(Action.KEEP, user, alert="idle/vision/notebook", hours=4)
    await ward.run(1)
    assert "Snoozed by umate until" in ward.texts()[0]
    assert ward.slack.whispers == [
        (STRANGER, "Only the pod's owner, a member of team vision, or an admin can snooze this warning.")
    ]


async def test_gpu_error_is_reported_to_the_admins_once(redis):
    ward = FailingTrials(redis)
    ward.source.errors = (Xid(device="GPU-1", node="n1", code=79),)
    for _ in range(3):
        await ward.run()
    [(channel, thread, message)] = ward.slack.posted.values()
    assert (channel, thread) == ("CADMINS", "")
    assert "Xid 79, fallen off the bus" in message.text


async def test_busy_channel_does_not_delay_the_others(redis):
    ward = FailingTrials(
        redis, a_pod(QUIET), a_pod(QUIET, pod="notebook", team="vision", sweep="", namespace="vision")
    )
    await ward.sweep()
    ward.slack.busy = {"C1"}
    assert await ward.run() == timedelta(seconds=7)
    assert [channel for channel, _, _ in ward.slack.posted.values()] == ["C9"]
    ward.slack.busy = set()
    assert await ward.run() is None
    assert sorted(channel for channel, _, _ in ward.slack.posted.values()) == ["C1", "C9"]


FOUR = "wxyz"


def trials(*gpus):
    """One GPU each."""
    named = zip(FOUR, gpus, strict=False)
    return tuple(a_pod(gpu, pod=name, trial=f"lr-brave-otter-{name}") for name, gpu in named)


async def four_are_cancelled(redis, *gpus, dies_at=None, **what):
    """What they do by the time their warning's button is heard."""
    ward = FailingTrials(redis, *trials(*[QUIET] * 4), dies_at=dies_at)
    await ward.sweep()
    for _ in range(2):
        await ward.run()
    ask = {"trial": "w x y", "request_id": "trigger-2", "alert": "idle/sweeps/lr-brave-otter-w"}
    await ward.click(Action.KILL, **ask | what)
    ward.source.now = trials(*gpus) if gpus else None
    for _ in range(2):
        await ward.run(2)
    return ward


async def kills(ward) -> list[str]:
    commands = await ward.store.commands("lr-brave-otter")
    assert {(ask.action, ask.user, ask.in_thread) for ask in commands} <= {(Action.KILL, OWNER, True)}
    return [ask.trial.removeprefix("lr-brave-otter-") for ask in commands]


async def test_cancel_of_many_keeps_trials_that_are_busy_again(redis):
    ward = await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET)
    assert await kills(ward) == ["w", "y"]
    assert (await ward.queue.get(wait=0)).item.key == "lr-brave-otter"
    told = "Not cancelled:\n• `lr-brave-otter-x` is busy again after 32 min with 1 GPU idle"
    assert ward.slack.whispers == [(OWNER, told)]


async def test_cancel_of_trials_that_are_busy_or_ended_is_answered(redis):
    ward = await four_are_cancelled(redis, BUSY, BUSY, BUSY, BUSY)
    assert (await kills(ward), ward.slack.whispers) == ([], [(OWNER, GONE)])


async def test_cancel_of_many_needs_a_current_measurement(redis):
    ward = await four_are_cancelled(redis)
    assert (await kills(ward), ward.slack.whispers) == ([], [(OWNER, UNSEEN)])


async def test_crash_while_cancelling_many_cancels_each_once(redis):
    calls = (await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET)).clock.calls
    for dies_at in range(1, calls + 1):
        await redis.flushall()
        ward = await four_are_cancelled(redis, QUIET, BUSY, QUIET, QUIET, dies_at=dies_at)
        assert await kills(ward) == ["w", "y"], dies_at
        assert (await ward.queue.get(wait=0)).item.key == "lr-brave-otter"
        assert len(ward.slack.whispers) in {1, 2}, dies_at
        assert await ward.store.commands(str(ITEM)) == []


async def a_day(redis, dies_at=None) -> FailingTrials:
    """Idle, kept, told again, and ended; with one turn more wherever one may have died."""
    ward = FailingTrials(redis, a_pod(QUIET), dies_at=dies_at)
    await ward.sweep()
    for _ in range(2):
        await ward.run()
    await ward.store.add_command(
        str(ITEM), Command(action=Action.MEASURES, user=OWNER, user_name="", alert=f"idle/sweeps/{TRIAL}")
    )
    await ward.click(Action.KEEP, hours=4)
    for _ in range(2):
        await ward.run(1)
    for _ in range(2):
        await ward.run(300)
    ward.source.now = ()
    for _ in range(2):
        await ward.run(310)
    return ward


async def test_crash_at_any_call_posts_each_warning_once(redis):
    whole = await a_day(redis)
    calls, texts, whispers = whole.clock.calls, whole.texts(), len(whole.slack.whispers)
    assert (len(texts), whispers) == (1, 1)
    for dies_at in range(1, calls + 1):
        await redis.flushall()
        ward = await a_day(redis, dies_at)
        posted, said = len(ward.texts()), len(ward.slack.whispers)
        assert ward.texts()[-1] == texts[0], dies_at
        assert posted + said <= 3, f"{dies_at}: {posted} messages and {said} answers"
        assert await AlertStore(redis).all() == ()
