"""The words of a warning: what was seen, by which measure, what one can do; within Slack's limits."""

from datetime import timedelta
from typing import Any

import pytest

from bot.core.thresholds import IdleThresholds
from bot.idle.alerts import Alert, AlertItem, Found, Snooze, follow
from bot.idle.detector import Kind, holdings
from bot.idle.messages import CANCEL, CANCEL_MANY, KEEP_4, KEEP_24, MEASURES, duration, measures, warning
from bot.slack.message import Message
from local.slack.limits import complaints
from tests.bot.factories import NOW
from tests.bot.idle.test_alerts import found
from tests.bot.idle.test_detector import BUSY, QUIET, UNSEEN, a_pod

SINCE = "<!date^1795260600^{date_short_pretty} {time}|2026-11-21 11:30 UTC>"


def shown(message: Message) -> str:
    return str(message.blocks[0]["text"]["text"])


def buttons(message: Message) -> dict[str, Any]:
    return {e["action_id"]: e for b in message.blocks if b["type"] == "actions" for e in b["elements"]}


def told(*kinds: Kind, **changes: str) -> Alert:
    [alert] = follow((), found(*kinds, **changes), {}, NOW)
    return alert


def text(alert: Alert, minutes: float = 0, *kinds: Kind) -> str:
    now = NOW + timedelta(minutes=minutes)
    [later, *_] = follow([alert], found(*kinds), {}, now)
    return shown(warning(later, {}, now))


def test_an_idle_trial() -> None:
    message = warning(told(Kind.IDLE), {}, NOW)
    assert shown(message) == (
        f":zzz: 2 GPUs of trial `lr-brave-otter-a` did nothing for 30 minutes (since {SINCE}).\n"
        ":wrench: Is it stuck, does it wait for data, or does it compute on the CPU?"
    )
    assert message.blocks[1]["elements"][0]["text"] == (
        "Measured: no sample above 1 % of a GPU's engine time; memory in use does not count. "
        "Nothing is ended unless one of you says so."
    )
    assert list(buttons(message)) == [CANCEL, KEEP_4, KEEP_24, MEASURES]
    assert buttons(message)[CANCEL]["value"] == "lr-brave-otter a"
    assert buttons(message)[CANCEL]["confirm"]["title"]["text"] == "Cancel trial?"
    assert buttons(message)[KEEP_4]["value"] == "idle/sweeps/lr-brave-otter-a"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind.UNUSED, "2 GPUs of trial `lr-brave-otter-a` never did anything in the"),
        (
            Kind.PARTIAL,
            "1 of 2 GPUs of trial `lr-brave-otter-a` did nothing for 30 minutes while the others work",
        ),
        (Kind.LOW, "did little for 2 hours: 0 % on average"),
        (Kind.STUCK, "worked without a pause for 30 minutes, and nothing was written to the log"),
    ],
)
def test_each_kind_in_its_own_words(kind: Kind, words: str) -> None:
    assert words in shown(warning(told(kind), {}, NOW))


def test_the_last_time_it_is_told_plainer() -> None:
    assert "for 1 hour (since" in text(told(Kind.IDLE), 30, Kind.IDLE)
    assert ":octagonal_sign: Better cancel it" not in text(told(Kind.IDLE), 30, Kind.IDLE)
    assert "for 2 hours (since" in text(told(Kind.IDLE), 90, Kind.IDLE)
    assert ":octagonal_sign: Better cancel it" in text(told(Kind.IDLE), 90, Kind.IDLE)


@pytest.mark.parametrize(
    ("kinds", "sign", "words"),
    [
        ([Kind.FINE], ":white_check_mark:", "is at work again, after 42 minutes with 2 GPUs idle."),
        ([], ":black_square_for_stop:", "has ended, after 42 minutes with 2 GPUs idle."),
        (
            [Kind.PARTIAL],
            ":zzz:",
            "changed, after 42 minutes with 2 GPUs idle; a later message tells how it is now.",
        ),
    ],
)
def test_how_it_ended(kinds: list[Kind], sign: str, words: str) -> None:
    assert text(told(Kind.IDLE), 12, *kinds) == f"{sign} Trial `lr-brave-otter-a` {words}"


