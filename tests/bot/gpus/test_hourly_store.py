"""Hourly figures: written whole, found again, gone after forty days."""

import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.gpus.hourly_store import RETENTION, HourlyStore
from bot.gpus.models import HOUR, Hour, HourCapacity, HourUse

NOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)


def use(hour=NOON, **changes):
    known = {"hour": hour, "namespace": "vision", "pod": "a-1", "allocated": 2.0, "observed": 1.5}
    return HourUse(**{**known, "used": 0.5, "idle": 1.0, **changes})


def capacity(hour=NOON):
    return HourCapacity(hour=hour, capacity=8.0, allocated=2.0, unhealthy=1.0)


async def test_an_hour_is_found_as_it_was_written(redis, no_litter):
    hours = HourlyStore(redis)
    await hours.save([use(), use(pod="a-2")], capacity())
    await hours.save([], capacity(NOON + 2 * HOUR))
    assert await hours.between(NOON, NOON + 3 * HOUR) == (
        Hour(uses=(use(), use(pod="a-2")), capacity=capacity()),
        Hour(uses=(), capacity=capacity(NOON + 2 * HOUR)),
    )


async def test_the_pods_of_a_sweep_are_one_where_only_their_sum_matters(redis):
    mine, other = {"sweep": "lr-brave-otter", "owner": "U1"}, {"sweep": "aug-calm-heron", "owner": "U1"}
    uses = [use(pod="t-1", **mine), use(pod="t-2", **mine, used=0.25), use(pod="t-3", **other), use()]
    await HourlyStore(redis).save([*uses, use(pod="a-2")], capacity())
    [hour] = await HourlyStore(redis).between(NOON, NOON + HOUR, by_sweep=True)
    found = [
        (each.sweep, each.pod, each.allocated, each.observed, each.used, each.idle) for each in hour.uses
    ]
    assert found == [
        ("lr-brave-otter", "", 4, 3, 0.75, 2),
        ("aug-calm-heron", "t-3", 2, 1.5, 0.5, 1),
        ("", "a-1", 2, 1.5, 0.5, 1),
        ("", "a-2", 2, 1.5, 0.5, 1),
    ]
    assert hour.capacity == capacity()


async def test_hours_that_an_older_version_wrote_are_read(redis):
    was = {"hour": "2026-11-20T08:00:00Z", "namespace": "vision", "pod": "a-1", "allocated": 2, "observed": 2}
    given = {"hour": "2026-11-20T08:00:00Z", "capacity": 8, "allocated": 2, "unhealthy": 1}
    fields = {"uses": zlib.compress(json.dumps([was | {"used": 1, "idle": 1}]).encode())}
    await redis.hset("usage:main:hour:2026-11-20T08", mapping=fields | {"capacity": json.dumps(given)})
    at = datetime(2026, 11, 20, 8, tzinfo=UTC)
    [hour] = await HourlyStore(redis).between(at, at + HOUR)
    [use] = hour.uses
    assert (use.gpus, use.unused, use.cpu_mean, use.ram_peak, hour.capacity.waiting) == (0, 0, None, None, 0)


async def test_the_peak_of_a_sweep_is_its_highest(redis):
    uses = [use(pod=f"t-{peak}", sweep="lr-brave-otter", ram_peak=peak) for peak in (3.0, None, 5.0)]
    await HourlyStore(redis).save(uses, capacity())
    [hour] = await HourlyStore(redis).between(NOON, NOON + HOUR, by_sweep=True)
    assert [each.ram_peak for each in hour.uses] == [5.0]


async def test_writing_it_again_leaves_nothing_of_before(redis):
    hours = HourlyStore(redis)
    await hours.save([use(), use(pod="a-2")], capacity())
    await hours.save([use(used=0.75)], capacity())
    [hour] = await hours.between(NOON, NOON + HOUR)
    assert hour.uses == (use(used=0.75),)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((1, 2), (0.5, 2), False),
        ((0.5, 2), (1, 1), True),
        ((1, 2), (1, 1.5), False),
        ((1, 1.5), (1, 2), True),
        ((1, 2), (0.995, 2), True),  # as well known: what else is new counts
        ((1, None), (1, 0.5), True),
    ],
)
async def test_an_hour_that_is_known_worse_replaces_nothing(redis, before, after, kept):
    hours = HourlyStore(redis)
    for number, (coverage, observed) in enumerate((before, after)):
        known = replace(capacity(), coverage=coverage, observed=observed)
        await hours.save([use(pod=f"a-{number}")], known)
    [hour] = await hours.between(NOON, NOON + HOUR)
    assert hour.uses == (use(pod=f"a-{int(kept)}"),)


async def test_hours_with_something_unmeasured_are_incomplete(redis):
    hours = HourlyStore(redis)
    for number, (coverage, observed) in enumerate(((1, 2), (0.9, 2), (1, 1.9), (1, None), (0.995, 1.99))):
        await hours.save([], replace(capacity(NOON + number * HOUR), coverage=coverage, observed=observed))
    found = await hours.incomplete(NOON - HOUR, NOON + 5 * HOUR)
    assert [(hour - NOON) / HOUR for hour in found] == [3, 2, 1, -1]


async def test_missing_hours_are_named_the_latest_first(redis):
    hours = HourlyStore(redis)
    await hours.save([], capacity(NOON + HOUR))
    assert await hours.missing(NOON, NOON + 3 * HOUR) == (NOON + 2 * HOUR, NOON)
    assert await hours.missing(NOON, NOON) == ()


async def test_the_last_hour_counts_from_its_first_minute(redis):
    assert await HourlyStore(redis).missing(NOON, NOON + timedelta(minutes=61)) == (NOON + HOUR, NOON)


async def test_days_that_begin_at_half_past_share_no_hour(redis):
    begin, day = NOON + timedelta(minutes=30), timedelta(days=1)
    hours = HourlyStore(redis)
    today, tomorrow = [await hours.missing(at, at + day) for at in (begin, begin + day)]
    assert [len(today), len(tomorrow)] == [24, 24]
    assert not {*today} & {*tomorrow}


async def test_forty_days_of_many_short_trials_leave_redis_room(redis):
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
    [key] = await redis.keys()
    assert 40 * 24 * await redis.memory_usage(key, samples=0) < 150e6  # of 384 MB


async def test_clusters_and_forty_days_keep_hours_apart(redis):
    await HourlyStore(redis).save([use()], capacity())
    assert await HourlyStore(redis, "other").between(NOON, NOON + HOUR) == ()
    [key] = await redis.keys()
    assert 0 < await redis.ttl(key) <= RETENTION.total_seconds() - 2 * 86400
