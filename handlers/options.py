"""What the form's menus offer while somebody types, from what is known already: Slack waits three seconds."""

import logging
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.config import repository
from bot.forms import BRANCH, REPO, SPACE
from bot.menus import NOTHING, Option, names, option, repositories
from bot.models import UserError
from handlers.door import Door
from handlers.views import hidden

log = logging.getLogger(__name__)

Body = dict[str, Any]


def add_menus(app: AsyncApp, door: Door) -> None:
    @app.options(REPO)
    async def repos(ack: AsyncAck, body: Body) -> None:
        await ack(options=repositories(door.config, body.get("value", "")))

    @app.options(BRANCH)
    async def branches(ack: AsyncAck, body: Body) -> None:
        await ack(options=await _branches(door, body))

    @app.options(SPACE)
    async def spaces(ack: AsyncAck, body: Body) -> None:
        await ack(options=await _spaces(door, body))


async def _branches(door: Door, body: Body) -> list[Option]:
    said = hidden(body["view"])
    try:
        url = repository(said.get("repo"), door.config).url
        last = await door.drafts.last(body["user"]["id"])
        known = await door.catalogue.known(url)
    except (UserError, RedisError) as error:
        return _only(error)
    return names(known, body.get("value", ""), first=[last.said["branch"]] if last else [])


async def _spaces(door: Door, body: Body) -> list[Option]:
    said = hidden(body["view"])
    if not said.get("branch"):
        return [option(NOTHING, text="Choose a branch first")]
    try:
        known = await door.catalogue.known(repository(said.get("repo"), door.config).url, said["branch"])
    except (UserError, RedisError) as error:
        return _only(error)
    return names(known, body.get("value", ""))


def _only(error: Exception) -> list[Option]:
    if not isinstance(error, UserError):
        log.warning("a menu can't tell: %s", error)
    return [option(NOTHING, text=str(error) if isinstance(error, UserError) else "My memory does not answer")]
