"""Alerts about idle GPUs: one for each trial and kind, posted again after twice and four times as long."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bot.core.plan import HOME_CLUSTER
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.watch.idle.alerts import (
    Alert,
    Assessment,
    Snooze,
    cluster_of,
    question,
    repeat_level,
    update_alerts,
)
from bot.watch.idle.detector import Kind, allocations, first_alert_after
from k8s.nodes.dcgm import Load
from tests.bot.factories import NOW
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod

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


def after(alerts: tuple[Alert, ...], minutes: float, *kinds: Kind) -> tuple[Alert, ...]:
    return update_alerts(alerts, found(*kinds), {}, NOW + minutes * MINUTE)


def test_update_alerts_repeated_keeps_one_alert_per_trial() -> None:
    alerts = after((), 0, Kind.IDLE)
    assert states(alerts) == [(Kind.IDLE, [Kind.IDLE])]
    assert alerts[0].items[0].since == NOW - 30 * MINUTE
    assert after(alerts, 3, Kind.IDLE) == after(alerts, 27, Kind.IDLE) == alerts


def test_new_alert_is_not_posted_so_far() -> None:
    [alert] = after((), 0, Kind.IDLE)
    assert (alert.level, alert.due_level({}, NOW)) == (0, 1)
    assert alert.due_level(snoozed(4), NOW) == 0
    assert (alert.due({}, NOW), alert.due(snoozed(4), NOW)) == (True, False)
    [held] = found(Kind.IDLE).values()
    asked = question(held, "U1", NOW)
    later = replace(asked, items=tuple(replace(item, level=4) for item in asked.items))
    assert later.due_level({}, NOW) == 1, "isn't asked again"
    [answered] = update_alerts([asked], found(Kind.FINE), {}, NOW)
    assert (asked.over, answered.over) == (False, True)
    for kind in (Kind.IDLE, Kind.WAITING, Kind.LOW, Kind.FULL, Kind.SPARE):
        [alert] = after((), 0, kind)
        assert (alert.items[0].mean is not None) is (kind in {Kind.LOW, Kind.FULL, Kind.SPARE})


@pytest.mark.parametrize("cluster", [HOME_CLUSTER, "west"])
def test_alert_id_has_its_cluster(cluster: str) -> None:
    [held] = allocations([a_pod(QUIET)], cluster).values()
    assessed = Assessment(allocation=held, kind=Kind.IDLE, thresholds=IdleThresholds(), channel="C1")
    [alert] = update_alerts((), {held.key: assessed}, {}, NOW)
    assert cluster_of(alert.id) == cluster


def test_repeat_level_rises_at_twice_and_four_times() -> None:
    first = timedelta(minutes=30)
    assert [repeat_level(first * n, first) for n in (1, 1.9, 2, 3.9, 4, 40)] == [1, 1, 2, 2, 4, 4]


def test_first_warning_of_each_kind_comes_after_its_own_time() -> None:
    own = IdleThresholds(idle_minutes=20, first_use_minutes=21, stuck_minutes=22)
    kinds = (Kind.IDLE, Kind.UNUSED, Kind.STUCK, Kind.LOW)
    assert [first_alert_after(kind, own) / MINUTE for kind in kinds] == [20, 21, 22, 120]


def test_level_rises_after_one_and_two_hours() -> None:
    alerts, lasted = after((), 0, Kind.IDLE), []
    for minutes in (15, 30, 60, 90, 300):
        alerts = after(alerts, minutes, Kind.IDLE)
        lasted.append(alerts[0].items[0].lasted / MINUTE)
    assert lasted == [30, 60, 60, 120, 300]
    assert [item.level for item in alerts[0].items] == [4]
    two = replace(alerts[0], items=(*alerts[0].items, replace(alerts[0].items[0], level=1)))
    assert two.due_level({}, NOW) == 4
    posted = replace(alerts[0], level=2, posted=NOW)
    assert (posted.due({}, NOW), replace(posted, level=4).due({}, NOW)) == (True, False)
    [low] = after(after((), 0, Kind.LOW), 900, Kind.LOW)
    assert (low.items[0].level, low.items[0].lasted) == (1, 120 * MINUTE), "is posted once"


def test_load_is_shown_as_at_the_last_post_and_is_measured_anew_after_a_recovery() -> None:
    def loaded(memory: float) -> dict[str, Assessment]:
        [(key, each)] = found(Kind.IDLE).items()
        gpus = tuple(replace(gpu, load=Load(memory=memory)) for gpu in each.allocation.gpus)
        return {key: replace(each, allocation=replace(each.allocation, gpus=gpus))}

    alerts, shown = (), []
    for minutes, now in (
        (0, loaded(1)),
        (10, loaded(2)),
        (30, loaded(3)),
        (35, found(Kind.FINE)),
        (40, loaded(4)),
    ):
        alerts = update_alerts(alerts, now, {}, NOW + minutes * MINUTE)
        shown.append(alerts[0].items[0].load.memory)
    assert shown == [1, 1, 3, 3, 4]


def test_recovery_keeps_the_idle_duration() -> None:
    alerts = after(after((), 0, Kind.IDLE), 12, Kind.FINE)
    assert states(alerts) == [(Kind.IDLE, [Kind.FINE])]
    assert not alerts[0].over, "it can be idle again"
    assert alerts[0].items[0].lasted == 42 * MINUTE
    assert after(alerts, 20, Kind.FINE) == alerts


def test_unknown_changes_nothing() -> None:
    alerts = after((), 0, Kind.IDLE)
    assert after(alerts, 90, Kind.UNKNOWN) == alerts
    assert after((), 0, Kind.UNKNOWN) == ()


def test_maybe_low_keeps_low_and_ends_idle() -> None:
    low, idle = after((), 0, Kind.LOW), after((), 0, Kind.IDLE)
    assert after(low, 90, Kind.MAYBE_LOW) == low
    assert states(after(idle, 90, Kind.MAYBE_LOW)) == [(Kind.IDLE, [Kind.FINE])]
    assert after((), 0, Kind.MAYBE_LOW) == ()


@pytest.mark.parametrize("idle", [Kind.IDLE, Kind.PARTIAL, Kind.UNUSED])
def test_low_within_two_hours_of_an_idle_spell_is_suppressed(idle: Kind) -> None:
    alerts = after((), 0, idle)
    for minutes in (3, 60, 122):
        alerts = after(alerts, minutes, Kind.LOW)
        assert states(alerts) == [(idle, [Kind.FINE])]
    assert states(after(alerts, 123, Kind.LOW)) == [(idle, [Kind.LOW]), (Kind.LOW, [Kind.LOW])]
    again = after(after(alerts, 90, idle), 123, Kind.LOW)
    assert states(again) == [(idle, [Kind.FINE])]


def test_idle_again_reopens_the_alert_with_a_new_time() -> None:
    alerts = after(after(after((), 0, Kind.IDLE), 10, Kind.FINE), 100, Kind.IDLE)
    assert states(alerts) == [(Kind.IDLE, [Kind.IDLE])]
    assert alerts[0].items[0].since == NOW + 70 * MINUTE


def test_another_kind_is_another_alert() -> None:
    alerts = after(after((), 0, Kind.PARTIAL), 10, Kind.IDLE)
    assert states(alerts) == [(Kind.PARTIAL, [Kind.IDLE]), (Kind.IDLE, [Kind.IDLE])]
    assert (alerts[0].items[0].idle, alerts[0].items[0].gpus) == (1, 2)


def test_unused_stays_unused_when_samples_no_longer_reach_the_start() -> None:
    alerts = after((), 0, Kind.UNUSED)
    late = {
        key: replace(each, allocation=replace(each.allocation, busy_ever=None))
        for key, each in found(Kind.IDLE).items()
    }
    assert states(update_alerts(alerts, late, {}, NOW + 25 * 60 * MINUTE)) == [(Kind.UNUSED, [Kind.UNUSED])]
    assert states(update_alerts((), late, {}, NOW)) == [(Kind.IDLE, [Kind.IDLE])]


def test_unused_counts_from_the_start_of_a_pod_whose_container_restarts() -> None:
    pod = a_pod(QUIET, started=None, pod_started=NOW - 90 * MINUTE, busy_ever=False)
    [held] = allocations([pod]).values()
    assessed = Assessment(allocation=held, kind=Kind.UNUSED, thresholds=IdleThresholds(), channel="C1")
    [alert] = update_alerts((), {held.key: assessed}, {}, NOW)
    assert (alert.items[0].since, alert.items[0].lasted) == (NOW - 90 * MINUTE, 60 * MINUTE)


def test_idle_stays_idle_when_more_samples_show_that_it_was_never_used() -> None:
    alerts = after(after((), 0, Kind.IDLE), 25, Kind.UNUSED)
    assert states(alerts) == [(Kind.IDLE, [Kind.IDLE])]
    assert states(after(after(alerts, 30, Kind.FINE), 90, Kind.UNUSED))[0] == (Kind.IDLE, [Kind.UNUSED])


def test_ended_trial_ends_its_alert_at_the_second_check() -> None:
    alerts = after((), 0, Kind.IDLE)
    [missing] = once = after(alerts, 5)
    assert missing.open
    assert after(once, 8, Kind.IDLE) == alerts  # its metrics were only late
    [alert] = ended = after(once, 8)
    assert (alert.over, alert.open) == (True, ())
    assert alert.items[0].lasted == 35 * MINUTE  # until the first check without it
    assert after(ended, 11) == ended


def test_four_new_alerts_of_a_sweep_become_one_group_alert() -> None:
    assert len(after((), 0, *[Kind.IDLE] * 3)) == 3
    assert states(after((), 0, *[Kind.IDLE] * 4)) == [(Kind.IDLE, [Kind.IDLE] * 4)]


def test_later_trial_joins_the_group_alert() -> None:
    alerts = after((), 0, *[Kind.IDLE] * 4)
    alerts = after(alerts, 3, *[Kind.IDLE] * 6)
    assert states(alerts) == [(Kind.IDLE, [Kind.IDLE] * 6)]
    assert [item.joined for item in alerts[0].items] == [False] * 4 + [True] * 2
    alerts = after(alerts, 6, Kind.FINE, *[Kind.IDLE] * 5)
    assert states(alerts) == [(Kind.IDLE, [Kind.FINE, *[Kind.IDLE] * 5])]


def test_trial_that_joins_a_group_alert_leaves_the_others_in_place() -> None:
    def both(trials: int, alerts: tuple[Alert, ...] = ()) -> tuple[Alert, ...]:
        other = found(Kind.IDLE, names="k", thread="0.1") | found(Kind.IDLE, names="l", thread="2.2")
        return update_alerts(alerts, found(*[Kind.IDLE] * trials) | other, {}, NOW)

    later = both(5, both(4))
    assert [(alert.thread, len(alert.items)) for alert in later] == [("0.1", 1), ("1.1", 5), ("2.2", 1)]


def test_pods_outside_sweeps_share_a_group_alert_only_with_those_of_their_team() -> None:
    """Members of the alert's team can snooze it: two teams can have one channel."""

    def pods(team: str, number: int) -> dict[str, Assessment]:
        some = (a_pod(QUIET, sweep="", trial="", pod=f"{team}-{n}", team=team) for n in range(number))
        known = {"kind": Kind.IDLE, "thresholds": IdleThresholds(), "channel": "C1"}
        return {key: Assessment(allocation=each, **known) for key, each in allocations(some).items()}  # type: ignore[arg-type]

    alerts = update_alerts((), pods("speech", 4) | pods("vision", 4), {}, NOW)
    later = update_alerts(alerts, pods("speech", 5) | pods("vision", 6) | pods("audio", 1), {}, NOW)
    assert [(alert.team, len(alert.items)) for alert in later] == [("speech", 5), ("vision", 6), ("audio", 1)]


