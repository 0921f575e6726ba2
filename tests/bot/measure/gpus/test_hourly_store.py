"""Hourly figures: stored as a whole, with their sums, for 40 days."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.measure.gpus import hourly_store
from bot.measure.gpus.hourly_store import RETENTION, HourlyStore
from bot.measure.gpus.models import HOUR, HourCapacity, HourUse, UseColumns
from bot.measure.gpus.sums import Totals, UsageSum, grouped
from bot.platform.config.teams import Price
from tests.bot.measure.gpus.factories import hour_of

NOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)


def use(hour=NOON, **changes):
    known = {"hour": hour, "namespace": "vision", "pod": "a-1", "allocated": 2.0, "observed": 1.5}
    return HourUse(**{**known, "used": 0.5, "idle": 1.0, **changes})


def capacity(hour=NOON):
    return HourCapacity(hour=hour, capacity=8.0, allocated=2.0, unhealthy=1.0)


async def test_read_hour_equals_the_written_one_and_the_last_one_counts(redis, no_litter):
    hours = HourlyStore(redis)
    await hours.save([use(), use(pod="a-2")], capacity())
    await hours.save([], capacity(NOON + 2 * HOUR))
    assert await hours.between(NOON, NOON + 3 * HOUR) == (
        hour_of([use(), use(pod="a-2")], capacity()),
        hour_of([], capacity(NOON + 2 * HOUR)),
    )
    await hours.save([use(), use(pod="a-2")], capacity())
    await hours.save([use(used=0.75)], capacity())
    [hour] = await hours.between(NOON, NOON + HOUR)
    assert (*hour.columns.rows(),) == (use(used=0.75),)


async def test_totals_sum_pods_by_sweep_owner_and_model(redis):
    mine, other = {"sweep": "lr-brave-otter", "owner": "U1"}, {"sweep": "aug-calm-heron", "owner": "U1"}
    uses = [use(pod="t-1", **mine), use(pod="t-2", **mine, used=0.25), use(pod="t-3", **other), use()]
    hours = HourlyStore(redis)
    await hours.save([*uses, use(pod="a-2"), use(pod="a-3", model="A10")], capacity())
    await hours.save([use(NOON + HOUR, observed=3.0, **other)], replace(capacity(NOON + HOUR), coverage=0.5))
    found = await hours.totals(NOON, NOON + 2 * HOUR)
    assert found.coverage == 1.5
    assert found.uses == (
        UsageSum("vision", "", "U1", "lr-brave-otter", "", 4.0, 0.75, 2.0, 1.0),
        UsageSum("vision", "", "U1", "aug-calm-heron", "", 4.0, 1.0, 2.0, 0.5),  # more was observed than held
        UsageSum("vision", "", "", "", "", 4.0, 1.0, 2.0, 1.0),
        UsageSum("vision", "", "", "", "A10", 2.0, 0.5, 1.0, 0.5),
    )
    pods = UseColumns.joined(each.columns for each in await hours.between(NOON, NOON + 2 * HOUR))
    assert Totals.of(pods) == replace(found, coverage=0.0)


async def test_hour_keeps_its_prices_when_they_change(redis):
    hours, sweep = HourlyStore(redis), {"sweep": "lr-brave-otter"}
    uses = [use(model="H100", team="vision", **sweep), use(model="H100", pod="b"), use(model="A10", pod="c")]
    before = Price(model="H100", hourly=2.5), Price(model="H100", hourly=1.8, team="vision")
    await hours.save(uses, capacity(), (), before)
    after = (
        Price(model="H100", hourly=4),
        Price(model="H100", hourly=2, team="vision"),
        Price(model="A10", hourly=1),
    )
    await hours.save(
        [use(NOON + HOUR, **sweep, model="H100", team="vision")], capacity(NOON + HOUR), (), after
    )
    await hours.save([each._replace(observed=1.6) for each in uses], capacity(), (), after)  # late samples
    [hour, _] = await hours.between(NOON, NOON + 2 * HOUR)
    assert [(each.price, each.observed) for each in hour.columns.rows()] == [(1.8, 1.6), (2.5, 1.6), (1, 1.6)]
    assert [each.price for each in await hours.of_sweep("lr-brave-otter", NOON, NOON + 2 * HOUR)] == [1.8, 2]
    found = await hours.totals(NOON, NOON + 2 * HOUR)
    cheap = (Price(model=".*", hourly=0.1),)
    assert grouped(found.uses, cheap, lambda _: "")[""].cost == pytest.approx(2 * (1.8 + 2.5 + 1 + 2))
    await redis.hdel(f"usage:main:hour:{NOON:%Y-%m-%dT%H}", "prices")  # by an older version
    found = await hours.totals(NOON, NOON + 2 * HOUR)
    assert grouped(found.uses, cheap, lambda _: "")[""].cost == pytest.approx(2 * (3 * 0.1 + 2))


async def test_pods_of_a_sweep_are_found_from_the_hour_it_started_in(redis):
    hours, mine = HourlyStore(redis), {"sweep": "lr-brave-otter"}
    for number in range(4):
        at = NOON + number * HOUR
        await hours.save([use(at, pod=f"t-{number}", **mine), use(at, sweep="other")], capacity(at))
    found = await hours.of_sweep("lr-brave-otter", NOON + 1.5 * HOUR, NOON + 2.5 * HOUR)
    assert [each.pod for each in found] == ["t-1", "t-2"]


async def test_hours_of_a_newer_version_are_left_out(redis):
    await HourlyStore(redis).save([use()], capacity())
    [key] = await redis.keys("usage:*:hour:*")
    await redis.hset(key, "version", "3")
    assert await HourlyStore(redis).between(NOON, NOON + HOUR) == ()
    assert await HourlyStore(redis).totals(NOON, NOON + HOUR) == Totals()


async def test_ram_peaks_of_a_sweep_are_its_highest(redis):
    hours = HourlyStore(redis)
    for hour, peaks in ((NOON, (3e9, None, 5e9)), (NOON + HOUR, (4e9,))):
        uses = [use(pod=f"t-{n}", sweep="lr-brave-otter", ram_peak=peak) for n, peak in enumerate(peaks)]
        await hours.save([*uses, use(pod="a-1", ram_peak=9e9)], capacity(hour))
    wanted = ["vision/lr-brave-otter", "vision//none"]
    assert await hours.ram_peaks(NOON, NOON + 2 * HOUR, wanted) == dict(zip(wanted, (5e9, 0.0), strict=True))


async def test_hours_are_encoded_and_decoded_off_the_event_loop(redis, monkeypatch):
    threads = set()

    def traced(function):
        def call(*arguments):
            threads.add(threading.current_thread())
            return function(*arguments)

        return call

    for name in ("encode", "decode", "add_sums", "raise_peaks"):
        monkeypatch.setattr(hourly_store, name, traced(getattr(hourly_store, name)))
    hours = HourlyStore(redis)
    await hours.save([use()], capacity())
    await hours.between(NOON, NOON + HOUR)
    await hours.totals(NOON, NOON + HOUR)
    await hours.ram_peaks(NOON, NOON + HOUR, ["vision//a-1"])
    assert threads
    assert threading.main_thread() not in threads


async def test_read_month_is_chunked(redis, monkeypatch):
    """Reading all hours of a month at once would take hundreds of megabytes."""
    hours, read = HourlyStore(redis), []
    fields = hours._fields
    monkeypatch.setattr(hours, "_fields", lambda part, names: read.append(len(part)) or fields(part, names))
    await hours.totals(NOON - timedelta(days=30), NOON)
    assert read == [24] * 30


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((1, 2), (0.5, 2), False),
        ((0.5, 2), (1, 1), True),
        ((1, 2), (1, 1.5), False),
        ((1, 1.5), (1, 2), True),
        ((1, 2), (0.995, 2), True),  # equal coverage: the newer data counts
        ((1, None), (1, 0.5), True),
    ],
)
async def test_write_of_an_hour_with_less_coverage_is_ignored(redis, before, after, kept):
    hours = HourlyStore(redis)
    for number, (coverage, observed) in enumerate((before, after)):
        known = replace(capacity(), coverage=coverage, observed=observed)
        await hours.save([use(pod=f"a-{number}")], known)
    [hour] = await hours.between(NOON, NOON + HOUR)
    assert (*hour.columns.rows(),) == (use(pod=f"a-{int(kept)}"),)


async def test_hours_with_unmeasured_parts_are_incomplete(redis):
    hours = HourlyStore(redis)
    for number, (coverage, observed) in enumerate(((1, 2), (0.9, 2), (1, 1.9), (1, None), (0.995, 1.99))):
        await hours.save([], replace(capacity(NOON + number * HOUR), coverage=coverage, observed=observed))
    found = await hours.incomplete(NOON - HOUR, NOON + 5 * HOUR)
    assert [(hour - NOON) / HOUR for hour in found] == [3, 2, 1, -1]


async def test_missing_hours_are_listed_newest_first(redis):
    hours = HourlyStore(redis)
    await hours.save([], replace(capacity(NOON + HOUR), observed=2.0))
    assert await hours.incomplete(NOON, NOON + 3 * HOUR) == (NOON + 2 * HOUR, NOON)
    assert await hours.incomplete(NOON, NOON) == ()


async def test_missing_includes_an_hour_once_it_is_over(redis):
    assert await HourlyStore(redis).incomplete(NOON, NOON + timedelta(minutes=61)) == (NOON + HOUR, NOON)


async def test_days_in_a_half_hour_time_zone_share_no_hour(redis):
    begin, day = NOON + timedelta(minutes=30), timedelta(days=1)
    hours = HourlyStore(redis)
    today, tomorrow = [await hours.incomplete(at, at + day) for at in (begin, begin + day)]
    assert [len(today), len(tomorrow)] == [24, 24]
    assert not {*today} & {*tomorrow}


async def test_forty_days_of_many_short_trials_fit_in_redis(redis):
    asked = {"gpus": 2, "cpu_requested": 8.0, "ram_requested": 2.0**35}
    trials = [
        use(
            pod=f"lr-brave-otter-{n:x}",
            owner=f"U{n % 50}",
            team="vision",
            cpu_mean=8 * n / 3001,
            ram_peak=2.0**34 + 4096 * 7919 * n,
            **asked,
        )
        for n in range(3000)
    ]
    await HourlyStore(redis).save(trials, capacity())
    [key] = await redis.keys("usage:*:hour:*")
    assert 40 * 24 * await redis.memory_usage(key, samples=0) < 150e6  # of 384 MB


async def test_clusters_do_not_share_hours(redis):
    await HourlyStore(redis).save([use()], capacity())
    assert await HourlyStore(redis, "other").between(NOON, NOON + HOUR) == ()
    [key] = await redis.keys("usage:*:hour:*")
    assert 0 < await redis.ttl(key) <= RETENTION.total_seconds() - 2 * 86400
