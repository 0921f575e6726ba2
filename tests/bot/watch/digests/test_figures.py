"""A day's figures."""

from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from bot.measure.gpus.models import HOUR
from bot.measure.gpus.sums import Totals
from bot.platform.config.digest_times import DigestSchedule
from bot.watch.digests.figures import figures
from tests.bot.measure.gpus.factories import hour, lazy, totals, use
from tests.bot.watch.digests.days import BERLIN, DAY, PRICES, of
from tests.cases import cases


def test_figures_of_a_day_add_up() -> None:
    found = of()
    total = found.total
    assert (total.allocated, total.used, total.idle, total.unknown) == pytest.approx((168, 67.2, 72, 12))
    assert total.pauses == pytest.approx(168 - 67.2 - 72 - 12)
    assert (found.capacity, found.free, found.unhealthy, found.waited) == (360, 192, 24, 48)
    assert (total.cost, total.wasted, total.unpriced) == (360, 180, {"NVIDIA A10"})
    assert [(row.name, row.sums.idle, row.usual) for row in found.rows] == [
        ("vision", 72, 72),
        ("speech", 0, 0),
        ("", 0, 0),
    ]
    (worst,) = found.most_idle
    assert (worst.name, worst.gpus, worst.sums.idle) == ("lr-brave-otter", 4, 72)
    assert sum(
        step.used + step.pauses + step.idle + step.unknown + step.free + step.unhealthy
        for step in found.steps
    ) == (pytest.approx(found.capacity + found.unhealthy))


@pytest.mark.parametrize(
    ("day", "hours", "sums"),
    [
        (date(2026, 3, 29), 23, 161),  # at two the clock goes to three
        (date(2026, 10, 25), 25, 175),  # at three it goes back to two
        (DAY, 24, 168),
    ],
)
def test_figures_cover_days_of_23_and_25_hours(day: date, hours: int, sums: float) -> None:
    found = of(day=day)
    assert (len(found.steps), found.coverage, found.total.allocated) == (hours, 1, sums)
    assert (found.steps[0].hour.hour, found.steps[-1].hour.hour) == (0, 23)


@pytest.mark.parametrize(
    ("timezone", "day", "begin", "hours"),
    [
        ("Asia/Kolkata", DAY, "2026-11-20T00:30+05:30", 24),
        ("Asia/Kathmandu", DAY, "2026-11-20T00:45+05:45", 24),
        ("America/St_Johns", DAY, "2026-11-20T00:30-03:30", 24),
        ("Europe/Berlin", DAY, "2026-11-20T00:00+01:00", 24),
        ("Australia/Lord_Howe", date(2026, 4, 5), "2026-04-05T00:00+11:00", 25),  # half an hour back
        ("Australia/Lord_Howe", date(2026, 4, 6), "2026-04-06T00:30+10:30", 24),
    ],
)
def test_window_is_of_full_hours_of_utc(timezone: str, day: date, begin: str, hours: int) -> None:
    first, end = DigestSchedule(channel="C1", timezone=timezone).window(day)
    assert (first, end - first) == (datetime.fromisoformat(begin), hours * HOUR)


BEGIN, _ = BERLIN.window(DAY)


def day(*uses, prices=PRICES, week=(), **capacity):
    """Return the figures of a day with one measured hour."""
    return figures(BERLIN, DAY, [hour(BEGIN, *uses, **capacity)], totals(week), prices)


def test_coverage_counts_only_measured_hours() -> None:
    half = figures(BERLIN, DAY, lazy(BEGIN, BEGIN + 12 * HOUR), Totals(), PRICES)
    assert half.coverage == 0.5
    assert figures(BERLIN, DAY, [hour(BEGIN, coverage=0.6)], Totals(), PRICES).coverage == 0.6 / 24
    none = figures(BERLIN, DAY, (), Totals(), PRICES)
    assert (none.coverage, none.waiting, none.wanted, none.longest, none.quiet) == (0, 0, 0, 0, True)


def test_figures_sum_hours_and_take_the_peaks_of_the_queue() -> None:
    queues = ((1.0, 2, 16, 0.5), (2.0, 5, 8, 3.5), (0.0, 1, 4, 0.0))
    keys = ("waited", "waiting", "wanted", "longest")
    hours = [hour(BEGIN + n * HOUR, **dict(zip(keys, queue, strict=True))) for n, queue in enumerate(queues)]
    found = figures(BERLIN, DAY, hours, Totals(), PRICES)
    assert (found.waited, found.waiting, found.wanted, found.longest) == (3, 5, 16, 3.5)


@pytest.mark.parametrize(
    ("use_", "capacity", "quiet"),
    [
        ({"held": 4, "idle": 1.0}, {}, False),
        ({"held": 4, "idle": 0.9}, {}, True),
        ({"held": 4, "observed": 3.0}, {}, False),
        ({"held": 4}, {"unhealthy": 1.0}, False),
        ({"held": 4}, {"waited": 1.0}, False),
        ({"held": 4}, {"unhealthy": 0.9, "waited": 0.9}, True),
    ],
)
def test_quiet_day_has_nothing_notable(use_, capacity, quiet) -> None:
    assert day(use(BEGIN, "lr-1", **use_), **capacity).quiet is quiet


