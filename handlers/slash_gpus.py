"""Handle `/gpus`: answer from the latest snapshot; if it is old, queue a measurement and a second answer."""

import asyncio
from typing import Any

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.measure.gpus.command import (
    GROUP,
    LOADING,
    SNAPSHOT_MAX_AGE,
    ParsedCommand,
    answer,
    parse_command,
    shown,
)
from bot.measure.gpus.snapshot_store import ITEM, QUERY_TTL, GpuQuery, dump_query
from bot.platform.config.clusters import remote
from bot.platform.config.permissions import doctor_denial
from bot.platform.slack.message import Message
from handlers.any_wording import add_command
from handlers.context import ACK_TIMEOUT, HandlerContext, request_id_of


def add_gpus(app: AsyncApp, context: HandlerContext) -> None:
    add_command(app, context, context.gpus, answer_gpus)


async def answer_gpus(context: HandlerContext, command: dict[str, Any], _: AsyncWebClient) -> str | Message:
    """Return the answer, or an acknowledgment. Raises UserError, RedisError, TimeoutError."""
    parsed = parse_command(command.get("text", ""), context.config, context.gpus)
    if parsed.view == "help":
        return context.gpus.help_of(GROUP)
    admins_only = parsed.later is not None and parsed.later.admins_only
    if admins_only and (refusal := doctor_denial(command["user_id"], context.config)):
        return refusal
    async with asyncio.timeout(ACK_TIMEOUT):
        return await _from_snapshot(context, command, parsed)


async def _from_snapshot(
    context: HandlerContext, command: dict[str, Any], parsed: ParsedCommand
) -> str | Message:
    latest = None if parsed.later else await context.snapshots.latest()
    if parsed.view != "free" and remote(context.config.clusters):
        latest = None  # a worker adds the pods and nodes of other clusters to each answer
    user = command["user_id"]
    known: str | Message = LOADING
    if latest:
        is_fresh = context.now() - latest.at < SNAPSHOT_MAX_AGE
        parts = [answer(parsed.view, latest, user), *([] if is_fresh else ["Refreshing…"])]
        known = shown(parts, parsed.view, latest, user)
        if is_fresh:
            return known
    query = GpuQuery(
        user=user,
        channel=command["channel_id"],
        text=command.get("text", ""),
        response_url=command.get("response_url", ""),
        thread=command.get("thread", ""),
        at=context.now(),
    )
    if parsed.later and parsed.later.admins_only:  # a repeated delivery must reserve nothing more
        once = f"gpus/{request_id_of(command)}"
        await context.add_request(str(ITEM), dump_query(query), once=once, ttl=QUERY_TTL)
    else:  # who gets no answer asks again
        await context.store.add_request(str(ITEM), dump_query(query), queue=context.queue, ttl=QUERY_TTL)
    return parsed.later.ack if parsed.later else known
