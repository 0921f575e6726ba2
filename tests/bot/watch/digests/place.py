"""Where digests are posted in tests: the state that workers share, and what Slack accepted of them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from aiohttp import ClientConnectorError
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.work_item import WorkItem
from bot.measure.gpus.hour_format import encode
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import NodeUse, NoGpuDataError
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.slack.client import MessageRejectedError, SlackBusyError
from bot.platform.slack.message import File
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.watch.digests.post import Digests
from bot.watch.digests.schedule import Schedule
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import CONFIG, SETTINGS, no_reservations
from tests.bot.measure.gpus.factories import lazy
from tests.bot.watch.digests.days import NODES
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, WorkerCrash

BERLIN = DigestSchedule(channel="C1", hour=9, timezone="Europe/Berlin")
DAY = date(2026, 11, 20)
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


@cache
def stored(day: date) -> list[tuple[datetime, Any]]:
    """Return the hours of a day as they are stored."""
    hours = lazy(*BERLIN.window(day))
    return [(each.capacity.hour, encode(each.columns.rows(), each.capacity)) for each in hours]


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

    async def upload_files(self, channel: str, ts: str, text: str, files: Sequence[File]) -> list[str]:
        self.shared += [file.name for file in files]
        return [f"F{len(self.shared)}"]

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
            for hour, fields in stored(day):
                await HourlyStore(self.redis).put(hour, fields)

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
