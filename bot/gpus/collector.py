"""Collect GPU use: one worker, under a lease, takes samples and writes each hour's figures; all can query."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.config.policy import Config, all_namespaces
from bot.config.settings import Settings
from bot.gpus.dcgm_source import Looking, Samples, ScrapeSource
from bot.gpus.hourly_store import Hours, full_hour
from bot.gpus.models import HOUR, ITEM, NoGpuDataError, Source
from bot.gpus.pod_owners import Owners, by_labels
from bot.gpus.prometheus import Prometheus
from bot.gpus.prometheus_source import PrometheusSource
from bot.storage.leader import lead
from bot.storage.work_queue import Queue
from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)

LEASE = 30.0  # seconds
SETTLED = timedelta(minutes=5)  # after its end an hour's samples are all where they belong
HOURS_EACH = 60.0  # seconds between two looks for hours to write
LATE = timedelta(
    hours=1
)  # then it is asked for again what was not measured, and each time as long after as before
REFILL = timedelta(days=8)  # a digest compares with a week; Prometheus usually keeps two
FRESH_ONLY = timedelta(hours=2)  # what the samples of scraping reach back to

Now = Callable[[], datetime]


@asynccontextmanager
async def measuring(settings: Settings, config: Config, redis: Redis, now: Now) -> AsyncIterator[Source]:
    """Open the source of GPU data, for any process: Prometheus if it is configured, else samples in Redis."""
    if not settings.prometheus_url:
        yield ScrapeSource(Samples(redis), now)
        return
    token = settings.prometheus_token.get_secret_value() if settings.prometheus_token else ""
    prometheus = Prometheus(settings.prometheus_url, token)
    owners = Owners(redis, config.teams)
    try:
        yield PrometheusSource(prometheus, owners, now, settings.dcgm_scrape_seconds or 0)
    finally:
        await prometheus.close()


class UsageCollector:
    """Collects under a lease; two collectors at once would only duplicate work."""

    def __init__(
        self,
        redis: Redis,
        cluster: KubernetesClient,
        source: Source,
        settings: Settings,
        config: Config,
        now: Now,
    ) -> None:
        self._redis, self._source, self._now = redis, source, now
        self._owners, self._samples, self._hours = Owners(redis, config.teams), Samples(redis), Hours(redis)
        self._looking = Looking(cluster, all_namespaces(settings.k8s_namespace, config), self._owners)
        self._queue, self._watch_each = Queue(redis), settings.watch_seconds
        self._step, self._scrapes = settings.usage_seconds, not settings.prometheus_url
        self._again: dict[datetime, datetime] = {}  # when to ask for an hour once more
        self._trouble = ""

    async def run(self) -> None:
        """Run until cancelled; then another worker takes over."""
        while True:
            await lead(self._redis, "sweepbot:usage", LEASE, self._collect)

    async def _collect(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_on())
            group.create_task(self._write_on())
            group.create_task(self._watch_on())

    async def _look_on(self) -> None:
        """Sample at whole multiples of the step, so that samples of two workers have equal times."""
        while True:
            now = self._now().timestamp()
            at = (now // self._step + 1) * self._step
            await asyncio.sleep(at - now)
            await self._tried(partial(self.look, datetime.fromtimestamp(at, UTC)))

    async def _write_on(self) -> None:
        while True:
            await self._tried(self.write_hours)
            await asyncio.sleep(HOURS_EACH)

    async def _watch_on(self) -> None:
        """Queue the GPU monitor's item, which any worker handles.

        With Prometheus, owners are stored first: if Redis lost them, a trial's pod would look like one
        outside sweeps, and the wrong people would be warned.
        """
        if not self._scrapes:
            await self._tried(partial(self.look, self._now()))
        while True:
            await self._tried(partial(self._queue.add, ITEM))
            await asyncio.sleep(self._watch_each)

    async def look(self, at: datetime) -> None:
        """Store a whole sample; with Prometheus, only the owners of pods."""
        if self._scrapes:
            await self._samples.keep(await self._looking.once(at, self._step))
        else:
            holders = await self._looking.holders()
            whose = {place: by_labels(holder.labels) for place, holder in holders.items()}
            await self._owners.remember(at, whose)

    async def write_hours(self) -> None:
        """Write past hours that are missing or not fully measured, the latest first."""
        end = full_hour(self._now() - SETTLED)
        begin = end - (FRESH_ONLY if self._scrapes else REFILL)
        self._again = {hour: when for hour, when in self._again.items() if hour >= begin}
        for hour in await self._hours.incomplete(begin, end):
            if self._again.get(hour, hour) <= self._now():
                uses, capacity = await self._source.hour(hour)
                if capacity.coverage:
                    await self._hours.keep(uses, capacity)
                age = self._now() - (hour + HOUR)
                self._again[hour] = self._now() + max(age, LATE)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self._trouble = ""
        except Exception as error:  # sweeps must run on without figures
            expected = isinstance(error, ApiError | UnreachableError | NoGpuDataError | RedisError)
            if str(error) != self._trouble:
                log.warning("can't collect GPU use: %s", error, exc_info=not expected)
            self._trouble = str(error)
