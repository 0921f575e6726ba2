"""The home tab: shown when it is opened and on request, and again by a worker once GPUs are measured anew."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.gpus.command import FRESH
from bot.gpus.models import Snapshot
from bot.gpus.snapshot_store import HOME, ITEM, Question
from bot.home.load import HomeLoader
from bot.home.view import NEW, OPEN, REFRESH
from handlers.context import NOT_SAID, PATIENCE, HandlerContext
from handlers.launch_form import open_form

log = logging.getLogger(__name__)

FIRST = "_Measuring; the figures come here in a few seconds. If none come, no worker is running._"
ANEW = "_Measuring anew …_"

Body = dict[str, Any]
Show = Callable[..., Awaitable[None]]  # with the client, the user and, perhaps, a sweep just cancelled


def add_home(app: AsyncApp, context: HandlerContext, show: Show) -> None:
    app.event("app_home_opened")(_on_opened(context, show))
    app.action(NEW)(_on_new(context))
    app.action(REFRESH)(_on_refresh(show))
    app.action(OPEN)(_on_link)


def _on_opened(context: HandlerContext, show: Show) -> Callable[..., Awaitable[None]]:
    async def opened(event: Body, client: AsyncWebClient) -> None:
        with contextlib.suppress(RedisError):
            await context.desk.meet(event["user"])
        if event.get("tab") == "home":
            await show(client, event["user"])

    return opened


def _on_refresh(show: Show) -> Callable[..., Awaitable[None]]:
    async def refresh(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        await ack()
        await show(client, body["user"]["id"])

    return refresh


def showing(context: HandlerContext) -> Show:
    site = ""  # the address of this Slack, asked for once

    async def publish(
        client: AsyncWebClient, user: str, latest: Snapshot | None, note: str, cancelled: str
    ) -> None:
        nonlocal site
        site = site or (await client.auth_test())["url"]
        known = HomeLoader(
            store=context.store, drafts=context.drafts, last_digest=context.last_digest, config=context.config
        )
        view = await known.view(user, site, latest, note, context.now(), cancelled)
        await client.views_publish(user_id=user, view=view)

    async def show(client: AsyncWebClient, user: str, cancelled: str = "") -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                latest = await context.known.latest()
                fresh = latest is not None and context.now() - latest.at < FRESH
                await publish(client, user, latest, "" if fresh else ANEW if latest else FIRST, cancelled)
                if not fresh:  # asked for last: what is measured comes over this
                    await _measure(context, user)
        except (RedisError, *NOT_SAID) as error:
            log.warning("a home tab can't be shown: %s", error)

    return show


async def _measure(context: HandlerContext, user: str) -> None:
    await context.known.ask(Question(user=user, channel="", text=HOME, at=context.now()))
    await context.queue.add(ITEM)


def _on_new(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    async def new(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        user = body["user"]["id"]
        trouble = await open_form(context, client, body["trigger_id"], user, "", {})
        await ack()
        if trouble:
            context.afterwards.start(_say(client, user, trouble))

    return new


async def _say(client: AsyncWebClient, user: str, text: str) -> None:
    """As a direct message: a click on the home tab has no place for an answer."""
    try:
        await client.chat_postMessage(channel=user, text=text)
    except NOT_SAID as error:
        log.warning("can't answer a click on the home tab: %s", error)


async def _on_link(ack: AsyncAck) -> None:
    """The browser has followed the link already; Slack wants an answer all the same."""
    await ack()
