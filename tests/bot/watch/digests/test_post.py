"""Digests are posted once a day in spite of crashes, with the chart as soon as Slack shows it."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from aiohttp import ClientConnectorError
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HOUR, NodeUse, NoGpuDataError
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, SlackBusyError
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.results.store import ResultsStore
from bot.watch.digests import chart
from bot.watch.digests.figures import Figures
from bot.watch.digests.latest import LatestDigest, latest_digest
from bot.watch.digests.post import CHART_RETRY, CORRECTION_INTERVAL, CORRECTION_PERIOD, Digests, item
from bot.watch.digests.schedule import GRACE, Schedule
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import CONFIG, SETTINGS, a_sweep, no_reservations
from tests.bot.measure.gpus.factories import hour, lazy, use
from tests.bot.sweep.results.factories import a_result, some_results
from tests.bot.watch.digests.days import NODES
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, WorkerCrash

pytestmark = pytest.mark.usefixtures("kept_hours")

BERLIN = DigestSchedule(channel="C1", hour=9, timezone="Europe/Berlin")
DAY = date(2026, 11, 20)
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
CALLS = 14  # to Slack, the cluster, and the store in a run without a crash


PICTURES: dict[str, bytes] = {}  # by their figures


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw equal figures once: drawing takes more CPU time than all else of a run."""
    draw = chart.png

    async def png(figures: Figures) -> bytes:
        shown = str(figures)
        if shown not in PICTURES:
            PICTURES[shown] = await draw(figures)
        return PICTURES[shown]

    monkeypatch.setattr(chart, "png", png)


class FakeSlack:
    def __init__(self) -> None:
        self.posts: list[tuple[str, Any]] = []
        self.shared: list[str] = []
        self.pages: list[tuple[str, str, str, bool]] = []
        self.drawn: list[Any] = []
        self.notes: list[tuple[str, str]] = []
        self.errors: list[Exception] = []  # the next posts
        self.asked: list[str] = []  # for names
        self.lost: set[str] = set()  # channels whose messages have no permalink
        self.slow = 0  # edits until Slack has processed the file

    async def open_thread(self, channel: str, message: Any) -> str:
        if self.errors:
            raise self.errors.pop(0)
        self.posts.append((channel, message))
        return f"{len(self.posts)}.0"

    async def upload(
        self, channel: str, ts: str, text: str, name: str, content: Any, *, alt: str = ""
    ) -> str:
        self.shared.append(name)
        return f"F{len(self.shared)}"

    async def post(self, channel: str, message: Any) -> None:
        self.notes.append((channel, message.text))

    async def reply(self, channel: str, ts: str, message: Any, *, broadcast: bool = False) -> str:
        self.pages.append((channel, ts, message.text, broadcast))
        return "page"

    async def update(self, channel: str, ts: str, message: Any) -> None:
        self.slow -= 1
        if self.slow >= 0:
            raise MessageRejectedError("invalid_blocks")
        self.drawn.append(message)

    async def permalink(self, channel: str, ts: str) -> str:
        return "" if channel in self.lost else f"https://slack/{channel}/{ts}"

    async def display_names(self, people: Any) -> dict[str, str]:
        self.asked += sorted(people)
        return {each: "Ada" for each in people if each == "U1ADA"}


class NoSource:
    async def nodes(self) -> None:
        raise NoGpuDataError("no metrics")


class Nodes:
    async def nodes(self) -> tuple[NodeUse, ...]:
        return NODES


