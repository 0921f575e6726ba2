"""What was told of idle GPUs and what is told next: one notice for each trial and kind."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bot.core.thresholds import IdleThresholds
from bot.idle.alerts import Alert, Assessment, Snooze, update_alerts
from bot.idle.detector import Kind, allocations
from tests.bot.factories import NOW
from tests.bot.idle.test_detector import BUSY, QUIET, a_pod

MINUTE = timedelta(minutes=1)


def found(*kinds: Kind, names: str = "abcdefghij", **changes: str) -> dict[str, Assessment]:
    """Trials a, b, c ... of one sweep, and how they are."""
    trials = {}
    for name, kind in zip(names, kinds, strict=False):
        gpus = (QUIET, BUSY) if kind is Kind.PARTIAL else (QUIET, QUIET)
        [held] = allocations([a_pod(*gpus, pod=name, trial=f"lr-brave-otter-{name}")]).values()
        place = {"channel": "C1", "thread": "1.1"} | changes
        trials[held.key] = Assessment(allocation=held, kind=kind, thresholds=IdleThresholds(), **place)
    return trials


def states(alerts: tuple[Alert, ...]) -> list[tuple[Kind, list[Kind]]]:
    return [(alert.kind, [item.now for item in alert.items]) for alert in alerts]


def after(told: tuple[Alert, ...], minutes: float, *kinds: Kind) -> tuple[Alert, ...]:
    return update_alerts(told, found(*kinds), {}, NOW + minutes * MINUTE)


def test_one_notice_for_a_trial_however_often_it_is_seen() -> None:
    told = after((), 0, Kind.IDLE)
    assert states(told) == [(Kind.IDLE, [Kind.IDLE])]
    assert told[0].items[0].since == NOW - 30 * MINUTE
    assert after(told, 3, Kind.IDLE) == after(told, 27, Kind.IDLE) == told


def test_it_is_told_again_after_one_and_two_hours() -> None:
    told, lasted = after((), 0, Kind.IDLE), []
    for minutes in (15, 30, 60, 90, 300):
        told = after(told, minutes, Kind.IDLE)
        lasted.append(told[0].items[0].lasted / MINUTE)
    assert lasted == [30, 60, 60, 120, 120]


def test_busy_again_is_said_with_how_long_it_was_idle() -> None:
    told = after(after((), 0, Kind.IDLE), 12, Kind.FINE)
    assert states(told) == [(Kind.IDLE, [Kind.FINE])]
    assert told[0].items[0].lasted == 42 * MINUTE
    assert after(told, 20, Kind.FINE) == told


def test_what_is_not_known_changes_nothing() -> None:
    told = after((), 0, Kind.IDLE)
    assert after(told, 90, Kind.UNKNOWN) == told
    assert after((), 0, Kind.UNKNOWN) == ()


def test_a_gap_in_two_hours_hides_low_use_and_not_that_it_works_again() -> None:
    low, idle = after((), 0, Kind.LOW), after((), 0, Kind.IDLE)
    assert after(low, 90, Kind.MAYBE_LOW) == low
    assert states(after(idle, 90, Kind.MAYBE_LOW)) == [(Kind.IDLE, [Kind.FINE])]
    assert after((), 0, Kind.MAYBE_LOW) == ()


@pytest.mark.parametrize("idle", [Kind.IDLE, Kind.PARTIAL, Kind.UNUSED])
def test_a_low_mean_means_nothing_until_two_hours_after_the_last_idle(idle: Kind) -> None:
    told = after((), 0, idle)
    for minutes in (3, 60, 122):
        told = after(told, minutes, Kind.LOW)
        assert states(told) == [(idle, [Kind.FINE])]
    assert states(after(told, 123, Kind.LOW)) == [(idle, [Kind.LOW]), (Kind.LOW, [Kind.LOW])]
    again = after(after(told, 90, idle), 123, Kind.LOW)
    assert states(again) == [(idle, [Kind.FINE])]


def test_idle_once_more_is_the_same_notice_and_a_new_time() -> None:
    told = after(after(after((), 0, Kind.IDLE), 10, Kind.FINE), 100, Kind.IDLE)
    assert states(told) == [(Kind.IDLE, [Kind.IDLE])]
    assert told[0].items[0].since == NOW + 70 * MINUTE


def test_another_kind_is_another_notice() -> None:
    told = after(after((), 0, Kind.PARTIAL), 10, Kind.IDLE)
    assert states(told) == [(Kind.PARTIAL, [Kind.IDLE]), (Kind.IDLE, [Kind.IDLE])]
    assert (told[0].items[0].idle, told[0].items[0].gpus) == (1, 2)


def test_what_was_never_used_stays_so_when_its_start_is_too_long_ago_to_be_known() -> None:
    told = after((), 0, Kind.UNUSED)
    late = {
        key: replace(each, allocation=replace(each.allocation, busy_ever=None))
        for key, each in found(Kind.IDLE).items()
    }
    assert states(update_alerts(told, late, {}, NOW + 25 * 60 * MINUTE)) == [(Kind.UNUSED, [Kind.UNUSED])]
    assert states(update_alerts((), late, {}, NOW)) == [(Kind.IDLE, [Kind.IDLE])]


def test_a_trial_that_has_ended_ends_its_notice() -> None:
    [alert] = update_alerts(after((), 0, Kind.IDLE), {}, {}, NOW + 5 * MINUTE)
    assert alert.over
    assert not alert.open


def test_three_are_three_notices_and_four_are_one() -> None:
    assert len(after((), 0, *[Kind.IDLE] * 3)) == 3
    assert states(after((), 0, *[Kind.IDLE] * 4)) == [(Kind.IDLE, [Kind.IDLE] * 4)]


def test_who_comes_later_joins_the_notice_for_many() -> None:
    told = after((), 0, *[Kind.IDLE] * 4)
    told = after(told, 3, *[Kind.IDLE] * 6)
    assert states(told) == [(Kind.IDLE, [Kind.IDLE] * 6)]
    told = after(told, 6, Kind.FINE, *[Kind.IDLE] * 5)
    assert states(told) == [(Kind.IDLE, [Kind.FINE, *[Kind.IDLE] * 5])]


def test_different_sweeps_are_never_told_together() -> None:
    other = found(*[Kind.IDLE] * 4, names="klmn", thread="2.2")
    told = update_alerts((), found(*[Kind.IDLE] * 4) | other, {}, NOW)
    assert sorted(alert.thread for alert in told) == ["1.1", "2.2"]


def kept(hours: float, start: datetime = NOW) -> dict[str, Snooze]:
    return {"sweeps/lr-brave-otter-a": Snooze(until=start + timedelta(hours=hours), by="U1")}


def test_what_is_kept_is_not_told_until_that_is_over() -> None:
    assert update_alerts((), found(Kind.IDLE), kept(4), NOW) == ()
    [alert] = update_alerts((), found(Kind.IDLE), kept(4), NOW + timedelta(hours=4))
    assert alert.open


def test_where_nobody_listens_nothing_is_told() -> None:
    assert update_alerts((), found(Kind.IDLE, channel=""), {}, NOW) == ()


def test_each_notice_has_a_name_of_its_own() -> None:
    told = after(after((), 0, Kind.PARTIAL, Kind.IDLE), 10, Kind.IDLE, Kind.IDLE)
    assert len({alert.id for alert in told}) == 3
    assert {replace(alert, ts="1").id for alert in told} == {alert.id for alert in told}
