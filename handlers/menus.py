"""Offer the options of the form's menus from cached names: Slack waits 3 seconds."""

import logging
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.config.policy import repository
from bot.core.errors import UserError
from bot.form.menus import names, repositories
from bot.form.view import BRANCH_MENU, REPO_MENU, SPACE_MENU
from bot.slack.blocks import NOTHING, Option, option
from handlers.context import HandlerContext
from handlers.launch_form import hidden

log = logging.getLogger(__name__)

Body = dict[str, Any]


def add_menus(app: AsyncApp, context: HandlerContext) -> None:
    @app.options(REPO_MENU)
    async def repos(ack: AsyncAck, body: Body) -> None:
        await ack(options=repositories(context.config, body.get("value", "")))

    @app.options(BRANCH_MENU)
    async def branches(ack: AsyncAck, body: Body) -> None:
        await ack(options=await _branches(context, body))

    @app.options(SPACE_MENU)
    async def spaces(ack: AsyncAck, body: Body) -> None:
        await ack(options=await _spaces(context, body))


async def _branches(context: HandlerContext, body: Body) -> list[Option]:
    options = hidden(body["view"])
    try:
        url = repository(options.get("repo"), context.config).url
        last = await context.drafts.last(body["user"]["id"])
        known = await context.catalog.names(url)
    except (UserError, RedisError) as error:
        return _error_option(error)
    return names(known, body.get("value", ""), first=[last.options["branch"]] if last else [])


async def _spaces(context: HandlerContext, body: Body) -> list[Option]:
    options = hidden(body["view"])
    if not options.get("branch"):
        return [option(NOTHING, text="Choose a branch first")]
    try:
        known = await context.catalog.names(
            repository(options.get("repo"), context.config).url, options["branch"]
        )
    except (UserError, RedisError) as error:
        return _error_option(error)
    return names(known, body.get("value", ""))


def _error_option(error: Exception) -> list[Option]:
    if isinstance(error, UserError):
        return [option(NOTHING, text=str(error))]
    log.warning("can't load a menu: %s", error)
    return [option(NOTHING, text="Can't reach Redis. Try again.")]
