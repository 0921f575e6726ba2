"""Compose and run the processes: serve, work, and all.

SIGTERM stops a process in this order: /readyz fails; the resync lease and the Slack socket are released; no
work item is taken; running ones have SHUTDOWN_GRACE seconds to finish, then other workers get them; the
HTTP server stops last.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.builds import image_gc
from bot.builds.image_gc import ImageGc
from bot.channels.store import SetupReader, SetupWriter
from bot.clients import Clients
from bot.config.digest_times import DigestSchedule
from bot.config.policy import Config, all_namespaces
from bot.config.settings import Settings
from bot.core.errors import UserError
from bot.core.masking import Mask
from bot.core.work_item import ItemKind, WorkItem
from bot.digests import post
from bot.digests.post import Digests, ReadSchedules
from bot.digests.schedule import Schedule
from bot.doctor import examination
from bot.gpus.collector import UsageCollector, measuring
from bot.gpus.models import Source
from bot.gpus.snapshot_store import SnapshotStore
from bot.home.gpu_query_job import GpuQueryJob
from bot.idle.monitor import IdleMonitor
from bot.idle.store import AlertStore
from bot.launch import drafts, preview_job
from bot.registry.client import Registry
from bot.repos.catalog import Catalog
from bot.repos.git import Git, logins
from bot.results.mlflow import MlflowExperiments
from bot.runtime.probes import Probes
from bot.slack.client import Slack, client, error_code
from bot.slack.rate_limit import RateLimiter
from bot.storage.redis_client import connect
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.sweeps import reconciler, retention
from bot.sweeps.informer import SweepInformer
from bot.sweeps.receipts import Receipts
from bot.sweeps.retention import SweepGc
from bot.worker import Handler, Worker, keyed
from handlers.app import build
from handlers.context import HandlerContext
from handlers.http_server import Http, SlackCalls, served
from handlers.socket_mode import FINISH, Socket
from k8s.client import KubernetesClient

log = logging.getLogger(__name__)

CLEANUP_TIMEOUT = 5.0  # seconds to release leases and connections, after the grace period
SLOW_ITEM, STUCK_ITEM = 300.0, 900.0  # seconds of one work item until /readyz and /healthz fail
DRAIN_SECONDS = 5.0  # for load balancers to notice that /readyz fails


@dataclass(frozen=True, kw_only=True)
class Process:
    settings: Settings
    config: Config
    redis: Redis
    probes: Probes
    http: Http
    stop: asyncio.Event


Job = Callable[[Process], Awaitable[None]]


async def run(jobs: tuple[Job, ...], settings: Settings, config: Config) -> None:
    """Run until SIGTERM or SIGINT. A failed job ends the process; Kubernetes restarts it."""
    stop = asyncio.Event()

    def on_signal() -> None:
        stop.set()
        _exit_after(settings.shutdown_grace + CLEANUP_TIMEOUT + 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    async with AsyncExitStack() as stack:
        # After a restart of Redis, pooled connections are dead. All calls are safe to repeat once.
        retry = Retry(NoBackoff(), 1)
        redis = await stack.enter_async_context(connect(settings.redis_url, retry=retry))
        probes = Probes(stop.is_set, Mask(settings.secrets()))
        stack.push_async_callback(probes.close)
        http = Http(probes)
        port = await stack.enter_async_context(served(http, settings.http_host, settings.http_port))
        log.info("serving /healthz and /readyz on port %d", port)
        probes.check("redis", partial(_redis, redis))
        process = Process(settings=settings, config=config, redis=redis, probes=probes, http=http, stop=stop)
        await _live([asyncio.ensure_future(job(process)) for job in jobs], stop, settings.shutdown_grace)
    log.info("stopped")


async def _live(jobs: list[asyncio.Future[None]], stop: asyncio.Event, grace: float) -> None:
    for job in jobs:
        job.add_done_callback(lambda _: stop.set())
    await stop.wait()
    log.info("stopping within %g s", grace)
    _, late = await asyncio.wait(jobs, timeout=grace)
    for job in late:
        job.cancel()
    if late:
        await asyncio.wait(late, timeout=CLEANUP_TIMEOUT)
    for job in jobs:
        if job.done() and not job.cancelled():
            job.result()


def _exit_after(seconds: float) -> None:
    """Exit after `seconds` in any case: a thread can hang in a call, such as a DNS lookup."""
    timer = threading.Timer(seconds, os._exit, [0])
    timer.daemon = True
    timer.start()


async def serve(process: Process) -> None:
    settings = process.settings
    web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
    await _accepted("SLACK_BOT_TOKEN", web.auth_test())
    process.probes.check("slack", partial(_slack, web), every=60)
    queue = Queue(process.redis)
    channel_setup = SetupReader(process.redis, queue, process.config)
    store = Store(process.redis)
    receipts = Receipts(store, queue, now)
    context = HandlerContext(
        store=store,
        receipts=receipts,
        queue=queue,
        drafts=drafts.Drafts(process.redis),
        catalog=Catalog(process.redis, queue, now),
        last_digest=partial(post.last, process.redis),
        snapshots=SnapshotStore(process.redis),
        channel_setup=channel_setup,
        namespace=settings.k8s_namespace,
        now=now,
    )
    tasks = [asyncio.create_task(each) for each in (channel_setup.follow(), receipts.run())]
    try:
        if settings.slack_mode == "http":
            await _over_http(process, build(web, context, signing_secret=settings.slack_secret()))
        else:
            await _over_a_socket(process, build(web, context))
    finally:
        for task in tasks:
            task.cancel()
        await context.background.finish(FINISH)


async def _over_http(process: Process, app: AsyncApp) -> None:
    process.http.slack = SlackCalls(app, process.settings.slack_secret())
    log.info("receiving Slack requests over signed HTTP")
    await process.stop.wait()
    await asyncio.sleep(min(DRAIN_SECONDS, process.settings.shutdown_grace / 2))


async def _over_a_socket(process: Process, app: AsyncApp) -> None:
    socket = Socket(app, process.settings.slack_secret())
    process.probes.check("socket", socket.connected)
    try:
        await _accepted("SLACK_APP_TOKEN", socket.open())
        log.info("receiving Slack requests in Socket Mode")
        await process.stop.wait()
    finally:
        await socket.finish()


async def _accepted(token: str, call: Awaitable[Any]) -> None:
    """Make the first call with a token. Raises UserError if Slack rejects it."""
    try:
        await call
    except SlackApiError as error:
        raise UserError(f"{token}: Slack rejected it ({error_code(error)}).") from None


async def workers(process: Process) -> None:
    settings = process.settings
    async with AsyncExitStack() as stack:
        web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
        clients = await _clients(process, web, stack)
        source = await stack.enter_async_context(measuring(settings, process.config, process.redis, now))
        setups = SetupWriter(clients, process.redis)

        async def digest_schedules() -> tuple[DigestSchedule, ...]:
            """Return the current schedules, which /sweep setup can change."""
            return clients.config.digests

        handlers = _job_handlers(process.redis, clients, source, setups, digest_schedules)
        handlers |= await _maintenance(process.redis, clients)
        informer = SweepInformer(process.redis, clients)
        worker = Worker(clients.queue, settings.worker_concurrency, handlers, suspect=informer.suspect)
        _probes(process.probes, web, clients.cluster, informer, worker)
        schedule = Schedule(clients.queue, digest_schedules, now)
        collector = UsageCollector(process.redis, clients.cluster, source, settings, process.config, now)
        log.info("working in namespace %s", settings.k8s_namespace)
        tasks = [informer.run(), collector.run(), schedule.run(), setups.follow()]
        await _work(_run_worker(worker, setups, informer, process.stop), tasks, process.stop)


async def _clients(process: Process, web: AsyncWebClient, stack: AsyncExitStack) -> Clients:
    settings = process.settings
    cluster = await KubernetesClient.connect()
    stack.push_async_callback(cluster.close)
    registry = Registry(
        settings.registry_api,
        insecure=settings.image_registry_plain_http,
        credentials=settings.own_login(),
    )
    stack.push_async_callback(registry.close)
    queue = Queue(process.redis)

    async def wake(sweep_id: str) -> None:
        await queue.add(WorkItem.sweep(sweep_id))

    results = MlflowExperiments(settings.mlflow_tracking_uri, settings.mlflow_ui, wake)
    results.warm_up()
    return Clients(
        store=Store(process.redis),
        queue=queue,
        cluster=cluster,
        registry=registry,
        git=Git(settings.sweepbot_data / "git", logins(process.config, os.environ)),
        slack=Slack(web, RateLimiter(process.redis), Mask(settings.secrets())),
        results=results,
        settings=settings,
        config=process.config,
        now=now,
    )


def _job_handlers(
    redis: Redis, clients: Clients, source: Source, setups: SetupWriter, digest_schedules: ReadSchedules
) -> dict[str, Handler]:
    """Return what handles each kind of work item."""
    catalog, forms = Catalog(redis, clients.queue, now), drafts.Drafts(redis)
    show = partial(preview_job.show, clients=clients, drafts=forms, known=SnapshotStore(redis))
    return {
        ItemKind.SWEEP: partial(reconciler.handle, clients=clients),
        ItemKind.DOCTOR: keyed(partial(examination.visit, clients=clients)),
        ItemKind.IDLE_GPUS: keyed(IdleMonitor(clients, source, AlertStore(redis)).run),
        ItemKind.PREVIEW: keyed(show),
        ItemKind.GIT_NAMES: keyed(partial(catalog.look, git=clients.git)),
        ItemKind.SETUP: keyed(setups.run),
        ItemKind.DIGEST: keyed(Digests(clients, redis, source, digest_schedules).run),
        ItemKind.GPU_QUESTIONS: keyed(GpuQueryJob(clients, redis, source, digest_schedules).run),
    }


async def _maintenance(redis: Redis, clients: Clients) -> dict[str, Handler]:
    """Queue the daily cleanups that the settings ask for, and return their handlers."""
    settings, handlers = clients.settings, dict[str, Handler]()
    if settings.image_days:
        images = ImageGc(
            redis=redis,
            cluster=clients.cluster,
            registry=clients.registry,
            config=clients.config,
            namespace=settings.k8s_namespace,
            days=settings.image_days,
            now=now,
        )
        handlers[ItemKind.IMAGE_GC] = keyed(images.run)
        await clients.queue.add(image_gc.ITEM)
    sweeps = SweepGc(
        cluster=clients.cluster,
        store=clients.store,
        namespace=settings.k8s_namespace,
        namespaces=all_namespaces(settings.k8s_namespace, clients.config),
        days=settings.sweep_days,
        now=now,
    )
    await clients.queue.add(retention.ITEM)
    return handlers | {ItemKind.SWEEP_GC: keyed(sweeps.run)}


def _probes(
    probes: Probes, web: AsyncWebClient, cluster: KubernetesClient, informer: SweepInformer, worker: Worker
) -> None:
    probes.check("slack", partial(_slack, web), every=60)
    probes.check("kubernetes", cluster.version, every=10)
    probes.check("watch", informer.fresh)
    probes.check("worker", partial(worker.moving, SLOW_ITEM))
    probes.vital("worker", partial(worker.moving, STUCK_ITEM))


async def _work(
    worker: Coroutine[Any, Any, None], tasks: list[Coroutine[Any, Any, None]], stop: asyncio.Event
) -> None:
    """Run until `stop`, then cancel `tasks` at once, so that another process takes over their leases."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(each) for each in tasks]
        group.create_task(worker)
        await stop.wait()
        for task in running:
            task.cancel()


async def _run_worker(
    worker: Worker, setups: SetupWriter, informer: SweepInformer, stop: asyncio.Event
) -> None:
    await setups.ready(stop)
    await informer.listed(stop)
    await worker.run(stop)


async def _redis(redis: Redis) -> str:
    await redis.ping()
    return "ok"


async def _slack(web: AsyncWebClient) -> str:
    return f"user {(await web.auth_test())['user']}"


def now() -> datetime:
    return datetime.now(UTC)
