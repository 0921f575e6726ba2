"""Digests are queued once a day at their hour, whatever the time zone, and cover each day once."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HOUR
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.sweep.results.store import ResultsStore
from bot.watch.digests.post import item
from bot.watch.digests.schedule import GRACE, Schedule
from tests.bot.measure.gpus.factories import hour, use
from tests.bot.sweep.results.factories import a_result, some_results
from tests.bot.watch.digests.place import BERLIN, DAY, NOW, Place

pytestmark = pytest.mark.usefixtures("kept_hours", "drawn_once")


async def test_missed_days_are_in_the_next_digest(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY, DAY + timedelta(days=3))
    await here.run_until_done(item("C1", DAY))
    here.slack.errors = [NotInChannelError("not_in_channel")]
    here.now += timedelta(days=3)
    await here.run_until_done(item("C1", DAY + timedelta(days=2)))
    await here.run_until_done(item("C1", DAY + timedelta(days=3)))
    [(channel, note)] = here.slack.notes
    refused = ":warning: The GPU digest can't be posted in <#C1>"
    fix = "*Fix:* Unarchive the channel, or run `/invite @sweepbot` there."
    assert (channel, note) == ("CADMIN", f"{refused} (`not_in_channel`). {fix}")
    assert "Missed digest: Nov 22." in str(here.slack.posts[-1][1])
    assert len(here.slack.posts) == 2
    await here.run_until_done(item("C1", DAY))  # an old one that still lay somewhere
    assert len(here.slack.posts) == 2
    for error in (MessageRejectedError("invalid_arguments"), NotInChannelError("restricted_action")):
        here.slack.errors = [error]
        here.now += timedelta(days=1)
        await here.run_until_done(item("C1", here.now.date() - timedelta(days=1)))
        assert here.slack.notes[-1] == ("CADMIN", f"{refused} (`{error}`).")


async def test_unscheduled_channel_has_no_missed_days(redis: Redis) -> None:
    here = Place(redis, digest_schedules=())
    later = DAY + timedelta(days=2)
    await here.measured(DAY, later)
    await here.run_until_done(item("C1", DAY))
    here.now += timedelta(days=2)
    await here.run_until_done(item("C1", later))
    assert len(here.slack.posts) == 2
    assert "Missed digest" not in str(here.slack.posts)


async def test_run_at_midnight_waits_for_the_last_hour(redis: Redis) -> None:
    here = Place(redis)
    here.now = BERLIN.window(DAY)[1]
    assert await here.digests().run(item("C1", DAY).key) == timedelta(minutes=10)
    assert here.slack.posts == []
    await here.measured(DAY)
    await here.run_until_done(item("C1", DAY))
    assert len(here.slack.posts) == 1


async def test_digest_at_midnight_in_india_sums_the_day_that_it_prints(redis: Redis) -> None:
    """Ten GPUs are allocated. Figures are of UTC's hours: the last one ends half an hour after midnight."""
    kolkata = DigestSchedule(channel="C1", hour=0, timezone="Asia/Kolkata")
    here = Place(redis, digest_schedules=(kolkata,))
    here.now = datetime(2026, 11, 20, 18, 30, tzinfo=UTC)
    first = datetime(2026, 11, 19, 15, tzinfo=UTC)

    async def measure(hours: range) -> None:
        for at in (first + number * HOUR for number in hours):
            ten = use(at, "a", 10, 0, 10)
            await HourlyStore(redis).save([ten], hour(at, ten).capacity)

    await measure(range(27))  # until 23:30
    schedule = here.schedule()
    await schedule.refresh()
    assert await here.queued() == "digest: C1 2026-11-20"
    assert await here.digests().run(item("C1", DAY).key) == timedelta(minutes=40)
    here.now += timedelta(minutes=36)
    assert await here.digests().run(item("C1", DAY).key) == timedelta(minutes=4)
    await measure(range(27, 29))
    await here.run_until_done(item("C1", DAY))
    [(_, posted)] = here.slack.posts
    assert posted.text == "GPU digest, Fri, Nov 20: 240 of 240 allocated GPU-hours idle (100%)."
    assert "Nov 20 00:30–Nov 21 00:30 Asia/Kolkata, 100% measured." in str(posted.blocks)