class Place:
    """State that all workers share; each run is another worker's."""

    def __init__(self, redis: Redis, clock: Clock | None = None, digest_schedules: Any = (BERLIN,)) -> None:
        self.redis, self.clock, self.now = redis, clock or Clock(None), NOW
        self.slack, self.cluster = FakeSlack(), DirectCluster(kubernetes.Store())
        self.cluster.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
        self.config = replace(CONFIG, admin_channel="CADMIN")
        self.digest_schedules, self.queue = digest_schedules, Queue(redis, prefix="digests")
        self.source: Any = NoSource()

    async def known(self) -> tuple[DigestSchedule, ...]:
        return tuple(self.digest_schedules)

    def digests(self) -> Digests:
        parts: dict[str, Any] = {"slack": self.slack, "cluster": self.cluster, "store": Store(self.redis)}
        clients: Any = type(
            "Clients", (), {name: CrashingProxy(part, self.clock) for name, part in parts.items()}
        )()
        clients.settings, clients.config, clients.now = SETTINGS, self.config, lambda: self.now
        return Digests(clients, self.redis, self.source, self.known, no_reservations)  # type: ignore[arg-type]

    async def measured(self, *days: date) -> None:
        for day in days:
            for each in lazy(*BERLIN.window(day)):
                await HourlyStore(self.redis).save(each.uses, each.capacity)

    def schedule(self) -> Schedule:
        """With a constant time."""
        made = Schedule(self.queue, self.known, lambda: self.now)
        made._clock.start(paused=True)
        return made

    async def queued(self) -> str:
        """Return the queued item; empty if there is none."""
        lease = await self.queue.get(wait=0)
        if lease:
            await self.queue.done(lease)
        return str(lease.item) if lease else ""

    async def run_until_done(self, item: WorkItem) -> None:
        """Run workers until one finishes; each that crashes or fails is followed by another."""
        for _ in range(20):
            try:
                again = await self.digests().run(item.key)
                if again is None or again > timedelta(minutes=1):
                    return
            except (WorkerCrash, SlackBusyError, SlackApiError, ClientConnectorError):
                continue
        pytest.fail("never finished")


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


UNREACHABLE: Any = ClientConnectorError(None, OSError("no route to host"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "why", [SlackBusyError(1), SlackApiError("", {"error": "internal_error"}), UNREACHABLE]
)
async def test_run_retries_what_slack_rejects_for_now(redis: Redis, why: Exception) -> None:
    here = Place(redis)
    await here.measured(DAY)
    here.slack.errors = [why] * 4
    await here.run_until_done(item("C1", DAY))
    assert len(here.slack.posts) == 1


async def test_missed_days_are_in_the_next_digest(redis: Redis) -> None:
    here = Place(redis)
    await here.measured(DAY, DAY + timedelta(days=3))
    await here.run_until_done(item("C1", DAY))
    here.slack.errors = [NotInChannelError("C1")]
    here.now += timedelta(days=3)
    await here.run_until_done(item("C1", DAY + timedelta(days=2)))
    await here.run_until_done(item("C1", DAY + timedelta(days=3)))
    [(channel, note)] = here.slack.notes
    assert (channel, "The GPU digest can't be posted in <#C1>. *Fix:* Run `/invite" in note) == (
        "CADMIN",
        True,
    )
    assert "Missed digest: Nov 22." in str(here.slack.posts[-1][1])
    assert len(here.slack.posts) == 2
    await here.run_until_done(item("C1", DAY))  # an old one that still lay somewhere
    assert len(here.slack.posts) == 2


async def test_unscheduled_channel_has_no_missed_days(redis: Redis) -> None:
    here = Place(redis, digest_schedules=())
    later = DAY + timedelta(days=5)
    await here.measured(DAY, later)
    await here.run_until_done(item("C1", DAY))
    here.now += timedelta(days=5)
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


async def measured_late(redis: Redis, clock: Clock | None = None, before: int = 23) -> Place:
    """Return a place with a digest of a day that wasn't fully measured, and is now."""
    here = Place(redis, clock)
    hours = lazy(*BERLIN.window(DAY))
    for each in hours[:before]:
        await HourlyStore(redis).save(each.uses, each.capacity)
    await here.run_until_done(item("C1", DAY))
    assert await here.digests().run(item("C1", DAY).key) == CORRECTION_INTERVAL
    assert not any("Corrected" in str(each) for each in here.slack.drawn)
    for each in hours[before:]:
        await HourlyStore(redis).save(each.uses, replace(each.capacity, observed=6.5))
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
        await HourlyStore(redis).save(each.uses, replace(each.capacity, observed=7.0))
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


async def test_three_replicas_post_one_digest_a_day(redis: Redis) -> None:
    """From before the end of summer time in both zones, all of them looking every hour."""
    other = replace(BERLIN, channel="C2", hour=0, timezone="America/New_York")
    here = Place(redis, digest_schedules=(BERLIN, other))
    replicas = [here.schedule() for _ in range(3)]
    first = datetime(2026, 10, 23, tzinfo=UTC)  # which ends on October 25 and November 1
    for number in range(11 * 24):
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
