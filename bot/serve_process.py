"""The process `serve`: check Slack's requests, queue them, and acknowledge."""

import asyncio
import logging
from functools import partial

from slack_bolt.async_app import AsyncApp

from bot.app import Process, accepted, now, slack_identity
from bot.channels.store import SetupReader
from bot.digests.latest import latest_digest
from bot.environments.requests import RequestStore
from bot.form import drafts
from bot.gpus.snapshot_store import SnapshotStore
from bot.repos.catalog import Catalog
from bot.slack.client import client
from bot.storage.queue_state import QueueReader
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from bot.sweeps.receipts import Receipts
from handlers.app import build
from handlers.context import HandlerContext
from handlers.http_server import SlackCalls
from handlers.socket_mode import SHUTDOWN_TIMEOUT, Socket

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0  # for load balancers to notice that /readyz fails


async def serve(process: Process) -> None:
    settings = process.settings
    web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
    await accepted("SLACK_BOT_TOKEN", web.auth_test())
    process.probes.check("slack", partial(slack_identity, web), every=60)
    queue = Queue(process.redis)
    channel_setup = SetupReader(process.redis, queue, process.policy)
    store = Store(process.redis)
    receipts = Receipts(store, queue, now)
    context = HandlerContext(
        store=store,
        receipts=receipts,
        queue=queue,
        drafts=drafts.Drafts(process.redis),
        catalog=Catalog(process.redis, queue, now),
        last_digest=partial(latest_digest, process.redis),
        snapshots=SnapshotStore(process.redis),
        channel_setup=channel_setup,
        has_worker=QueueReader(process.redis).has_worker,
        environments=RequestStore(process.redis, queue),
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
        await context.background.finish(SHUTDOWN_TIMEOUT)


async def _over_http(process: Process, app: AsyncApp) -> None:
    process.http.slack = SlackCalls(app, process.settings.slack_secret())
    process.probes.started()
    log.info("receiving Slack requests over signed HTTP")
    await process.stop.wait()
    await asyncio.sleep(min(DRAIN_SECONDS, process.settings.shutdown_grace / 2))


async def _over_a_socket(process: Process, app: AsyncApp) -> None:
    socket = Socket(app, process.settings.slack_secret())
    process.probes.check("socket", socket.connected)
    process.probes.started()
    try:
        await accepted("SLACK_APP_TOKEN", socket.open())
        log.info("receiving Slack requests in Socket Mode")
        await process.stop.wait()
    finally:
        await socket.finish()