async def test_three_replicas_post_one_digest_a_day(redis: Redis) -> None:
    """From before the end of summer time in both zones, all of them looking every two hours."""
    other = replace(BERLIN, channel="C2", hour=0, timezone="America/New_York")
    here = Place(redis, digest_schedules=(BERLIN, other))
    replicas = [here.schedule() for _ in range(3)]
    first = datetime(2026, 10, 23, tzinfo=UTC)  # which ends on October 25 and November 1
    for number in range(0, 11 * 24, 2):
        here.now = first + number * HOUR
        for one in replicas:
            await one.refresh()
        while lease := await here.queue.get(wait=0):
            await here.run_until_done(lease.item)
            await here.queue.done(lease)
    for channel in ("C1", "C2"):
        days = [message.text.partition(":")[0] for where, message in here.slack.posts if where == channel]
        assert (len(days), len(set(days))) == (11, 11)
    assert "Missed digest" not in str(here.slack.posts)


async def test_schedule_queues_at_the_hour_and_after_a_late_start(redis: Redis) -> None:
    here = Place(redis)
    schedule = here.schedule()
    here.now = datetime(2026, 11, 21, 7, 59, tzinfo=UTC)  # a minute to nine in Berlin
    await schedule.refresh()
    (job,) = schedule._clock.get_jobs()
    assert str(job.trigger) == "cron[hour='9', minute='0']"
    assert await here.queued() == ""
    here.now = NOW
    await job.func(*job.args)
    assert await here.queued() == "digest: C1 2026-11-20"
    here.now += GRACE - timedelta(minutes=1)
    await schedule.refresh()
    assert await here.queued() == "digest: C1 2026-11-20"
    here.now += timedelta(minutes=1)
    await schedule.refresh()
    assert await here.queued() == ""
    here.digest_schedules = ()
    await schedule.refresh()
    assert schedule._clock.get_jobs() == []


@pytest.mark.parametrize("hour", [21, 22, 23])
async def test_late_digest_of_the_evening_is_queued_after_midnight(redis: Redis, hour: int) -> None:
    """At the end of a month and a year, for the whole grace period and about the same day."""
    here = Place(redis, digest_schedules=(DigestSchedule(channel="C1", hour=hour),))
    schedule, due = here.schedule(), datetime(2026, 12, 31, hour, tzinfo=UTC)
    late = [
        timedelta(minutes=-1),
        *(number * HOUR for number in range(3)),
        GRACE - timedelta(minutes=1),
        GRACE,
    ]
    found = []
    for passed in late:
        here.now = due + passed
        await schedule.refresh()
        found.append(await here.queued())
    assert found == ["", *["digest: C1 2026-12-30"] * 4, ""]


async def test_schedule_stops_with_its_worker(redis: Redis, wait_until: Any) -> None:
    here = Place(redis)
    running = asyncio.create_task(Schedule(here.queue, here.known, lambda: here.now).run())
    await wait_until(here.queued, "the due digest is queued")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_weeks_page_is_posted_once_with_sundays_digest_where_it_is_wanted(redis: Redis) -> None:
    place = Place(redis, digest_schedules=(replace(BERLIN, weekly=True),))
    store = ResultsStore(place.cluster, "sweeps")  # type: ignore[arg-type]
    for name, value, day in (("lr-old", 0.5, 12), ("lr-new", 0.4, 20)):
        ended = datetime(2026, 11, day, tzinfo=UTC)
        await store.save(some_results(a_result(value=value), sweep=name, ended=ended))
    for each in (date(2026, 11, 21), date(2026, 11, 22)):
        place.now = datetime.combine(each, time(8), UTC) + timedelta(days=1)
        await place.measured(each)
        for _ in range(2):
            await place.digests().run(f"C1 {each}")
    [(channel, ts, text, broadcast)] = place.slack.pages
    assert (channel, ts, broadcast) == ("C1", "2.0", True)
    assert text.startswith("*Week of 2026-11-16*: 1 sweep by 1 person ended (1 finished)")
    assert "`val_loss` of `lr`: 0.5 → *0.4* (20.0%)" in text