def test_who_ends_after_it_worked_again_did_well() -> None:
    [alert] = follow([told(Kind.IDLE)], found(Kind.FINE), {}, NOW + timedelta(minutes=12))
    for minutes in (20, 30):
        [alert] = follow([alert], {}, {}, NOW + timedelta(minutes=minutes))
    assert shown(warning(alert, {}, NOW)) == (
        ":white_check_mark: Trial `lr-brave-otter-a` has ended, "
        "at work again after 42 minutes with 2 GPUs idle."
    )


def test_what_is_over_has_no_buttons() -> None:
    [alert] = follow([told(Kind.IDLE)], {}, {}, NOW)
    assert buttons(warning(alert, {}, NOW)) == {}


def test_many_are_one_message_with_one_line_each() -> None:
    alert = told(*[Kind.IDLE] * 5)
    message = warning(alert, {}, NOW)
    assert shown(message).splitlines()[:2] == [
        ":zzz: GPUs of 5 of 5 trials did nothing for 30 minutes:",
        f"• `lr-brave-otter-a` on n1: 2 GPUs, since {SINCE}",
    ]
    button = buttons(message)[CANCEL_MANY]
    assert button["text"]["text"] == "Cancel 5 trials"
    assert button["value"] == "idle/sweeps/lr-brave-otter-a a b c d e"
    assert button["confirm"]["text"]["text"] == (
        "5 trials of lr-brave-otter: ended now, unless at work again, and the GPUs freed. The sweep goes on."
    )
    later = text(alert, 12, Kind.FINE, *[Kind.IDLE] * 3)
    assert later.startswith(":zzz: GPUs of 3 of 5 trials did nothing for 30 minutes:")
    assert "• `lr-brave-otter-a` is at work again" in later
    assert "• `lr-brave-otter-e` has ended" in later
    assert text(alert, 12, *[Kind.FINE] * 5).startswith(
        ":white_check_mark: No GPU of these 5 trials is idle any more:"
    )
    assert text(alert, 12, *[Kind.FINE] * 4).startswith(":black_square_for_stop: No GPU of these 5 trials")
    assert text(alert, 12, *[Kind.PARTIAL] * 5).startswith(":zzz: These 5 trials changed:")


def test_who_keeps_it_and_until_when() -> None:
    alert, until = told(Kind.IDLE), NOW + timedelta(hours=4)
    snoozed = {alert.cases[0].key: Snooze(until=until, by="U1")}
    assert ":stopwatch: <@U1> keeps them until <!date^1795276800^" in shown(warning(alert, snoozed, NOW))
    named = {alert.cases[0].key: Snooze(until=until, by="U1", name="ada <3")}
    assert ":stopwatch: ada &lt;3 keeps them until" in shown(warning(alert, named, NOW))
    assert "keeps" not in shown(warning(alert, snoozed, until))


def test_what_is_kept_is_no_longer_advised_about() -> None:
    alert, until = told(Kind.IDLE), NOW + timedelta(hours=4)
    [alert] = follow([alert], found(Kind.IDLE), {}, NOW + timedelta(hours=2))
    snoozed = {alert.cases[0].key: Snooze(until=until, by="U1", name="ada")}
    message = warning(alert, snoozed, NOW)
    assert shown(message).splitlines()[1:] == [
        ":stopwatch: ada keeps them until <!date^1795276800^{date_short_pretty} {time}|2026-11-21 16:00 UTC>."
    ]
    assert list(buttons(message)) == [CANCEL, KEEP_24, MEASURES]
    afterwards = warning(alert, snoozed, until)
    assert ":octagonal_sign: Better cancel it" in shown(afterwards)
    assert list(buttons(afterwards)) == [CANCEL, KEEP_4, KEEP_24, MEASURES]


