"""Collect GPU use: one worker, under a lease, takes samples and writes each hour's figures, also of days
before the installation, and again if incomplete; all can query.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.metrics import GPU_FIGURES
from bot.core.plan import HOME_CLUSTER
from bot.core.work_item import WorkItem
from bot.measure.capacity.measure import INTERVAL, CapacityMeasurer
from bot.measure.gpus.hourly_store import HourlyStore, full_hour
from bot.measure.gpus.models import HOUR, ITEM, NoGpuDataError, Source
from bot.measure.gpus.pod_owners import OwnerStore, by_labels
from bot.measure.sources.dcgm_source import Sampler, SampleStore, ScrapeSource
from bot.measure.sources.prometheus import Prometheus
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.config.policy import Config, all_namespaces
from bot.platform.config.settings import Settings
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.leader import lead
from bot.platform.storage.work_queue import Queue
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.retry import Retry

log = logging.getLogger(__name__)

LEASE = 30.0  # seconds
SAMPLES_DELAY = timedelta(minutes=5)  # after its end; until then samples can be missing
WRITE_INTERVAL = 60.0  # seconds
ERROR_RETRY = Retry(base=600.0)  # of an hour that Prometheus doesn't answer
FIRST_RETRY = timedelta(hours=1)  # of an hour with missing samples; then after twice its age each time
BACKFILL = timedelta(days=8)  # a digest compares with a week; Prometheus keeps two by default
SAMPLES_BACKFILL = timedelta(hours=2)  # without Prometheus; stored samples reach 3 h back

NEVER = datetime.min.replace(tzinfo=UTC)

Now = Callable[[], datetime]
ReadConfig = Callable[[], Config]  # the current one


@asynccontextmanager
async def measuring(settings: Settings, config: ReadConfig, redis: Redis, now: Now) -> AsyncIterator[Source]:
    """Open the source of GPU data, for any process: Prometheus if it is configured, else samples in Redis."""
    if not settings.prometheus_url:
        yield ScrapeSource(SampleStore(redis), now)
        return
    token = settings.prometheus_token.get_secret_value() if settings.prometheus_token else ""
    prometheus = Prometheus(settings.prometheus_url, token, settings.prometheus_labels or "")
    owners = OwnerStore(redis, lambda: config().teams)
    try:
        yield PrometheusSource(prometheus, owners, now, settings.dcgm_scrape_seconds or 0)
    finally:
        await prometheus.close()


class UsageCollector:
    """Collects GPU use under a lease; a second collector would only duplicate work.

    Args:
        name: of the cluster. In others than the main cluster, samples are always scraped.
        namespaces: those of the sweeps in this cluster; by default those of the main cluster.
        others: returns the other clusters with trials, by name, whose free GPUs the main cluster's collector
            measures for `parallel=auto`.
        resync: returns what is queued with the GPU monitor, also after Redis lost its data.
    """

    def __init__(
        self,
        redis: Redis,
        cluster: KubernetesClient,
        source: Source,
        settings: Settings,
        config: ReadConfig,
        now: Now,
        others: Callable[[], Iterable[tuple[str, KubernetesClient]]] = tuple,
        *,
        resync: Callable[[], Iterable[WorkItem]] = tuple,
        name: str = HOME_CLUSTER,
        namespaces: Callable[[], tuple[str, ...]] | None = None,
    ) -> None:
        self._redis, self._source, self._now, self._name = redis, source, now, name
        self._owners = OwnerStore(redis, lambda: config().teams, name)
        self._hours, self._samples = HourlyStore(redis, name), SampleStore(redis, name)
        self._is_home = name == HOME_CLUSTER

        def of_home() -> tuple[str, ...]:
            return all_namespaces(settings.k8s_namespace, config())

        self._config = config

        def measurer(name: str, client: KubernetesClient) -> CapacityMeasurer:
            store, home = CapacityStore(redis, name), settings.k8s_namespace
            return CapacityMeasurer(client, store, home, config, now, name)

        self._capacity = measurer(HOME_CLUSTER, cluster)
        self._measurer, self._others, self._resync = measurer, others, resync
        self._sampler = Sampler(cluster, namespaces or of_home, self._owners)
        self._queue, self._monitor_interval = Queue(redis), settings.watch_seconds
        self._interval = settings.usage_seconds
        self._stores_samples = not (self._is_home and settings.prometheus_url)
        self._retry_at: dict[datetime, datetime] = {}  # by hour
        self._last_errors: dict[str, str] = {}  # by cluster
        self._latest = NEVER  # end of the latest stored hour

    async def run(self) -> None:
        """Run until cancelled; then another worker takes over."""
        while True:
            lease = "sweepbot:usage" if self._is_home else f"sweepbot:usage:{self._name}"
            await lead(self._redis, lease, LEASE, self._collect)

    async def _collect(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sampler.watch())
            group.create_task(self._sample_repeatedly())
            group.create_task(self._write_repeatedly())
            if self._is_home:
                group.create_task(self._queue_monitor())
                group.create_task(self._measure_repeatedly())

    async def _sample_repeatedly(self) -> None:
        """Sample at multiples of the interval, so that samples of two workers have equal times."""
        while True:
            now = self._now().timestamp()
            at = (now // self._interval + 1) * self._interval
            await asyncio.sleep(at - now)
            await self._attempt(partial(self.collect_once, datetime.fromtimestamp(at, UTC)))

    async def _write_repeatedly(self) -> None:
        while True:
            await self._attempt(self.write_hours)
            await asyncio.sleep(WRITE_INTERVAL)

    async def _measure_repeatedly(self) -> None:
        while True:
            await self.measure_capacity()
            await asyncio.sleep(INTERVAL)

    async def measure_capacity(self) -> None:
        """Measure free GPUs of all clusters for `parallel=auto`; at home from the pods that are watched."""
        others = ((name, self._measurer(name, client)) for name, client in self._others())
        away = (self._attempt(each.measure_listed, name) for name, each in others)
        await asyncio.gather(self._attempt(partial(self._capacity.measure, self._sampler.pods)), *away)

    async def _queue_monitor(self) -> None:
        """Queue the GPU monitor's item, which any worker handles.

        With Prometheus, owners are stored first: if Redis lost them, a trial's pod would look like one
        outside sweeps, and the wrong people would be warned.
        """
        if not self._stores_samples:
            await self._attempt(partial(self.collect_once, self._now()))
        while True:
            for item in (ITEM, *self._resync()):
                await self._attempt(partial(self._queue.add, item))
            await asyncio.sleep(self._monitor_interval)

    async def collect_once(self, at: datetime) -> None:
        """Store a sample of the cluster; with Prometheus, only the owners of pods."""
        if self._stores_samples:
            await self._samples.save(await self._sampler.sample(at, self._interval))
            if self._is_home:
                GPU_FIGURES.labels("samples").set(at.timestamp())
        else:
            holders = await self._sampler.holders()
            owners = {pod: by_labels(holder.labels) for pod, holder in holders.items()}
            await self._owners.save(at, owners)

    async def write_hours(self) -> None:
        """Measure and store past hours that are missing or incomplete, the latest first."""
        end = full_hour(self._now() - SAMPLES_DELAY)
        begin = end - (SAMPLES_BACKFILL if self._stores_samples else BACKFILL)
        self._retry_at = {hour: when for hour, when in self._retry_at.items() if hour >= begin}
        missing = await self._hours.incomplete(begin, end)
        past = (begin + n * HOUR for n in range((end - begin) // HOUR))
        self._report(hour for hour in past if hour not in missing)
        for hour in missing:
            if self._retry_at.get(hour, hour) <= self._now():
                try:
                    uses, capacity = await self._source.hour(hour)
                except NoGpuDataError:  # for example, this hour has too many samples: others go first
                    self._retry_at[hour] = self._now() + ERROR_RETRY.delay()
                    raise
                if capacity.coverage:
                    await self._hours.save(uses, capacity, self._elastic(), self._config().prices)
                    self._report([hour])
                age = self._now() - (hour + HOUR)
                self._retry_at[hour] = self._now() + max(age, FIRST_RETRY)

    def _elastic(self) -> tuple[ElasticDeployment, ...]:
        return self._config().elastic if self._is_home else ()

    def _report(self, hours: Iterable[datetime]) -> None:
        """Set the metric to the end of the latest of these stored hours, or of one reported before."""
        self._latest = max([self._latest, *(hour + HOUR for hour in hours)])
        if self._latest > NEVER and self._is_home:
            GPU_FIGURES.labels("hours").set(self._latest.timestamp())

    async def _attempt(self, work: Callable[[], Awaitable[None]], cluster: str = "") -> None:
        """Log an error of the work once. `cluster`: the one that it is about; "" for the collector's own."""
        cluster = cluster or self._name
        try:
            await work()
            self._last_errors.pop(cluster, None)
        except Exception as error:  # sweeps must not stop because figures fail
            expected = isinstance(error, ApiError | UnreachableError | NoGpuDataError | RedisError)
            if str(error) != self._last_errors.get(cluster):
                where = "" if cluster == HOME_CLUSTER else f" of cluster {cluster}"
                log.warning("can't collect GPU use%s: %s", where, error, exc_info=not expected)
            self._last_errors[cluster] = str(error)
