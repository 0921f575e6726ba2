"""Handle the home tab: publish it on open and refresh, with old figures until a worker has measured, who
publishes it again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.measure.gpus.command import LOADING, SNAPSHOT_MAX_AGE
from bot.measure.gpus.snapshot_store import HOME_TAB, ITEM, QUERY_TTL, GpuQuery, dump_query
from bot.platform.slack.blocks import masked
from bot.watch.home.view import NEW_SWEEP, REFRESH, HomeLoader
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, Body, HandlerContext
from handlers.launch_form import open_form

log = logging.getLogger(__name__)

REFRESHING = "_Refreshing…_"
Show = Callable[..., Awaitable[None]]  # (client, user id, id of a sweep just cancelled = "")


def add_home(app: AsyncApp, context: HandlerContext, show: Show) -> None:
    @app.event("app_home_opened")
    async def opened(event: Body, client: AsyncWebClient) -> None:
        with contextlib.suppress(RedisError):
            await context.channel_setup.queue_greeting(event["user"])
        if event.get("tab") == "home":
            await show(client, event["user"])

    @app.action(REFRESH)
    async def refresh(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        await ack()
        await show(client, body["user"]["id"])

    @app.action(NEW_SWEEP)
    async def new(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        user = body["user"]["id"]
        error = await open_form(context, client, body["trigger_id"], user, "", {})
        await ack()
        if error:
            context.background.start(_post(client, user, error))


def showing(context: HandlerContext) -> Show:

    async def show(client: AsyncWebClient, user: str, cancelled: str = "") -> None:
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                latest = await context.snapshots.latest()
                fresh = latest is not None and context.now() - latest.at < SNAPSHOT_MAX_AGE
                note = "" if fresh else REFRESHING if latest else f"_{LOADING}_"
                loader = HomeLoader(
                    store=context.store,
                    drafts=context.drafts,
                    last_digest=context.last_digest,
                    config=context.config,
                )
                view = await loader.view(user, latest, note, cancelled)
                await client.views_publish(user_id=user, view=masked(view, context.mask))
                if not fresh:  # queued after publishing, which the worker's newer view must replace
                    query = dump_query(GpuQuery(user=user, channel="", text=HOME_TAB, at=context.now()))
                    await context.store.add_request(str(ITEM), query, queue=context.queue, ttl=QUERY_TTL)
        except (RedisError, *SLACK_ERRORS) as error:
            log.warning("can't publish a home tab: %s", error)

    return show


async def _post(client: AsyncWebClient, user: str, text: str) -> None:
    """Send a direct message: a click on the home tab has no response_url."""
    try:
        await client.chat_postMessage(channel=user, text=text)
    except SLACK_ERRORS as error:
        log.warning("can't reply to a home tab click: %s", error)
