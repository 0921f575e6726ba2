"""Handle `/gpus`: answer from the latest snapshot; if it is old, queue a measurement and a second answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.config.clusters import remote
from bot.config.permissions import doctor_denial
from bot.core.errors import UserError
from bot.gpus.command import GPUS_HELP, LOADING, SNAPSHOT_MAX_AGE, ParsedCommand, answer, parse_command
from bot.gpus.snapshot_store import ITEM, GpuQuery
from bot.slack.mrkdwn import cut
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any]], Awaitable[None]]

ADMIN_VIEWS = ("digest", "reserve", "release")
ACKS = {
    "bill": "Calculating the bill… It appears here in a moment.",
    "reserve": "Reserving… The result appears here in a moment.",
    "reservations": "Reading reservations…",
    "release": "Releasing… The result appears here in a moment.",
    "digest": "Posting yesterday's digest here. Sweepbot must be in this channel.",
}


def add_gpus(app: AsyncApp, context: HandlerContext) -> None:
    app.command("/gpus")(on_gpus(context))


def on_gpus(context: HandlerContext) -> Handler:
    async def gpus(ack: AsyncAck, command: dict[str, Any]) -> None:
        await ack(text=cut(await _answer(context, command)))

    return gpus


async def _answer(context: HandlerContext, command: dict[str, Any]) -> str:
    try:
        parsed = parse_command(command.get("text", ""), context.config.teams)
        if parsed.view == "help":
            return GPUS_HELP
        if parsed.view in ADMIN_VIEWS and (refusal := doctor_denial(command["user_id"], context.config)):
            return refusal
        async with asyncio.timeout(ACK_TIMEOUT):
            return await _from_snapshot(context, command, parsed)
    except UserError as error:
        return str(error)
    except (RedisError, TimeoutError) as error:
        log.exception("failed to queue a /gpus query")
        return unconfirmed(error)


async def _from_snapshot(context: HandlerContext, command: dict[str, Any], parsed: ParsedCommand) -> str:
    latest = None if parsed.view in ACKS else await context.snapshots.latest()
    if parsed.view != "free" and remote(context.config.clusters):
        latest = None  # a worker adds the pods and nodes of other clusters to each answer
    known = answer(parsed.view, latest, command["user_id"], context.now()) if latest else ""
    if latest and context.now() - latest.at < SNAPSHOT_MAX_AGE:
        return known
    query = GpuQuery(
        user=command["user_id"],
        channel=command["channel_id"],
        text=command.get("text", ""),
        response_url=command.get("response_url", ""),
        at=context.now(),
    )
    await context.snapshots.add_query(query)
    await context.queue.add(ITEM)
    return ACKS.get(parsed.view) or (f"{known}\nRefreshing…" if known else LOADING)