def test_one_gpu_is_it() -> None:
    [held] = holdings([a_pod(QUIET)]).values()
    alone = {held.key: Found(held=held, kind=Kind.IDLE, watch=IdleThresholds(), channel="C1", thread="1.1")}
    [alert] = follow((), alone, {}, NOW)
    snoozed = {held.key: Snooze(until=NOW + timedelta(hours=4), by="U1", name="ada")}
    assert ":stopwatch: ada keeps it until" in shown(warning(alert, snoozed, NOW))


def test_of_many_it_is_said_how_many_are_kept() -> None:
    alert = told(*[Kind.IDLE] * 4)
    snoozed = {
        case.key: Snooze(until=NOW + timedelta(hours=4), by="U1", name="ada") for case in alert.cases[:3]
    }
    message = warning(alert, snoozed, NOW)
    assert ":wrench:" in shown(message)
    assert ":stopwatch: ada keeps 3 of them until" in shown(message)
    assert KEEP_4 in buttons(message)


def test_a_pod_of_nobodys_sweep_is_told_to_its_team_and_can_t_be_cancelled() -> None:
    [held] = holdings([a_pod(QUIET, sweep="", trial="", team="vision", owner="U1")]).values()
    pod = {held.key: Found(held=held, kind=Kind.IDLE, watch=IdleThresholds(), channel="C9")}
    [alert] = follow((), pod, {}, NOW)
    message = warning(alert, {}, NOW)
    assert "1 GPU of pod `sweeps/lr-brave-otter-x-1` (team vision) did nothing" in shown(message)
    assert list(buttons(message)) == [KEEP_4, KEEP_24, MEASURES]
    assert "U1" not in str(message)


def test_what_was_measured() -> None:
    [held] = holdings([a_pod(QUIET, UNSEEN, allocated=3)]).values()
    assert measures([held], timedelta(minutes=30), "Prometheus") == (
        "What Prometheus measured over 30 minutes:\n"
        "• `lr-brave-otter-x` `GPU-0`: at most 0.4 %, 0.2 % on average, 0.3 % or less in 95 of 100 samples\n"
        "• `lr-brave-otter-x` `GPU-1`: unknown: too few samples\n"
        "• `lr-brave-otter-x`: 1 GPU not seen: unknown"
    )
    assert "not held any more" in measures([], timedelta(minutes=30), "Prometheus")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(12, "12 seconds"), (60, "1 minute"), (2520, "42 minutes"), (5400, "90 minutes"), (90000, "25 hours")],
)
def test_how_long_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.wrong])
@pytest.mark.parametrize("sweep", ["", "lr-brave-otter-lynx-badgers"])
def test_the_longest_names_pass_slack_s_limits(many: int, kind: Kind, sweep: str) -> None:
    name = "x" * (63 if sweep else 253)
    case = AlertItem(
        key=f"{'n' * 63}/{name}",
        name=name,
        nodes=("<!channel>" * 25, "n" * 253),
        now=kind,
        since=NOW,
        lasted=timedelta(days=400),
        again=4,
        idle=7,
        gpus=8,
        mean=0.149,
    )
    alert = Alert(
        kind=kind, sweep=sweep, namespace="n" * 63, team="t" * 63, channel="C1", cases=(case,) * many
    )
    snoozed = {case.key: Snooze(until=NOW + timedelta(hours=1), by="U" * 20, name="&" * 200)}
    message = warning(alert, snoozed, NOW)
    assert complaints(list(message.blocks)) == []
    assert len(message.text) < 4000
    assert "<!channel>" not in str(message)


def test_a_private_answer_stays_short() -> None:
    held = list(holdings([a_pod(*[BUSY] * 500, trial="t" * 63)]).values())
    assert len(measures(held * 20, timedelta(hours=2), "dcgm-exporter")) < 4000
