"""Who watches the GPUs: one worker looks at them and writes each hour's figures; every process may ask."""

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
    """What answers questions about GPU use, in any process: Prometheus where there is one."""
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
    """Under a lease; two at once would only do the same twice."""

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
        """Until cancelled; then another worker goes on."""
        while True:
            await lead(self._redis, "sweepbot:usage", LEASE, self._collect)

    async def _collect(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_on())
            group.create_task(self._write_on())
            group.create_task(self._watch_on())

    async def _look_on(self) -> None:
        """At whole multiples of the step, so that looks of two workers are of the same moment."""
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
        """Only asks for a turn, which any worker takes.

        Not before a look where Redis may have forgotten whose pods they are: a trial's pod would be taken for
        one that no sweep holds, and told to the wrong people.
        """
        if not self._scrapes:
            await self._tried(partial(self.look, self._now()))
        while True:
            await self._tried(partial(self._queue.add, ITEM))
            await asyncio.sleep(self._watch_each)

    async def look(self, at: datetime) -> None:
        """Scraping needs all that there is to see, Prometheus only whose pods they are."""
        if self._scrapes:
            await self._samples.keep(await self._looking.once(at, self._step))
        else:
            holders = await self._looking.holders()
            whose = {place: by_labels(holder.labels) for place, holder in holders.items()}
            await self._owners.remember(at, whose)

    async def write_hours(self) -> None:
        """Those that have ended and are not written, or not all measured, the latest first."""
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
        except Exception as error:  # sweeps go on without figures, whatever it is
            expected = isinstance(error, ApiError | UnreachableError | NoGpuDataError | RedisError)
            if str(error) != self._trouble:
                log.warning("GPU use is not known: %s", error, exc_info=not expected)
            self._trouble = str(error)