def test_low_use_in_short_bursts_is_reported_without_an_idle_half_hour() -> None:
    uses = (use(BEGIN, "a/bursts", 8, 0.4, team="a"), use(BEGIN, "b", 10, 9.8, team="b"))
    bursts = [hour(at, *uses) for at in _hours()]
    found = figures(BERLIN, DAY, bursts, Totals(), PRICES)
    assert not found.quiet
    assert (found.underused, found.total.pauses) == (pytest.approx(24 * 7.6), pytest.approx(24 * 7.8))
    [one] = found.most_idle
    assert (one.name, one.underused, one.sums.idle) == ("a/bursts", True, 0)
    assert [row.name for row in found.rows] == ["a", "b"]
    assert figures(BERLIN, DAY, bursts, Totals(), PRICES, low=0.05).quiet  # of 5%, and not below
    assert figures(BERLIN, DAY, bursts[:1], Totals(), PRICES).quiet  # 8 GPU-hours are too few


def _hours() -> list[datetime]:
    return [BEGIN + n * HOUR for n in range(24)]


def test_quiet_team_ignores_what_belongs_to_no_team() -> None:
    mine = use(BEGIN, "lr-1", 4, team="vision")
    others = use(BEGIN, "lr-2", 4, idle=4, team="speech")
    team = replace(BERLIN, team="vision")
    found = figures(team, DAY, [hour(BEGIN, mine, others, unhealthy=9.0, waited=9.0)], Totals(), PRICES)
    assert found.quiet
    assert tuple(found.uses.rows()) == (mine,)


def test_rows_compare_with_the_mean_of_the_measured_hours_before() -> None:
    """Two measured hours with 6 idle GPU-hours are 72 a day."""
    week = [hour(BEGIN - n * HOUR, use(BEGIN, "lr-1", 4, idle=3, team="vision")) for n in (1, 2)]
    uses = [
        use(BEGIN, "a", 4, idle=1, team="vision"),
        use(BEGIN, "b", 8, idle=2, team="speech"),
        use(BEGIN, "c", 2, idle=2, team="robots"),
        use(BEGIN, "d", 2, idle=2, team="audio"),
    ]
    rows = day(*uses, week=week).rows
    others = [hour(BEGIN - HOUR, use(BEGIN, "e", 4, idle=3, team="speech"))]
    assert [(row.name, row.usual) for row in rows] == [
        ("speech", 0),
        ("audio", 0),
        ("robots", 0),
        ("vision", 72),
    ]
    assert [row.usual for row in day(*uses).rows] == [None] * 4
    of_team = figures(replace(BERLIN, team="vision"), DAY, [hour(BEGIN, *uses)], totals(others), PRICES)
    assert [row.usual for row in of_team.rows] == [0], "without what the person left idle for another team"


def test_most_idle_lists_the_five_worst_with_an_idle_hour() -> None:
    idle = {"a": 3.0, "b": 1.0, "c": 0.9, "d": 2.0, "e": 3.0, "f": 1.5, "g": 1.1}
    uses = [use(BEGIN, f"vision/{pod}", 4, idle=hours) for pod, hours in idle.items()]
    assert [one.name for one in day(*uses).most_idle] == [f"vision/{pod}" for pod in "aedfg"]


def test_most_idle_pods_can_be_asked_about_unless_their_room_warns_of_them() -> None:
    uses = [use(BEGIN, pod, 1, idle=1.0, owner="U1ADA") for pod in ("envs/env-lab-0", "vision/notebook")]
    found = figures(BERLIN, DAY, [hour(BEGIN, *uses)], Totals(), PRICES, environments="envs").most_idle
    assert [(one.name, one.askable) for one in found] == [
        ("envs/env-lab-0", False),
        ("vision/notebook", True),
    ]


def test_most_idle_sums_a_sweep_and_counts_its_peak() -> None:
    later = BEGIN + HOUR
    known = {"sweep": "lr-brave-otter", "owner": "U1ADA", "team": "vision"}
    hours = [
        hour(BEGIN, *(use(BEGIN, f"lr-{n}", 2, idle=0.5, **known) for n in range(3))),
        hour(later, use(later, "lr-1", 2, idle=0.5, **known)),
    ]
    [one] = figures(BERLIN, DAY, hours, Totals(), PRICES).most_idle
    assert (one.name, one.sweep, one.owner, one.team) == ("lr-brave-otter", *known.values())
    assert (one.gpus, one.sums.idle, one.sums.wasted) == (6, 2, 5)
    [brief] = day(use(BEGIN, "lr-1", 0.3, idle=1.0)).most_idle
    assert brief.gpus == 1