def test_sweeps_never_share_a_group_alert() -> None:
    other = found(*[Kind.IDLE] * 4, names="klmn", thread="2.2")
    alerts = update_alerts((), found(*[Kind.IDLE] * 4) | other, {}, NOW)
    assert sorted(alert.thread for alert in alerts) == ["1.1", "2.2"]


def snoozed(hours: float, start: datetime = NOW) -> dict[str, Snooze]:
    return {"sweeps/lr-brave-otter-a": Snooze(until=start + timedelta(hours=hours), by="U1")}


def test_snoozed_allocation_is_not_due_until_the_snooze_expires() -> None:
    assert update_alerts((), found(Kind.IDLE), snoozed(4), NOW) == ()
    [alert] = update_alerts((), found(Kind.IDLE), snoozed(4), NOW + timedelta(hours=4))
    assert alert.open


def stoppable(*kinds: Kind, **changes: object) -> dict[str, Assessment]:
    """Trials that are stopped an hour after their warning."""
    hour = IdleThresholds(stop_minutes=60)
    return {
        key: replace(each, thresholds=hour, allocation=replace(each.allocation, **changes))  # type: ignore[arg-type]
        for key, each in found(*kinds).items()
    }


def test_trial_that_joins_a_warning_is_stopped_an_hour_after_the_post_that_names_it() -> None:
    four = [Kind.IDLE] * 4
    [(key, snooze)] = snoozed(9).items()
    late, second = {key.replace("-a", "-e"): snooze}, {key.replace("-a", "-b"): snooze}

    def stopped(alert: Alert, minutes: float, now: dict[str, Assessment], **snoozes: Snooze) -> str:
        return "".join(each.name[-1] for each in alert.to_stop(now, snoozes, NOW + minutes * MINUTE))

    def checked(alert: Alert, minutes: float, *kinds: Kind) -> Alert:
        [alert] = update_alerts([alert], stoppable(*kinds), {}, NOW + minutes * MINUTE)
        return alert

    [alert] = update_alerts((), stoppable(*four), {}, NOW)
    assert alert.to_stop(stoppable(*four), {}, NOW + 600 * MINUTE) == [], "it isn't posted yet"
    alert = replace(alert.after_post("1.1", NOW), level=1, posted=NOW)
    alert = checked(checked(alert, 5, *four), 10, Kind.FINE, *four)
    assert not alert.due({}, NOW + 59 * MINUTE)
    assert alert.due({}, NOW + 60 * MINUTE)
    assert not alert.due(late, NOW + 60 * MINUTE)
    assert not replace(alert, last_post=NOW + MINUTE).due({}, NOW + 60 * MINUTE)
    now = stoppable(Kind.FINE, *four)
    assert [stopped(alert, minutes, now) for minutes in (59, 60)] == ["", "bcd"]
    assert stopped(alert, 60, stoppable(Kind.FINE, Kind.IDLE, Kind.UNKNOWN)) == "b"
    assert stopped(alert, 60, now, **second) == "cd"
    [woken] = update_alerts([alert], now, second, NOW + 20 * MINUTE)
    assert [stopped(woken, minutes, now) for minutes in (79, 80)] == ["cd", "bcd"], (
        "counted from the end of the snooze"
    )
    assert stopped(replace(alert, level=0), 60, now) == ""
    alert = alert.after_post("2.2", NOW + 60 * MINUTE)
    assert [item.joined for item in alert.items] == [False] * 5
    assert [stopped(alert, minutes, now) for minutes in (119, 120)] == ["bcd", "bcde"]
    again = checked(alert, 90, Kind.IDLE, *four)
    assert [item.joined for item in again.items] == [True, *[False] * 4], "it is idle again"


@pytest.mark.parametrize(
    ("kind", "changes"), [(Kind.PARTIAL, {}), (Kind.IDLE, {"what": "8 CPUs"}), (Kind.IDLE, {"sweep": ""})]
)
def test_only_idle_gpus_of_trials_are_stopped(kind: Kind, changes: dict[str, str]) -> None:
    [alert] = update_alerts((), stoppable(kind, **changes), {}, NOW)
    assert alert.items[0].stop_after == timedelta(0)
    [slices] = update_alerts((), stoppable(kind, allocated=1, **changes), {}, NOW)
    assert slices.items[0].gpus == 2, "as many as were measured"


def test_allocation_without_a_channel_has_no_alert() -> None:
    assert update_alerts((), found(Kind.IDLE, channel=""), {}, NOW) == ()


def test_alert_ids_are_unique() -> None:
    alerts = after(after((), 0, Kind.PARTIAL, Kind.IDLE), 10, Kind.IDLE, Kind.IDLE)
    assert len({alert.id for alert in alerts}) == 3
    assert {replace(alert, ts="1").id for alert in alerts} == {alert.id for alert in alerts}
