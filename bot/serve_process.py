"""The process `serve`: check Slack's requests, queue them, and acknowledge."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.app import Process, accepted, now, slack_identity
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.config.permissions import Visitor
from bot.platform.repos.catalog import Catalog
from bot.platform.slack.client import client
from bot.platform.storage.api_tokens import ApiTokens
from bot.platform.storage.queue_state import QueueReader
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.store import SetupReader
from bot.sweep.form import drafts
from bot.sweep.questions.store import Questions
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests
from bot.watch.digests.latest import latest_digest
from bot.workspace_table import GPUS, add_handlers
from handlers.app import build
from handlers.context import HandlerContext
from handlers.http_server import SlackCalls, served
from handlers.socket_mode import SHUTDOWN_TIMEOUT, Socket

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0  # for load balancers to notice that /readyz fails


async def serve(process: Process) -> None:
    settings = process.settings
    web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
    identity = await accepted("SLACK_BOT_TOKEN", web.auth_test())
    process.probes.check("slack", partial(slack_identity, web), every=60)
    queue = Queue(process.redis)
    channel_setup = SetupReader(process.redis, queue, process.policy)
    store = Store(process.redis)
    unconfirmed = UnconfirmedRequests(store, queue, now, settings.sweepbot_unconfirmed)
    context = HandlerContext(
        store=store,
        unconfirmed=unconfirmed,
        queue=queue,
        drafts=drafts.Drafts(process.redis),
        catalog=Catalog(process.redis, queue, now),
        last_digest=partial(latest_digest, process.redis),
        snapshots=SnapshotStore(process.redis),
        channel_setup=channel_setup,
        has_worker=QueueReader(process.redis).has_worker,
        gpus=GPUS,
        tokens=None if settings.sweepbot_api_port is None else ApiTokens(process.redis),
        namespace=settings.k8s_namespace,
        mask=settings.mask,
        now=now,
    )
    api = _api(process, context, web, identity)
    tasks = [asyncio.create_task(each) for each in (channel_setup.follow(), unconfirmed.run())]
    try:
        async with api:
            if settings.slack_mode == "http":
                secret = settings.slack_secret()
                await _over_http(process, build(web, context, add_handlers, signing_secret=secret))
            else:
                await _over_a_socket(process, build(web, context, add_handlers))
    finally:
        for task in tasks:
            task.cancel()
        unconfirmed.file.close()
        await context.background.finish(SHUTDOWN_TIMEOUT)


@asynccontextmanager
async def _api(
    process: Process, context: HandlerContext, web: AsyncWebClient, identity: AsyncSlackResponse
) -> AsyncIterator[None]:
    """Serve the HTTP API while the body runs, if it has a port."""
    port = process.settings.sweepbot_api_port
    if port is None or context.tokens is None:
        yield
        return
    # Most installations need neither them nor Starlette.
    from handlers.api.app import Api  # noqa: PLC0415
    from handlers.api.callers import Callers  # noqa: PLC0415

    home = Visitor(user="", team=identity.get("team_id", ""), enterprise=identity.get("enterprise_id") or "")
    callers = Callers(context, context.tokens, web, home)
    questions = Questions(process.redis, context.queue)
    api = Api(context, callers, context.tokens, questions, process.stop)
    async with (
        api.app() as app,
        served(app, process.settings.http_host, port, "SWEEPBOT_API_PORT") as bound,
    ):
        log.info("serving the HTTP API on port %d", bound)
        yield


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
