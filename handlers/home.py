"""The home tab: shown when it is opened, and anew on request."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot import known
from bot.gpus import answer
from bot.home import NEW, OPEN, REFRESH, Seen, home
from handlers.door import NOT_SAID, PATIENCE, Door
from handlers.views import open_form

log = logging.getLogger(__name__)

Body = dict[str, Any]
Show = Callable[[AsyncWebClient, str], Awaitable[None]]


def add_home(app: AsyncApp, door: Door) -> None:
    show = _show(door)
    app.event("app_home_opened")(_on_opened(door, show))
    app.action(NEW)(_on_new(door))
    app.action(REFRESH)(_on_refresh(show))
    app.action(OPEN)(_on_link)


def _on_opened(door: Door, show: Show) -> Callable[..., Awaitable[None]]:
    async def opened(event: Body, client: AsyncWebClient) -> None:
        with contextlib.suppress(RedisError):
            await door.desk.meet(event["user"])
        if event.get("tab") == "home":
            await show(client, event["user"])

    return opened


def _on_refresh(show: Show) -> Callable[..., Awaitable[None]]:
    async def refresh(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        await ack()
        await show(client, body["user"]["id"])

    return refresh


def _show(door: Door) -> Show:
    site = ""  # the address of this Slack, asked for once

    async def show(client: AsyncWebClient, user: str) -> None:
        nonlocal site
        try:
            async with asyncio.timeout(PATIENCE):
                site = site or (await client.auth_test())["url"]
                view = home(user, await _seen(door, user, site), door.config)
                await client.views_publish(user_id=user, view=view)
        except (RedisError, *NOT_SAID) as error:
            log.warning("a home tab can't be shown: %s", error)

    return show


async def _seen(door: Door, user: str, site: str) -> Seen:
    await door.queue.add(known.ITEM)  # so that the next look knows better
    last = await door.drafts.last(user)
    channels = [last.channel] if last else []
    channels += [each.channel for each in door.config.digests]
    digests = [found for channel in dict.fromkeys(channels) if (found := await door.last_digest(channel))]
    gpus = await door.known.latest()
    return Seen(
        sweeps=await door.store.recent(),
        gpus=answer("free", gpus, user, door.now()) if gpus else "",
        digest=digests[0].headline if digests else "",
        digest_link=digests[0].link if digests else "",
        site=site,
    )


def _on_new(door: Door) -> Callable[..., Awaitable[None]]:
    async def new(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        await open_form(door, client, body["trigger_id"], body["user"]["id"], "", {})
        await ack()

    return new


async def _on_link(ack: AsyncAck) -> None:
    """The browser has followed the link already; Slack wants an answer all the same."""
    await ack()
