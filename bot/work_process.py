"""The process `work`: which handler each kind of work item has, how many of a kind run at once, what watches
the cluster, and when a worker isn't ready.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

from redis.asyncio import Redis
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import Process, now, slack_identity
from bot.client_setup import connect_clients
from bot.core.work_item import ItemKind
from bot.measure.gpus.models import Source
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.measure.sources.collector import UsageCollector, measuring
from bot.measure.sources.remote_usage import RemoteUsage
from bot.operate import checks
from bot.operate import commands as operator_commands
from bot.operate.admin_reports import ClusterReport, ConfigReport
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.policy import Config
from bot.platform.repos.catalog import Catalog
from bot.platform.runtime.probes import Probes
from bot.platform.slack.client import client
from bot.platform.storage.last_errors import LastErrors, remembering
from bot.platform.storage.work_queue import Lease
from bot.sweep.answers import queue_job
from bot.sweep.builds import image_gc
from bot.sweep.builds.image_gc import ImageGc
from bot.sweep.channels import quiet
from bot.sweep.channels.store import SetupWriter
from bot.sweep.clients import SweepClients
from bot.sweep.feature_table import FEATURES
from bot.sweep.form import drafts
from bot.sweep.form.review import show_review
from bot.sweep.model.feature import Job
from bot.sweep.questions import job as questions_job
from bot.sweep.questions.store import Questions
from bot.sweep.reports import bisect, past_sweeps
from bot.sweep.reports.trial_runs_job import TrialRunsJob
from bot.sweep.results.run_writer import RunWriter
from bot.sweep.sweeps import reconciler, retention
from bot.sweep.sweeps.informer import SweepInformer
from bot.sweep.sweeps.retention import SweepGc
from bot.watch.digests.post import Digests, ReadSchedules
from bot.watch.digests.schedule import Schedule
from bot.watch.home.gpu_query_job import GpuQueryJob
from bot.watch.idle.monitor import IdleMonitors
from bot.worker import Handler, Worker, keyed, limited
from bot.workspace_table import GPUS, ROOMS, lines
from bot.workspace_table import checks as of_workspaces
from k8s.api.client import KubernetesClient

log = logging.getLogger(__name__)

SLOW_ITEM, STUCK_ITEM = 300.0, 900.0  # seconds of one work item until /readyz and /healthz fail


async def workers(process: Process) -> None:
    settings = process.settings
    async with AsyncExitStack() as stack:
        web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
        clients = await connect_clients(settings, process.policy, process.redis, web, stack)
        clients.results.warm_up()

        def config() -> Config:
            """Return the current configuration, which its file and /sweep setup can change."""
            return clients.config

        source = await stack.enter_async_context(measuring(settings, config, process.redis, now))
        setups = SetupWriter(clients, process.redis, process.policy)

        async def digest_schedules() -> tuple[DigestSchedule, ...]:
            """Return the current schedules, which /sweep setup can change."""
            return clients.config.digests

        process.policy.require(partial(checks.require_secrets, environ=os.environ))
        report = ConfigReport(process.policy, clients, process.redis)
        handlers = _job_handlers(process.redis, clients, source, setups, digest_schedules)
        handlers[ItemKind.DOCTOR] = keyed(
            partial(checks.answer_commands, clients=clients, policy=process.policy, more=of_workspaces)
        )
        handlers[ItemKind.CONFIG] = keyed(report.run)
        handlers[ItemKind.OPERATOR] = keyed(
            partial(operator_commands.answer_commands, clients=clients, redis=process.redis)
        )
        handlers |= await _maintenance(process.redis, clients)
        errors = LastErrors(process.redis)
        handlers = {kind: remembering(each, errors, clients.mask, now) for kind, each in handlers.items()}
        informer = SweepInformer(process.redis, clients)
        handlers[ItemKind.SWEEP] = _noted(informer.wakes.started, handlers[ItemKind.SWEEP])
        worker = Worker(clients.queue, settings.worker_concurrency, handlers, suspect=informer.suspect)
        _probes(process.probes, web, clients.cluster, informer, worker)
        schedule = Schedule(clients.queue, digest_schedules, now)

        def others() -> list[tuple[str, KubernetesClient]]:
            return [(each.config.name, each.api) for each in clients.clusters.all(clients.config)]

        collector = UsageCollector(
            process.redis,
            clients.cluster,
            source,
            settings,
            config,
            now,
            others,
            resync=lambda: [item for room in ROOMS for item in room.resync(config())],
        )
        log.info("working in namespace %s", settings.k8s_namespace)
        tasks = [informer.run(), collector.run(), schedule.run(), setups.follow(), report.follow()]
        tasks += [task for room in ROOMS for task in room.tasks(clients, process.redis)]
        tasks.append(ClusterReport(clients, process.redis).follow())
        tasks.append(RemoteUsage(process.redis, clients.clusters, settings, config, now).run())
        await _work(_run_worker(worker, setups, informer, process.stop), tasks, process.stop)


def _job_handlers(
    redis: Redis, clients: SweepClients, source: Source, setups: SetupWriter, digest_schedules: ReadSchedules
) -> dict[str, Handler]:
    """Return what handles each kind of work item."""
    catalog, forms = Catalog(redis, clients.queue, now), drafts.Drafts(redis)
    known = SnapshotStore(redis)
    show = partial(show_review, clients=clients, drafts=forms, known=known)
    asked = Questions(redis, clients.queue)
    answer = keyed(partial(questions_job.answer, clients=clients, questions=asked, known=known))
    at_once = max(1, clients.settings.worker_concurrency // 4)
    reserved = partial(lines, clients)
    of_rooms = [room.jobs(clients, redis, source).items() for room in ROOMS]
    mlflow = clients.settings.mlflow_tracking_uri, clients.settings.mlflow_ui
    return {
        ItemKind.SWEEP: partial(reconciler.handle, clients=clients),
        ItemKind.IDLE_GPUS: keyed(IdleMonitors(clients, redis, source).run),
        ItemKind.PREVIEW: keyed(show),
        ItemKind.GIT_NAMES: keyed(partial(catalog.refresh, git=clients.git)),
        ItemKind.SETUP: keyed(setups.run),
        ItemKind.QUIET: keyed(partial(quiet.send, clients=clients)),
        ItemKind.DIGEST: keyed(Digests(clients, redis, source, digest_schedules, reserved).run),
        ItemKind.QUEUE: keyed(partial(queue_job.answer_commands, clients=clients)),
        ItemKind.HISTORY: keyed(partial(past_sweeps.answer_history, clients=clients)),
        ItemKind.QUESTION: limited(answer, most=at_once),
        ItemKind.PLAN_QUESTION: limited(answer, most=at_once),
        ItemKind.TRIAL_RUNS: keyed(TrialRunsJob(clients, RunWriter(*mlflow)).run),
        ItemKind.BISECT: keyed(partial(bisect.follow, clients=clients)),
        ItemKind.GPU_QUESTIONS: keyed(
            GpuQueryJob(clients, redis, source, digest_schedules, reserved, GPUS).run
        ),
        **{kind: _with(clients, job) for feature in FEATURES for kind, job in feature.jobs.items()},
        **{kind: keyed(job) for kind, job in chain(*of_rooms)},
    }


def _with(clients: SweepClients, job: Job) -> Handler:
    async def handle(lease: Lease) -> timedelta | None:
        return await job(lease, clients)

    return handle


def _noted(started: Callable[[Lease], None], handler: Handler) -> Handler:
    async def handle(lease: Lease) -> timedelta | None:
        started(lease)
        return await handler(lease)

    return handle


async def _maintenance(redis: Redis, clients: SweepClients) -> dict[str, Handler]:
    """Queue the daily cleanups that the settings ask for, and return their handlers."""
    handlers: dict[str, Handler] = {ItemKind.SWEEP_GC: keyed(SweepGc(clients).run)}
    if days := clients.settings.image_days:
        handlers[ItemKind.IMAGE_GC] = keyed(ImageGc(redis, clients, days).run)
        await clients.queue.add(image_gc.ITEM)
    for item in (retention.ITEM, *(item for room in ROOMS for item in room.starts)):
        await clients.queue.add(item)
    return handlers


def _probes(
    probes: Probes, web: AsyncWebClient, cluster: KubernetesClient, informer: SweepInformer, worker: Worker
) -> None:
    probes.check("slack", partial(slack_identity, web), every=60)
    probes.check("kubernetes", cluster.version, every=120)
    probes.check("watch", informer.fresh)
    probes.check("worker", partial(worker.moving, SLOW_ITEM))
    probes.vital("worker", partial(worker.moving, STUCK_ITEM))
    probes.started()


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
