"""serve | work | all: where all parts meet, from the start of a process to its end.

SIGTERM ends it in order: /readyz says so, the watch lease and Slack's line are given back, no turn is begun,
those under way may end within SHUTDOWN_GRACE seconds and go to another worker otherwise; the pages go last.
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
from bot.config.policy import Config
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

CLEAN_UP = 5.0  # seconds to give everything back, after the grace
LONG_TURN, ENDLESS_TURN = 300.0, 900.0  # seconds: something hangs; only a new process helps
LINGER = 5.0  # seconds in which load balancers learn that they should send Slack's calls elsewhere


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
    """Until SIGTERM or SIGINT; a job that fails ends the process, for its supervisor to start anew."""
    stop = asyncio.Event()

    def end() -> None:
        stop.set()
        _last_resort(settings.shutdown_grace + CLEAN_UP + 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    async with AsyncExitStack() as stack:
        # Once more on a new connection: after a restart of Redis those kept open are dead. All calls bear it.
        once_more = Retry(NoBackoff(), 1)
        redis = await stack.enter_async_context(connect(settings.redis_url, retry=once_more))
        probes = Probes(stop.is_set, Mask(settings.secrets()))
        stack.push_async_callback(probes.close)
        http = Http(probes)
        port = await stack.enter_async_context(served(http, settings.http_host, settings.http_port))
        log.info("/healthz and /readyz are on port %d", port)
        probes.check("redis", partial(_redis, redis))
        process = Process(settings=settings, config=config, redis=redis, probes=probes, http=http, stop=stop)
        await _live([asyncio.ensure_future(job(process)) for job in jobs], stop, settings.shutdown_grace)
    log.info("ended")


async def _live(jobs: list[asyncio.Future[None]], stop: asyncio.Event, grace: float) -> None:
    for job in jobs:
        job.add_done_callback(lambda _: stop.set())
    await stop.wait()
    log.info("ending, within %g s", grace)
    _, late = await asyncio.wait(jobs, timeout=grace)
    for job in late:
        job.cancel()
    if late:
        await asyncio.wait(late, timeout=CLEAN_UP)
    for job in jobs:
        if job.done() and not job.cancelled():
            job.result()


def _last_resort(seconds: float) -> None:
    """A thread in a call without end, such as a name being resolved, must not keep the process."""
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
    beside = [asyncio.create_task(each) for each in (channel_setup.follow(), receipts.run())]
    try:
        if settings.slack_mode == "http":
            await _over_http(process, build(web, context, signing_secret=settings.slack_secret()))
        else:
            await _over_a_socket(process, build(web, context))
    finally:
        for task in beside:
            task.cancel()
        await context.background.finish(FINISH)


async def _over_http(process: Process, app: AsyncApp) -> None:
    process.http.slack = SlackCalls(app, process.settings.slack_secret())
    log.info("answering Slack over signed HTTP")
    await process.stop.wait()
    await asyncio.sleep(min(LINGER, process.settings.shutdown_grace / 2))


async def _over_a_socket(process: Process, app: AsyncApp) -> None:
    socket = Socket(app, process.settings.slack_secret())
    process.probes.check("socket", socket.connected)
    try:
        await _accepted("SLACK_APP_TOKEN", socket.open())
        log.info("answering Slack in Socket Mode")
        await process.stop.wait()
    finally:
        await socket.finish()


async def _accepted(token: str, call: Awaitable[Any]) -> None:
    """A wrong token ends the start here, not at the first command."""
    try:
        await call
    except SlackApiError as error:
        raise UserError(f"{token}: Slack answers {error_code(error)}.") from None


async def workers(process: Process) -> None:
    settings = process.settings
    async with AsyncExitStack() as stack:
        web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
        clients = await _clients(process, web, stack)
        source = await stack.enter_async_context(measuring(settings, process.config, process.redis, now))
        setups = SetupWriter(clients, process.redis)

        async def digest_schedules() -> tuple[DigestSchedule, ...]:
            """Return which digests there are, and when: as it is set up now."""
            return clients.config.digests

        handlers = _job_handlers(process.redis, clients, source, setups, digest_schedules)
        handlers |= await _maintenance(process.redis, clients)
        informer = SweepInformer(process.redis, clients)
        worker = Worker(clients.queue, settings.worker_concurrency, handlers, suspect=informer.suspect)
        _probes(process.probes, web, clients.cluster, informer, worker)
        schedule = Schedule(clients.queue, digest_schedules, now)
        collector = UsageCollector(process.redis, clients.cluster, source, settings, process.config, now)
        log.info("taking turns in namespace %s", settings.k8s_namespace)
        beside = [informer.run(), collector.run(), schedule.run(), setups.follow()]
        await _work(_take_turns(worker, setups, process.stop), beside, process.stop)


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
    if settings.sweep_days:
        sweeps = SweepGc(
            cluster=clients.cluster,
            store=clients.store,
            namespace=settings.k8s_namespace,
            days=settings.sweep_days,
            now=now,
        )
        handlers[ItemKind.SWEEP_GC] = keyed(sweeps.run)
        await clients.queue.add(retention.ITEM)
    return handlers


def _probes(
    probes: Probes, web: AsyncWebClient, cluster: KubernetesClient, informer: SweepInformer, worker: Worker
) -> None:
    probes.check("slack", partial(_slack, web), every=60)
    probes.check("kubernetes", cluster.version, every=10)
    probes.check("watch", informer.fresh)
    probes.check("turns", partial(worker.moving, LONG_TURN))
    probes.vital("turns", partial(worker.moving, ENDLESS_TURN))


async def _work(
    turns: Coroutine[Any, Any, None], beside: list[Coroutine[Any, Any, None]], stop: asyncio.Event
) -> None:
    """What runs beside the turns ends at once, for another worker to go on."""
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(each) for each in beside]
        group.create_task(turns)
        await stop.wait()
        for task in watching:
            task.cancel()


async def _take_turns(worker: Worker, setups: SetupWriter, stop: asyncio.Event) -> None:
    await setups.ready(stop)
    await worker.run(stop)


async def _redis(redis: Redis) -> str:
    await redis.ping()
    return "answers"


async def _slack(web: AsyncWebClient) -> str:
    return f"known as {(await web.auth_test())['user']}"


def now() -> datetime:
    return datetime.now(UTC)
