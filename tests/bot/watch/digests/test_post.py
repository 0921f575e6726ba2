"""Digests are posted once in spite of crashes, with the chart as soon as Slack shows it."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientConnectorError
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.record import Phase
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HOUR
from bot.platform.slack.client import SlackBusyError
from bot.platform.storage.sweeps import Store
from bot.watch.digests.latest import LatestDigest, latest_digest
from bot.watch.digests.post import CHART_RETRY, CORRECTION_INTERVAL, CORRECTION_PERIOD, item
from tests.bot.factories import a_sweep
from tests.bot.measure.gpus.factories import lazy
from tests.bot.watch.digests.place import BERLIN, DAY, FakeSlack, Nodes, Place
from tests.scenarios.sweep_in_memory import Clock, WorkerCrash

pytestmark = pytest.mark.usefixtures("kept_hours", "drawn_once")

CALLS = 14  # to Slack, the cluster, and the store in a run without a crash
UNREACHABLE: Any = ClientConnectorError(None, OSError("no route to host"))  # type: ignore[arg-type]


async def test_run_posts_message_chart_and_details(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    here.slack.slow, here.source = 2, Nodes()
    await here.run_until_done(item("C1", DAY))
    await here.run_until_done(item("C1", DAY))
    assert [channel for channel, _ in here.slack.posts] == ["C1"]
    assert here.slack.shared == ["gpus-2026-11-20.png", "gpus-2026-11-20.csv"]
    (drawn,) = here.slack.drawn
    assert {"type": "image", "slack_file": {"id": "F1"}}.items() <= drawn.blocks[2].items()
    found = await latest_digest(redis, "C1")
    headline, now, _ = here.slack.posts[0][1].text.partition(" 8 of 15 GPUs free now.")
    assert now, "the message says what is free; the Home tab, which shows the headline later, doesn't"
    assert found == LatestDigest(day=DAY, headline=headline, link="https://slack/C1/1.0")
    assert await latest_digest(redis, "C2") is None


@pytest.mark.parametrize(("days", "compared"), [(7, True), (8, False)])
async def test_run_compares_with_the_seven_days_before(redis: Redis, days: int, compared: bool) -> None:
    here = Place(redis)
    await here.measured(DAY - timedelta(days=days), DAY)
    await here.run_until_done(item("C1", DAY))
    [(_, message)] = here.slack.posts
    [table] = [block for block in message.blocks if block["type"] == "table"]
    assert {row[2]["text"].endswith(" (±0)") for row in table["rows"][1:]} == {compared}
    assert ("change from the 7-day average" in str(message.blocks)) == compared


async def test_names_are_requested_once(redis: Redis) -> None:
    here, key = Place(redis), item("C1", DAY).key
    await here.measured(DAY)
    here.slack.slow = 2
    digests = here.digests()
    while await digests.run(key) == CHART_RETRY.delay():
        pass
    assert here.slack.asked.count("U1ADA") == 1
    assert "(Ada)" in str(here.slack.drawn[0].blocks)


async def test_sweep_links_to_its_thread(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    await Store(redis).restore(a_sweep(Phase.RUNNING, permalink="https://slack/C1/1.1"))
    await here.run_until_done(item("C1", DAY))
    assert "<https://slack/C1/1.1|lr-brave-otter> (" in str(here.slack.posts[0][1].blocks)


async def test_sweep_with_a_deleted_thread_has_no_link(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    await Store(redis).restore(a_sweep(Phase.RUNNING))
    here.slack.lost = {a_sweep().requester.channel}
    await here.run_until_done(item("C1", DAY))
    shown = str(here.slack.posts[0][1].blocks)
    assert ("`lr-brave-otter` (" in shown, "<|" in shown) == (True, False)


async def test_chart_that_slack_rejects_stays_in_the_thread(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    here.slack.slow = 100
    await here.run_until_done(item("C1", DAY))
    assert (len(here.slack.posts), here.slack.shared[0], here.slack.drawn) == (1, "gpus-2026-11-20.png", [])


@pytest.mark.parametrize("crash_at", range(1, CALLS + 2))
async def test_run_after_a_crash_at_any_call_posts_at_most_twice(redis: Redis, crash_at: int) -> None:
    here = Place(redis, Clock(crash_at))
    await here.measured(DAY)
    await here.run_until_done(item("C1", DAY))
    assert (here.clock.crash_at is None) == (crash_at <= CALLS), "all calls were tested"
    assert len(here.slack.drawn) in {1, 2}
    files = [here.slack.shared.count(f"gpus-2026-11-20.{kind}") for kind in ("png", "csv")]
    posts = sorted([len(here.slack.posts), *files])
    assert posts in ([1, 1, 1], [1, 1, 2])  # at most one is repeated


async def test_run_never_posts_a_third_time(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)

    class Dying(FakeSlack):
        async def open_thread(self, channel: str, message: Any) -> str:
            await super().open_thread(channel, message)
            raise WorkerCrash

    here.slack = Dying()
    await here.run_until_done(item("C1", DAY))
    assert len(here.slack.posts) == 2


@pytest.mark.parametrize(
    "why", [SlackBusyError(1), SlackApiError("", {"error": "internal_error"}), UNREACHABLE]
)
async def test_run_retries_what_slack_rejects_for_now(redis: Redis, why: Exception) -> None:
    here = Place(redis)
    await here.measured(DAY)
    here.slack.errors = [why] * 4
    await here.run_until_done(item("C1", DAY))
    assert len(here.slack.posts) == 1


async def measured_late(redis: Redis, clock: Clock | None = None, before: int = 23) -> Place:
    """Return a place with a digest of a day that wasn't fully measured, and is now."""
    here = Place(redis, clock)
    hours = lazy(*BERLIN.window(DAY))
    for each in hours[:before]:
        await HourlyStore(redis).save(each.columns.rows(), each.capacity)
    await here.run_until_done(item("C1", DAY))
    assert await here.digests().run(item("C1", DAY).key) == CORRECTION_INTERVAL
    assert not any("Corrected" in str(each) for each in here.slack.drawn)
    for each in hours[before:]:
        await HourlyStore(redis).save(each.columns.rows(), replace(each.capacity, observed=6.5))
    here.now += HOUR
    return here


