"""GPU warnings: the finding, how it was measured, and what to do; within Slack's limits."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.measure.gpus.command import ASK_OWNER
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.slack.message import Message
from bot.watch.idle.alerts import Alert, AlertItem, Assessment, Snooze, update_alerts
from bot.watch.idle.detector import Kind, allocations
from bot.watch.idle.messages import (
    CANCEL_IDLE,
    CANCEL_IDLE_GROUP,
    SNOOZE_4,
    SNOOZE_24,
    UTILIZATION,
    duration,
    utilization,
    warning,
)
from k8s.nodes.dcgm import Load
from local.slack.validation import complaints
from tests.bot.factories import NOW
from tests.bot.watch.idle.test_alerts import found
from tests.bot.watch.idle.test_detector import BUSY, QUIET, UNSEEN, a_pod
from tests.cases import cases

SINCE = "<!date^1795260600^{date_short_pretty} {time}|2026-11-21 11:30 UTC>"


def shown(message: Message) -> str:
    return str(message.blocks[0]["text"]["text"])


def buttons(message: Message) -> dict[str, Any]:
    return {e["action_id"]: e for b in message.blocks if b["type"] == "actions" for e in b["elements"]}


def sent(*kinds: Kind, **changes: str) -> Alert:
    [alert] = update_alerts((), found(*kinds, **changes), {}, NOW)
    return alert


def text(alert: Alert, minutes: float = 0, *kinds: Kind) -> str:
    now = NOW + timedelta(minutes=minutes)
    later = alert
    for _ in range(2):  # only the second check ends those that are gone
        [later, *_] = update_alerts([later], found(*kinds), {}, now)
    return shown(warning(later, {}, now))


def test_idle_trial() -> None:
    message = warning(sent(Kind.IDLE), {}, NOW)
    assert shown(message) == (
        f":zzz: Trial `lr-brave-otter-a`: 2 GPUs idle for 30 min, since {SINCE}.\n"
        "*Check:* Is the program hung, waiting for data, or computing on the CPU?"
    )
    assert message.blocks[1]["elements"][0]["text"] == (
        "Idle: no sample above 1% GPU utilization; memory use doesn't count. "
        "Sweepbot stops no trial because of this warning."
    )
    assert list(buttons(message)) == [CANCEL_IDLE, SNOOZE_4, SNOOZE_24, UTILIZATION]
    assert buttons(message)[CANCEL_IDLE]["value"] == "lr-brave-otter a"
    assert buttons(message)[CANCEL_IDLE]["confirm"]["title"]["text"] == "Cancel trial?"
    assert buttons(message)[CANCEL_IDLE]["confirm"]["text"]["text"] == (
        "Stops trial a of lr-brave-otter and frees its GPUs. The sweep continues."
    )
    assert [button["text"]["text"] for button in buttons(message).values()] == [
        *("Cancel trial", "Snooze 4 h", "Snooze 24 h", "Show utilization"),
    ]
    assert buttons(message)[SNOOZE_4]["value"] == "idle/sweeps/lr-brave-otter-a"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind.UNUSED, "Trial `lr-brave-otter-a`: 2 GPUs unused for 1 h since it started, <!date^"),
        (
            Kind.PARTIAL,
            "Trial `lr-brave-otter-a`: 1 of 2 GPUs idle for 30 min while the rest are busy, since <!date^",
        ),
        (Kind.LOW, "2 GPUs underused for 2 h (0% average), since <!date^"),
        (Kind.WAITING, "2 GPUs busy for 2 h, but hardly computing, since <!date^"),
        (Kind.STUCK, "2 GPUs busy for 30 min with no log output, since <!date^"),
    ],
)
def test_each_kind_has_its_own_text(kind: Kind, words: str) -> None:
    assert words in shown(warning(sent(kind), {}, NOW))


def test_waiting_trial_shows_what_was_measured_beside_utilization() -> None:
    [held] = allocations([a_pod((1.0, 1.0, 1.0))]).values()
    held = replace(held, gpus=(replace(held.gpus[0], load=Load(sm=0.02, watts=111.4, memory=70.2)),))
    current = Assessment(
        allocation=held, kind=Kind.WAITING, thresholds=IdleThresholds(), channel="C1", thread="1.1"
    )
    [alert] = update_alerts((), {held.key: current}, {}, NOW)
    message = warning(alert, {}, NOW)
    assert shown(message).splitlines()[1:] == [
        "SM activity 2%, 111 W, 70 GiB memory used.",
        "*Check:* Does a kernel wait for other workers or data? If not, try a larger batch size.",
    ]
    assert "also counts kernels that wait. SM activity below 10% and less than 150 W per GPU" in str(message)
    assert utilization([held], timedelta(hours=2), "Prometheus").splitlines()[1] == (
        "• `lr-brave-otter-x` `GPU-0`: max 100.0%, mean 100.0%, p95 100.0%, SM activity 2%, 111 W, "
        "70 GiB memory used"
    )
    hotter = replace(held.gpus[0], load=Load(sm=0.03, watts=119, memory=71))
    current = replace(current, allocation=replace(held, gpus=(hotter,)))
    [later] = update_alerts([alert], {held.key: current}, {}, NOW + timedelta(minutes=3))
    assert warning(later, {}, NOW) == message  # no edit every few minutes


def test_last_repeat_asks_to_cancel_or_snooze() -> None:
    assert "for 1 h, since" in text(sent(Kind.IDLE), 30, Kind.IDLE)
    assert "*Still idle.*" not in text(sent(Kind.IDLE), 30, Kind.IDLE)
    assert "for 2 h, since" in text(sent(Kind.IDLE), 90, Kind.IDLE)
    assert "*Still idle.* Cancel it, or snooze if you need it; others may be waiting for GPUs." in text(
        sent(Kind.IDLE), 90, Kind.IDLE
    )


def test_warning_after_a_snooze_says_how_long_the_gpus_have_been_idle() -> None:
    alert, begin = replace(sent(Kind.IDLE), level=1, ts="1.1"), NOW - timedelta(minutes=30)
    snooze = {"sweeps/lr-brave-otter-a": Snooze(until=begin + timedelta(hours=4, minutes=36), by="U1")}
    for minutes in range(0, 246, 3):
        [alert] = update_alerts([alert], found(Kind.IDLE), snooze, NOW + timedelta(minutes=minutes))
        assert alert.due_level(snooze, NOW + timedelta(minutes=minutes)) == 0
    after = begin + timedelta(hours=4, minutes=37)
    [alert] = update_alerts([alert], found(Kind.IDLE), snooze, after)
    assert alert.due_level(snooze, after) == 4
    assert shown(warning(alert, snooze, after)).startswith(
        f":zzz: Trial `lr-brave-otter-a`: 2 GPUs idle for 4 h, since {SINCE}.\n*Still idle.*"
    )


@pytest.mark.parametrize(
    ("kinds", "sign", "words"),
    [
        ([Kind.FINE], ":white_check_mark: ", "is busy again after 42 min with 2 GPUs idle."),
        ([], "", "ended after 42 min with 2 GPUs idle."),
        (
            [Kind.PARTIAL],
            ":zzz: ",
            "is now partly idle after 42 min with 2 GPUs idle; see the newer warning.",
        ),
    ],
)
def test_ended_warning_says_how_it_ended(kinds: list[Kind], sign: str, words: str) -> None:
    assert text(sent(Kind.IDLE), 12, *kinds) == f"{sign}Trial `lr-brave-otter-a` {words}"


def test_trial_that_ended_after_a_recovery_is_a_success() -> None:
    [alert] = update_alerts([sent(Kind.IDLE)], found(Kind.FINE), {}, NOW + timedelta(minutes=12))
    for minutes in (20, 30):
        [alert] = update_alerts([alert], {}, {}, NOW + timedelta(minutes=minutes))
    assert shown(warning(alert, {}, NOW)) == (
        ":white_check_mark: Trial `lr-brave-otter-a` ended, busy again after 42 min with 2 GPUs idle."
    )


def test_ended_warning_has_no_buttons() -> None:
    [alert] = update_alerts(update_alerts([sent(Kind.IDLE)], {}, {}, NOW), {}, {}, NOW)
    assert buttons(warning(alert, {}, NOW)) == {}


def test_group_is_one_message_with_one_line_per_trial() -> None:
    alert = sent(*[Kind.IDLE] * 5)
    message = warning(alert, {}, NOW)
    assert shown(message).splitlines()[:2] == [
        ":zzz: 5 of 5 trials: GPUs idle for 30 min",
        f"• `lr-brave-otter-a` on n1: 2 GPUs, since {SINCE}",
    ]
    button = buttons(message)[CANCEL_IDLE_GROUP]
    assert button["text"]["text"] == "Cancel 5 trials"
    assert button["value"] == "idle/sweeps/lr-brave-otter-a a b c d e"
    assert button["confirm"]["text"]["text"] == (
        "Stops 5 trials of lr-brave-otter, except any that are busy again, and frees their GPUs. "
        "The sweep continues."
    )
    later = text(alert, 12, Kind.FINE, *[Kind.IDLE] * 3)
    assert later.startswith(":zzz: 3 of 5 trials: GPUs idle for 30 min")
    assert "• `lr-brave-otter-a` is busy again" in later
    assert "• `lr-brave-otter-e` ended" in later
    assert text(alert, 12, *[Kind.FINE] * 5).startswith(":white_check_mark: No longer flagged: 5 trials")
    assert text(alert, 12, *[Kind.FINE] * 4).startswith("No longer flagged: 5 trials")
    assert text(alert, 12, *[Kind.PARTIAL] * 5).startswith(":zzz: Changed: 5 trials")


def test_snooze_shows_who_and_until_when() -> None:
    alert, until = sent(Kind.IDLE), NOW + timedelta(hours=4)
    snoozed = {alert.items[0].key: Snooze(until=until, by="U1")}
    assert "Snoozed by <@U1> until <!date^1795276800^" in shown(warning(alert, snoozed, NOW))
    named = {alert.items[0].key: Snooze(until=until, by="U1", name="ada <3")}
    assert "Snoozed by ada &lt;3 until" in shown(warning(alert, named, NOW))
    assert "Snoozed" not in shown(warning(alert, snoozed, until))


def test_snoozed_warning_gives_no_advice() -> None:
    alert, until = sent(Kind.IDLE), NOW + timedelta(hours=4)
    [alert] = update_alerts([alert], found(Kind.IDLE), {}, NOW + timedelta(hours=2))
    snoozed = {alert.items[0].key: Snooze(until=until, by="U1", name="ada")}
    message = warning(alert, snoozed, NOW)
    assert shown(message).splitlines()[1:] == [
        "Snoozed by ada until <!date^1795276800^{date_short_pretty} {time}|2026-11-21 16:00 UTC>."
    ]
    assert list(buttons(message)) == [CANCEL_IDLE, SNOOZE_24, UTILIZATION]
    afterwards = warning(alert, snoozed, until)
    assert "*Still idle.* Cancel it" in shown(afterwards)
    assert list(buttons(afterwards)) == [CANCEL_IDLE, SNOOZE_4, SNOOZE_24, UTILIZATION]


def test_changed_condition_during_a_snooze_refers_to_no_newer_warning() -> None:
    alert = sent(Kind.UNUSED)
    snoozed = {alert.items[0].key: Snooze(until=NOW + timedelta(hours=4), by="U1", name="ada")}
    [alert] = update_alerts([alert], found(Kind.IDLE), snoozed, NOW)
    assert shown(warning(alert, snoozed, NOW)).splitlines() == [
        ":zzz: Trial `lr-brave-otter-a` is now idle after 1 h with 2 GPUs unused.",
        "Snoozed by ada until <!date^1795276800^{date_short_pretty} {time}|2026-11-21 16:00 UTC>.",
    ]
    group = sent(*[Kind.UNUSED] * 4)
    group, *newer = update_alerts([group], found(*[Kind.IDLE] * 4), snoozed, NOW)
    assert len(newer) == 3
    lines = shown(warning(group, snoozed, NOW)).splitlines()
    assert ["see the newer warning" in line for line in lines[1:]] == [False, True, True, True, False]
    assert "Snoozed (1 of 4) by ada until" in lines[-1]


def test_recovery_of_each_kind() -> None:
    recovered = {
        kind: text(sent(kind), 0, Kind.FINE).partition("-a` ")[2] for kind in Kind if kind.needs_alert
    }
    assert recovered == {
        Kind.UNUSED: "is busy now after 1 h with 2 GPUs unused.",
        Kind.IDLE: "is busy again after 30 min with 2 GPUs idle.",
        Kind.PARTIAL: "is busy again after 30 min with 1 of 2 GPUs idle.",
        Kind.LOW: "is busy again after 1 h at 0% average.",
        Kind.WAITING: "is computing again after 1 h of waiting.",
        Kind.STUCK: "is logging again after 30 min without log output.",
        Kind.FULL: "is using less memory again after 30 min near its memory limit.",
        Kind.SPARE: "is using more memory again after 1 h with 2 GPUs hardly used.",
    }


def test_group_shows_how_many_are_snoozed() -> None:
    alert = sent(*[Kind.IDLE] * 4)
    snoozed = {
        item.key: Snooze(until=NOW + timedelta(hours=4), by="U1", name="ada") for item in alert.items[:3]
    }
    message = warning(alert, snoozed, NOW)
    assert "*Check:*" in shown(message)
    assert "Snoozed (3 of 4) by ada until" in shown(message)
    assert SNOOZE_4 in buttons(message)


def test_pod_outside_sweeps_names_its_team_and_has_no_cancel_button() -> None:
    [held] = allocations([a_pod(QUIET, sweep="", trial="", team="vision", owner="U1")]).values()
    pod = {held.key: Assessment(allocation=held, kind=Kind.IDLE, thresholds=IdleThresholds(), channel="C9")}
    [alert] = update_alerts((), pod, {}, NOW)
    message = warning(alert, {}, NOW)
    assert "Pod `sweeps/lr-brave-otter-x-1` (team vision): 1 GPU idle for 30 min" in shown(message)
    assert list(buttons(message)) == [ASK_OWNER, SNOOZE_4, SNOOZE_24, UTILIZATION]
    assert buttons(message)[ASK_OWNER]["value"] == held.key
    assert "U1" not in str(message)
    assert ASK_OWNER not in buttons(warning(replace(alert, owner=""), {}, NOW))


def test_utilization_of_each_gpu() -> None:
    [held] = allocations([a_pod(QUIET, UNSEEN, allocated=3)]).values()
    assert utilization([held], timedelta(minutes=30), "Prometheus") == (
        "GPU utilization over the last 30 min (Prometheus):\n"
        "• `lr-brave-otter-x` `GPU-0`: max 0.4%, mean 0.2%, p95 0.3%\n"
        "• `lr-brave-otter-x` `GPU-1`: too few samples\n"
        "• `lr-brave-otter-x`: no data for 1 GPU"
    )
    assert "no longer allocated" in utilization([], timedelta(minutes=30), "Prometheus")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (12, "12 s"),
        (60, "1 min"),
        (2520, "42 min"),
        (5400, "90 min"),
        (41400, "11 h 30 min"),
        (90000, "25 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


@cases("many", [1, 1000])
@cases("kind", [kind for kind in Kind if kind.needs_alert])
@cases("sweep", ["", "lr-brave-otter-lynx-badgers"])
def test_longest_names_pass_slack_limits(many: int, kind: Kind, sweep: str) -> None:
    name = "x" * (63 if sweep else 253)
    item = AlertItem(
        key=f"{'n' * 63}/{name}",
        name=name,
        nodes=("<!channel>" * 25, "n" * 253),
        now=kind,
        since=NOW,
        lasted=timedelta(days=400),
        level=4,
        idle=7,
        gpus=8,
        mean=0.149,
    )
    alert = Alert(
        kind=kind, sweep=sweep, namespace="n" * 63, team="t" * 63, channel="C1", items=(item,) * many
    )
    snoozed = {item.key: Snooze(until=NOW + timedelta(hours=1), by="U" * 20, name="&" * 200)}
    message = warning(alert, snoozed, NOW)
    assert complaints(list(message.blocks)) == []
    assert len(message.text) < 4000
    assert "<!channel>" not in str(message)


def test_private_reply_stays_short() -> None:
    held = list(allocations([a_pod(*[BUSY] * 500, trial="t" * 63)]).values())
    assert len(utilization(held * 20, timedelta(hours=2), "dcgm-exporter")) < 4000