def partly(*pods):
    """Return `partly` of a sweep; each pod is a list of (GPUs, unused GPUs, measured share) by hour."""
    hours = []
    for number in range(max(map(len, pods))):
        at = BEGIN + number * HOUR
        uses = [
            use(at, f"lr-{n}", 4, idle=4, sweep="s", gpus=gpus, unused=unused, observed=share * gpus)
            for n, pod in enumerate(pods)
            for gpus, unused, share in pod[number : number + 1]
        ]
        hours.append(hour(at, *uses))
    [one] = figures(BERLIN, DAY, hours, Totals(), PRICES).most_idle
    return one.partly


@cases(
    ("pods", "kind"),
    [
        ([[(4, 3, 1.0), (4, 2, 1.0)]], (2, 4, 1)),
        ([[(4, 1, 1.0)]], (1, 4, 1)),
        ([[(4, 3, 1.0)]], (3, 4, 1)),
        ([[(4, 4, 1.0)]], None),
        ([[(4, 0, 1.0)]], None),
        ([[(4, 2, 1.0), (4, 0, 0.7)]], (2, 4, 1)),
        ([[(4, 2, 0.8)]], (2, 4, 1)),
        ([[(4, 2, 0.7)]], None),
        ([[(0, 0, 1.0)]], None),
        ([[(8, 1, 1.0)], [(4, 2, 1.0)], [(4, 2, 1.0)]], (2, 4, 2)),
        ([[(2, 1, 1.0), (4, 2, 1.0)]], (1, 4, 1)),
    ],
)
def test_partly_is_the_most_frequent_kind_of_pod(pods, kind) -> None:
    assert partly(*pods) == kind


HELD = "sweepbot-reserved-vision-1a2b3-0"


def test_unused_reservations_are_apart_from_allocated_hours() -> None:
    """A placeholder is idle on purpose: neither allocated, nor underused, nor someone's."""
    hours = [hour(at, use(at, "a", 2, 1.9, owner="U1"), use(at, HELD, 1, team="vision")) for at in _hours()]
    found = figures(BERLIN, DAY, hours, Totals(), PRICES)
    assert (found.total.allocated, found.unused, found.most_idle, found.quiet) == (48, 24, (), False)
    assert [(row.name, row.sums.allocated) for row in found.people] == [("U1", 48)]
    assert [row.name for row in found.rows] == [""]
    assert {team: (each.allocated, each.cost) for team, each in found.reserved.items()} == {
        "vision": (24, 60)
    }
    step = found.steps[0]
    assert (step.used, step.pauses, step.reserved, step.free) == (1.9, pytest.approx(0.1), 1, 13)
    assert len(found.uses.pod) == 48  # the CSV has every pod


def test_pods_of_one_name_in_two_clusters_are_two_of_the_most_idle() -> None:
    uses = [
        use(BEGIN, "vision/nb-0", 4, idle=idle, cluster=name) for name, idle in (("main", 2), ("west", 3))
    ]
    assert [(one.name, one.gpus, one.sums.idle) for one in day(*uses).most_idle] == [
        ("west/vision/nb-0", 4, 3),
        ("vision/nb-0", 4, 2),
    ]


def test_steps_split_each_hour_into_its_parts() -> None:
    uses = use(BEGIN, "a", 6, used=2, idle=1, observed=5), use(BEGIN, "b", 2, used=1)
    [step] = day(*uses, unhealthy=1.0).steps
    parts = (step.used, step.pauses, step.idle, step.unknown, step.free, step.unhealthy, step.capacity)
    assert parts == (3, 3, 1, 1, 8, 1, 16)
    assert (step.hour.hour, step.hour.utcoffset()) == (0, timedelta(hours=1))
    [over] = day(use(BEGIN, "a", 1, used=1.2)).steps
    assert over.pauses == 0


def test_figures_price_each_model_once() -> None:
    uses = [use(BEGIN, "a", 1), use(BEGIN, "b", 1), use(BEGIN, "c", 1, model="NVIDIA A10")]
    found = day(*uses)
    assert (found.prices, found.total.cost) == ({"NVIDIA H100 80GB HBM3": (2.5, 2.5)}, 5)
    assert found.total.unpriced == {"NVIDIA A10"}


def test_figures_of_a_team_list_its_people() -> None:
    uses = [use(BEGIN, "a", 2, team="vision", owner=who) for who in ("U1ADA", "U2GRACE")]
    hours = [hour(BEGIN, *uses, use(BEGIN, "b", 1, team="speech", owner="U3"))]
    team = figures(replace(BERLIN, team="vision"), DAY, hours, Totals(), PRICES)
    everyone = figures(BERLIN, DAY, hours, Totals(), PRICES)
    assert [row.name for row in team.rows] == ["U1ADA", "U2GRACE"]
    assert [row.name for row in everyone.rows] == ["vision", "speech"]
    assert [row.name for row in everyone.people] == ["U1ADA", "U2GRACE", "U3"]
    assert (team.total.allocated, everyone.total.allocated) == (4, 5)