@pytest.mark.parametrize("before", [0, 23])
async def test_late_hours_correct_the_digest_by_an_edit(redis: Redis, before: int) -> None:
    here = await measured_late(redis, before=before)
    await here.run_until_done(item("C1", DAY))
    [(_, posted)] = here.slack.posts
    late = "no data; GPU metrics were unavailable." if before == 0 else "Nov 20: 69 of 161 allocated"
    assert late in posted.text
    last = here.slack.drawn[-1]
    assert last.text.startswith("GPU digest, Fri, Nov 20: 72 of 168 allocated GPU-hours idle")
    assert "Corrected <!date^1795251600^" in str(last.blocks)
    assert last.blocks[2]["slack_file"]["id"] == f"F{len(here.slack.shared) - 1}"
    assert here.slack.shared[-2:] == ["gpus-2026-11-20.png", "gpus-2026-11-20.csv"]
    found = await latest_digest(redis, "C1")
    assert found == LatestDigest(day=DAY, headline=last.text, link="https://slack/C1/1.0")
    edits = len(here.slack.drawn)
    for _ in range(3):
        assert await here.digests().run(item("C1", DAY).key) == CORRECTION_INTERVAL
    assert len(here.slack.drawn) == edits
    here.now += CORRECTION_PERIOD
    assert await here.digests().run(item("C1", DAY).key) is None


@pytest.mark.parametrize("crash_at", range(1, 9))
async def test_correction_after_a_crash_at_any_call_is_whole(redis: Redis, crash_at: int) -> None:
    clock = Clock(None)
    here = await measured_late(redis, clock)
    clock.crash_at = clock.calls + crash_at
    await here.run_until_done(item("C1", DAY))
    assert clock.crash_at is None
    assert len(here.slack.posts) == 1
    last = here.slack.drawn[-1]
    assert ("72 of 168" in last.text, "slack_file" in str(last.blocks), "Corrected" in str(last.blocks)) == (
        True,
        True,
        True,
    )


async def test_complete_day_is_not_checked_again(redis: Redis) -> None:
    here = Place(redis)
    for each in lazy(*BERLIN.window(DAY)):
        await HourlyStore(redis).save(each.columns.rows(), replace(each.capacity, observed=7.0))
    key = item("C1", DAY).key
    assert [await here.digests().run(key), await here.digests().run(key)] == [None, None]
    assert len(here.slack.drawn) == 1


async def test_run_after_redis_was_lost_posts_nothing_again(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    await here.run_until_done(item("C1", DAY))
    await redis.flushall()
    await here.run_until_done(item("C1", DAY))
    assert (len(here.slack.posts), len(here.slack.drawn)) == (1, 1)


async def test_two_concurrent_workers_post_one_digest(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY)
    await asyncio.gather(*(here.digests().run(item("C1", DAY).key) for _ in range(3)), return_exceptions=True)
    await here.run_until_done(item("C1", DAY))
    assert len(here.slack.posts) == 1
